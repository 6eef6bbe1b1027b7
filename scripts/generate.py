"""Generate pictures with an SDXL, different from one another for the prompts asked.

PROMPTS is one prompt, or a file of them: .txt (one a line), .jsonl (key "prompt") or .csv (column
"prompt"). The output is a Hugging Face imagefolder: numbered pictures, and metadata.jsonl with the
prompt, seed, seconds and settings of each. Picture number i is made from seed + i.

\b
  generate.py "waving hand" --images-per-prompt 8 --output out/waving
  generate.py assets/prompts/demo.txt --diversity-scale 0.3 --diversity-stop 0.3 --output out/with
  generate.py assets/prompts/demo.txt --diversity-scale 0 --output out/without

A finished picture is remembered with its prompt. While the next ones are denoised, every few steps
each is nudged away from what is remembered for similar prompts. A larger --diversity-scale or a
smaller --diversity-every gives more variety, and in the end noise; scale 0 is the stock pipeline.
"""

import math
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import diffusers
import torch
import transformers
from tqdm import tqdm

from cli import Command, Option, asset
from vendi_guidance import (
    SlidingWindow,
    VendiGuidance,
    VendiGuidedFluxPipeline,
    VendiGuidedPixArtAlphaPipeline,
    VendiGuidedPixArtSigmaPipeline,
    VendiGuidedSDXLPipeline,
)
from vendi_guidance.guidance import CENTERS, SCHEDULES, STEP_RULES
from vendi_guidance.guided import DiversityGuided
from vendi_guidance.objectives import OBJECTIVES
from vendi_guidance.runs import read_prompts, remove_run, save_picture
from vendi_guidance.spaces import SPACES

PIPELINES: dict[str, Any] = {
    "sdxl": VendiGuidedSDXLPipeline,
    "pixart-alpha": VendiGuidedPixArtAlphaPipeline,
    "pixart-sigma": VendiGuidedPixArtSigmaPipeline,
    "flux": VendiGuidedFluxPipeline,
}
DEFAULT_WINDOW = 300
COUNT = click.IntRange(1)
POSITIVE = click.FloatRange(0, min_open=True)

