"""Options of the commands that generate with a model, and helpers to define options."""

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import click
import torch

from vendi_guidance.commands.cli import Choice, Option, Range
from vendi_guidance.runs.plan import AUTO, DTYPES, OFFLOADS, RunOptions
from vendi_guidance.storage.assets import asset

PROTOCOLS = {"group-vendi": 4, "sets": 8}  # images of a prompt that are scored together
COUNT = click.IntRange(1)
SIZE = click.IntRange(8, 2**14)
PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

sampling_option = partial(click.option, cls=Option, group="Model and sampling")
guidance_option = partial(click.option, cls=Option, group="Diversity guidance")
output_option = partial(click.option, cls=Option, group="Output and machine")


def check_device(_context: click.Context, option: click.Parameter, device: str) -> str:
    """Callback that refuses a device unless tensors can be stored and computed on it."""
    try:
        kind = torch.empty(0, device=device).device.type
    except (RuntimeError, AssertionError) as error:
        why = f"{device!r} cannot be used here: {str(error).splitlines()[0]}"
        raise click.BadParameter(why, param=option) from None
    if kind == "meta":
        raise click.BadParameter(f"{device!r} stores no data: use cpu or cuda", param=option)
    return device


device_option = output_option(
    "--device", default=DEVICE, callback=check_device, help="Device to compute on, such as cuda:0."
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Combine several options into one decorator that keeps their order."""
    return lambda command: reduce(lambda it, option: option(it), reversed(options), command)


run_options = together(
    sampling_option(
        "--model",
        type=str,
        default=asset("demo-sdxl"),
        required=asset("demo-sdxl") is None,
        show_default="the demo model, a small SDXL that generates emoji",
        help="Folder written by save_pretrained, or name of a model on the Hugging Face Hub.",
    ),
    sampling_option(
        "--lora",
        help="LoRA to load, such as a few-step distillation: a safetensors file, a folder with "
        "one, or a name on the Hub. Needs vendi-guidance[lora].",
    ),
    sampling_option("--variant", help="Variant of the model's files, such as fp16."),
    sampling_option(
        "--steps",
        type=COUNT,
        show_default="the model's, which is printed",
        help="Number of denoising steps.",
    ),
    sampling_option(
        "--guidance-scale",
        type=Range(-1000, 1000),
        show_default="the model's, which is printed",
        help="Scale of classifier-free guidance (CFG). 0 and 1 turn CFG off; for Z-Image and "
        "Krea 2, only 0 does.",
    ),
    sampling_option("--negative-prompt", metavar="TEXT", help="Negative prompt, used by CFG."),
    sampling_option("--height", type=SIZE, show_default="the model's", help="Height in pixels."),
    sampling_option("--width", type=SIZE, show_default="the model's", help="Width in pixels."),
    sampling_option(
        "--batch-size", type=COUNT, default=8, help="Images per batch. Lower it to save memory."
    ),
    guidance_option(
        "--undistilled",
        metavar="MODEL",
        default=RunOptions.undistilled,
        help="Network that guidance uses in its rounds, for a model distilled to few steps, and, "
        "with CFG, at the first step, for one tuned on a taste. adapters: the model's own, with "
        "LoRAs off. none: the model's own. Otherwise the folder or Hub name of the model before "
        "that, whose network is loaded too. auto: adapters if --lora proves to be a distillation, "
        "else none.",
    ),
    device_option,
    output_option(
        "--dtype",
        type=Choice(DTYPES),
        default=AUTO,
        help="Precision of the model. auto: on a GPU, float16 for a U-Net and bfloat16 for a "
        "transformer; on a CPU, bfloat16 if the processor supports it natively, else float32.",
    ),
    output_option(
        "--offload",
        type=Choice(OFFLOADS),
        help="Keep on the GPU only what is in use, to save its memory. model: one component of "
        "the model at a time. sequential: one layer at a time, which saves more and is slow.",
    ),
    output_option("--vae-tiling", is_flag=True, help="Decode images in tiles to save memory."),
    output_option("--vae-slicing", is_flag=True, help="Decode images one by one to save memory."),
)
