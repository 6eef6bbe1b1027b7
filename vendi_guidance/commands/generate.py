"""Generate images that differ from one another, for the prompts given.

PROMPTS is one prompt, or a file of them: .txt (one a line), .jsonl (key "prompt") or .csv (column
"prompt"). The output folder is a Hugging Face imagefolder: numbered PNG files, and metadata.jsonl
with the prompt, seed and settings of each. run.json holds the settings of the run, timings.jsonl
the seconds each image took. Image number i is made from seed + i.

\b
  vendi-guidance generate "a person waving" --model MODEL --images-per-prompt 8 --output waving
  vendi-guidance generate prompts.txt --model MODEL --diversity-preset varied --output varied
  vendi-guidance generate prompts.txt --model MODEL --diversity-scale 0 --output unguided

Each finished image is remembered with its prompt. While the next ones are denoised, guidance moves
them away from what is remembered for similar prompts, and from one another. A larger
--diversity-scale gives more variety, and in the end noise; with scale 0 this is the stock pipeline.
An image then depends on the earlier ones, not on its seed alone.

Ctrl-C and SIGTERM stop after the current batch. The same command with --resume continues a run that
was stopped, killed or crashed, and makes the images that an uninterrupted run makes. Several
processes share the prompts and what is remembered:

\b
  accelerate launch --multi_gpu --num_processes 4 -m vendi_guidance generate \\
      prompts.txt --model MODEL --output many
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from safetensors import SafetensorError
from tqdm import tqdm

from vendi_guidance.commands.cli import Command, Option, asset
from vendi_guidance.guidance.objectives import OBJECTIVES
from vendi_guidance.guidance.settings import CENTERS, PRESETS, SCHEDULES, STEP_RULES
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.runs.runner import Runner
from vendi_guidance.runs.setup import DEFAULT_WINDOW, PIPELINES, RunOptions, check_device, open_run
from vendi_guidance.runs.signals import Stop

COUNT = click.IntRange(1)
POSITIVE = click.FloatRange(0, min_open=True)

what = partial(click.option, cls=Option, group="Model and sampling")
how = partial(click.option, cls=Option, group="Diversity guidance")
setting = partial(how, show_default="the preset's")
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
    help="The type of model.",
)
@what("--steps", type=COUNT, default=25, help="Number of denoising steps.")
@what(
    "--guidance-scale",
    type=float,
    default=5.0,
    help="Scale of classifier-free guidance (CFG): how closely to follow the prompt.",
)
@what("--images-per-prompt", type=COUNT, default=1, help="Number of images for each prompt.")
@what(
    "--batch-size",
    type=COUNT,
    default=8,
    help="Number of images made at a time; they are guided away from one another.",
)
@what("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Seed of the first image.")
@how(
    "--diversity-preset",
    type=click.Choice(list(PRESETS)),
    default="standard",
    help="Source of the settings that are not given: standard keeps closest to the prompt, varied "
    "gives the most variety, published is the paper's.",
)
@setting(
    "--diversity-scale",
    type=click.FloatRange(0),
    help="Length of a nudge, in the unit of --diversity-step-rule; 0 is none.",
)
@setting(
    "--diversity-objective",
    type=click.Choice(list(OBJECTIVES)),
    help="The score to raise; conditional ones compare like prompts only.",
)
@setting("--diversity-every", type=COUNT, help="Guide at one step in so many.")
@how(
    "--diversity-window",
    type=click.IntRange(1, 10**6),  # a million take terabytes
    show_default=f"{DEFAULT_WINDOW}, or as in --window-in",
    help="Number of finished images to remember.",
)
@setting(
    "--diversity-start",
    type=click.FloatRange(0, 1),
    help="Where guidance begins, as a share of the steps.",
)
@setting("--diversity-stop", type=click.FloatRange(0, 1), help="Where it ends.")
@setting(
    "--diversity-step-rule",
    type=click.Choice(STEP_RULES),
    help="Shares of the latents' norm, all alike or shorter where little similar is remembered, or "
    "shares of the picture in the noise.",
)
@setting(
    "--diversity-schedule",
    type=click.Choice(list(SCHEDULES)),
    help="How the scale falls between start and stop.",
)
@setting(
    "--diversity-space",
    type=click.Choice(list(SPACES)),
    help="What is compared: noisy latents, or the prediction of clean ones.",
)
@setting(
    "--diversity-center",
    type=click.Choice(CENTERS),
    help="The mean to take off first: of like prompts, or of all.",
)
@setting(
    "--diversity-renoise-start",
    type=click.FloatRange(0, 1),
    help="Where noise begins to be drawn anew at every step, as a share of the steps.",
)
@setting("--diversity-renoise-stop", type=click.FloatRange(0, 1), help="Where that ends.")
@setting(
    "--diversity-renoise-shrink",
    type=click.FloatRange(0, 1),
    help="How far predictions go to the mean of like prompts' before that.",
)
@setting(
    "--diversity-cfg-start",
    type=click.FloatRange(0, 1),
    help="Until this share of the steps, --guidance-scale rests at 1.",
)
@setting("--diversity-sigma-latent", type=POSITIVE, help="Kernel bandwidth on latents.")
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
    help="File with what an earlier run remembered, to start from.",
)
@how(
    "--window-out",
    type=click.Path(path_type=Path),
    help="File to write what is remembered to, at the end.",
)
@where("--output", type=click.Path(path_type=Path), required=True, help="Folder for the run.")
@where("--overwrite", is_flag=True, help="Replace the run in the output folder.")
@where("--resume", is_flag=True, help="Continue the run in the output folder, or begin it.")
@where("--no-metadata", is_flag=True, help="Do not write prompt and settings into the PNG files.")
@where(
    "--device",
    default="cuda" if torch.cuda.is_available() else "cpu",
    help="Where to compute, such as cuda:0.",
)
@where(
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    default="float32",
    help="Precision of the model.",
)
def main(**given: Any) -> None:
    if given["model"] is None:
        raise ValueError(
            "--model is missing: give a folder that diffusers' save_pretrained wrote (the demo "
            "model is a default only inside its repository)"
        )
    diversity = {
        name.removeprefix("diversity_"): given.pop(name)
        for name in list(given)
        if name.startswith("diversity_") and name != "diversity_window"
    }
    options = RunOptions(**given, diversity=diversity)
    check_device(options.device)
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        group = stack.enter_context(process_group(options.device))
        stop.is_silent = not group.is_first
        run = open_run(options, group, stop, stack)
        total = run.plan.total
        with tqdm(
            total=total, initial=run.progress.done, unit="picture", disable=not group.is_first
        ) as bar:
            for made in run.rounds():
                bar.update(made)
        complete = run.progress.done == total
        if complete and options.window_out is not None and group.is_first:
            save_window(run, options.window_out)
        if group.is_first:
            click.echo(summary(run, options))
        if run.stopped_by is not None:
            raise SystemExit(128 + run.stopped_by)


def save_window(run: Runner, path: Path) -> None:
    try:
        run.window.save(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(
            f"cannot write --window-out {path}: {reason}; all pictures are safe, and --resume "
            "writes it again"
        ) from error


def summary(run: Runner, options: RunOptions) -> str:
    """What was made, for the user."""
    done, total = run.progress.done, run.plan.total
    pictures = f"{total} pictures" if done == total else f"{done} of {total} pictures"
    each = f"{run.seconds / run.made:.3f} seconds each" if run.made else "nothing was left to do"
    lines = [f"{pictures} in {options.output}, {each}"]
    if run.progress.skipped:
        lines.append(f"{run.progress.skipped} guidance steps were skipped: NaN or infinity")
    if done < total:
        how = "--resume in place of --overwrite" if options.overwrite else "--resume"
        lines.append(f"stopped: the same command with {how} goes on")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