what = partial(click.option, cls=Option, group="Model and sampling")
how = partial(click.option, cls=Option, group="Diversity guidance")
where = partial(click.option, cls=Option, group="Output and machine")


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument("prompts")
@what(
    "--model",
    type=click.Path(path_type=Path),
    default=asset("demo-sdxl"),
    help="A folder that diffusers' save_pretrained wrote.",
)
@what(
    "--pipeline",
    type=click.Choice(list(PIPELINES)),
    default="sdxl",
    help="What kind of model it is.",
)
@what("--steps", type=COUNT, default=25, help="Denoising steps.")
@what(
    "--guidance-scale",
    type=float,
    default=5.0,
    help="Classifier-free: how closely to follow the prompt.",
)
@what("--images-per-prompt", type=COUNT, default=1, help="How many pictures of each.")
@what("--batch-size", type=COUNT, default=8, help="Pictures made together.")
@what("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Of the first picture.")
@how(
    "--diversity-scale",
    type=click.FloatRange(0),
    default=0.03,
    help="Length of a nudge, as a share of the latents' norm; 0 is none.",
)
@how(
    "--diversity-objective",
    type=click.Choice(list(OBJECTIVES)),
    default="conditional-rke",
    help="The score to raise; conditional ones compare like prompts only.",
)
@how("--diversity-every", type=COUNT, default=10, help="Guide at one step in so many.")
@how(
    "--diversity-window",
    type=COUNT,
    show_default=f"{DEFAULT_WINDOW}, or as in --window-in",
    help="How many finished pictures to remember.",
)
@how(
    "--diversity-start",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Where guidance begins, as a share of the steps.",
)
@how("--diversity-stop", type=click.FloatRange(0, 1), default=1.0, help="Where it ends.")
@how(
    "--diversity-step-rule",
    type=click.Choice(STEP_RULES),
    default="normalized",
    help="Nudges of equal length, or shorter where little similar is remembered.",
)
@how(
    "--diversity-schedule",
    type=click.Choice(list(SCHEDULES)),
    default="constant",
    help="How the scale falls between start and stop.",
)
@how(
    "--diversity-space",
    type=click.Choice(list(SPACES)),
    default="latent",
    help="What is compared: noisy latents, or the prediction of clean ones.",
)
@how(
    "--diversity-center",
    type=click.Choice(CENTERS),
    show_default="none",
    help="The mean to take off first: of like prompts, or of all.",
)
@how(
    "--diversity-renoise",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="After stop, the share of an ancestral step's noise drawn anew.",
)
@how("--diversity-sigma-latent", type=POSITIVE, default=0.8, help="Kernel bandwidth on latents.")
@how(
    "--diversity-sigma-prompt",
    type=POSITIVE,
    show_default="0.3, or found",
    help="Kernel bandwidth on prompts.",
)
@how(
    "--diversity-truncation",
    type=COUNT,
    show_default="none",
    help="How many eigenvalues the two vendi objectives keep.",
)
@how(
    "--window-in",
    type=click.Path(path_type=Path),
    help="Start with what an earlier run remembered.",
)
@how("--window-out", type=click.Path(path_type=Path), help="Save what is remembered.")
@where("--output", type=click.Path(path_type=Path), required=True, help="The run's folder.")
@where("--overwrite", is_flag=True, help="Replace the run that lies there.")
@where("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="Such as cuda:0.")
@where("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32")
def main(
    prompts: str,
    model: Path,
    pipeline: str,
    steps: int,
    guidance_scale: float,
    images_per_prompt: int,
    batch_size: int,
    seed: int,
    diversity_window: int | None,
    window_in: Path | None,
    window_out: Path | None,
    output: Path,
    overwrite: bool,
    device: str,
    dtype: str,
    **diversity: Any,
) -> None:
    if not math.isfinite(guidance_scale):
        raise ValueError(f"guidance-scale must be a finite number, got {guidance_scale}")
    check_device(device)
    check_model(model)
    check_output(output, overwrite)
    if window_out is not None and not window_out.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder for --window-out {window_out}: create it")
    items = [prompt for prompt in read_prompts(prompts) for _ in range(images_per_prompt)]
    guidance = VendiGuidance(
        window=open_window(window_in, diversity_window, device),
        prompt_input=PIPELINES[pipeline].prompt_input,
        record=window_out is not None,
        **{name.removeprefix("diversity_"): value for name, value in diversity.items()},
    )
    pipe = load_pipeline(pipeline, model, dtype, device)
    pipe.guidance = guidance
    settings = {
        "model": str(model),
        "pipeline": pipeline,
        "steps": steps,
        "guidance_scale": guidance_scale,
        "batch_size": batch_size,
        "dtype": dtype,
        "diversity_window": guidance.window.size,
        **diversity,
    }
    seconds = generate(pipe, items, batch_size, seed, steps, guidance_scale, output, settings)
    if window_out is not None:
        guidance.window.save(window_out)
    click.echo(f"{len(items)} pictures in {output}, {seconds / len(items):.3f} seconds each")
    if guidance.skipped:
        click.echo(f"{guidance.skipped} guidance steps were skipped: NaN or infinity")


def generate(
    pipe: DiversityGuided,
    items: list[str],
    batch_size: int,
    seed: int,
    steps: int,
    guidance_scale: float,
    output: Path,
    settings: dict[str, Any],
) -> float:
    """Make and save one picture for each of `items`, in order; returns the seconds it took."""
    total = 0.0
    with tqdm(total=len(items), unit="picture") as progress:
        for first in range(0, len(items), batch_size):
            batch = items[first : first + batch_size]
            seeds = range(seed + first, seed + first + len(batch))
            started = perf_counter()
            images = pipe(
                batch,
                num_inference_steps=steps,
                guidance_scale=guidance_scale,
                # on the CPU, so that a seed means the same noise on every device
                generator=[torch.Generator("cpu").manual_seed(number) for number in seeds],
            ).images
            elapsed = perf_counter() - started
            total += elapsed
            if first == 0:  # only now is it sure that something takes the old run's place
                output.mkdir(parents=True, exist_ok=True)
                remove_run(output)
            for offset, (prompt, image) in enumerate(zip(batch, images, strict=True)):
                row = {
                    "prompt": prompt,
                    "seed": seeds[offset],
                    "seconds": round(elapsed / len(batch), 4),
                }
                save_picture(output, first + offset, image, row | settings)
            progress.update(len(batch))
    return total


def check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here: {reason}") from None


def check_model(model: Path) -> None:
    if not (model / "model_index.json").is_file():
        raise FileNotFoundError(
            f"there is no model in {model}: it has no model_index.json; give a folder that "
            "diffusers' save_pretrained wrote"
        )


def check_output(output: Path, overwrite: bool) -> None:
    if output.exists() and not output.is_dir():
        raise FileExistsError(f"--output {output} is a file: name a folder")
    if not overwrite and output.is_dir() and any(output.iterdir()):
        raise FileExistsError(
            f"--output {output} is not empty: name another folder, or replace the run in it with "
            "--overwrite"
        )


def open_window(path: Path | None, size: int | None, device: str) -> SlidingWindow:
    if path is None:
        return SlidingWindow(size or DEFAULT_WINDOW)
    window = SlidingWindow.load(path, device)
    if size is not None:
        window.resize(size)
    return window


def load_pipeline(kind: str, model: Path, dtype: str, device: str) -> DiversityGuided:
    """The model on its device, without progress bars of its own."""
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    pipe = (
        PIPELINES[kind]
        .from_pretrained(model, dtype=getattr(torch, dtype), use_safetensors=True)
        .to(device)
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


if __name__ == "__main__":
    main()
