"""Options of the commands that generate with a model."""

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import click
import torch

from vendi_guidance.commands.cli import Option
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.precision import AUTO, DTYPES, OFFLOADS  # not models: diffusers is slow
from vendi_guidance.storage.assets import asset

COUNT = click.IntRange(1)
SIZE = click.IntRange(8, 2**14)
PATH = click.Path(path_type=Path)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

what = partial(click.option, cls=Option, group="Model and sampling")
how = partial(click.option, cls=Option, group="Diversity guidance")
where = partial(click.option, cls=Option, group="Output and machine")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order."""
    return lambda command: reduce(lambda it, option: option(it), reversed(options), command)


model_options = together(
    what(
        "--model",
        type=str,
        default=asset("demo-sdxl"),
        required=asset("demo-sdxl") is None,
        show_default="the demo model, a small SDXL that generates emoji",
        help="Folder that save_pretrained wrote, or name of a model on the Hugging Face hub.",
    ),
    what(
        "--lora",
        help="LoRA to load into the model, such as its distillation to a few steps: a file of "
        "safetensors, a folder with one, or a name on the hub. Needs vendi-guidance[lora].",
    ),
    what("--variant", help="Which of the model's files to load, such as fp16."),
    what(
        "--steps",
        type=COUNT,
        show_default="the model's, which is printed",
        help="Number of denoising steps.",
    ),
    what(
        "--guidance-scale",
        type=float,
        show_default="the model's, which is printed",
        help="Scale of classifier-free guidance (CFG); 0 or 1 is none (Z-Image, Krea 2: 0).",
    ),
    what("--negative-prompt", metavar="TEXT", help="Negative prompt, which CFG leads away from."),
    what("--height", type=SIZE, show_default="the model's", help="Of the images, in pixels."),
    what("--width", type=SIZE, show_default="the model's", help="Of the images, in pixels."),
    what("--batch-size", type=COUNT, default=8, help="Number of images generated at a time."),
)

undistilled_option = how(
    "--undistilled",
    metavar="MODEL",
    default=RunOptions.undistilled,
    help="Network that predicts in the rounds, for a model distilled to few steps: adapters, its "
    "own with LoRAs switched off; none, its own; or the folder or hub name of the model that it "
    "was distilled from, of which the network is loaded besides. auto: adapters if --lora is what "
    "distilled the model, as its first prediction shows, else none.",
)

machine_options = together(
    where("--device", default=DEVICE, help="Where to compute, such as cuda:0."),
    where(
        "--dtype",
        type=click.Choice(DTYPES),
        default=AUTO,
        help="Precision of the model. auto: on a GPU the half precision of the model's files, on a "
        "CPU bfloat16 if the processor computes it itself, else float32.",
    ),
    where(
        "--offload",
        type=click.Choice(OFFLOADS),
        help="Keep the model on the CPU and move to the GPU what is used: model, a part at a time; "
        "sequential, a layer at a time, slow and with the least memory.",
    ),
    where(
        "--vae-tiling", is_flag=True, help="Decode images in tiles: less memory, for large images."
    ),
    where("--vae-slicing", is_flag=True, help="Decode images one by one: less memory."),
)
