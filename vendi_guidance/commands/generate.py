"""Generate images that differ from one another, for the prompts given.

PROMPTS is one prompt, or a file of them: .txt (one a line), .jsonl (key "prompt") or .csv (column
"prompt").

\b
  vendi-guidance generate "waving hand" --images-per-prompt 8 --output waving
  vendi-guidance generate prompts.txt --model MODEL --diversity 1 --output out
  vendi-guidance generate prompts.txt --model MODEL --diversity 0 --output off

The output folder is a Hugging Face imagefolder: numbered PNG files, and metadata.jsonl with the
prompt, seed and settings of each. run.json holds the settings of the run, timings.jsonl the seconds
each image took. Image number i is made from seed + i. Settings may come from `vendi-guidance tune`:

\b
  vendi-guidance generate prompts.txt --model MODEL --settings settings.json --output tuned

MODEL is a folder that diffusers' save_pretrained wrote, or a name on the Hugging Face hub, which is
downloaded once. Any text-to-image pipeline of diffusers that takes callback_on_step_end will do;
docs/pipelines.md lists those that are tested. A model that is too large for a GPU fits with
less memory:

\b
  vendi-guidance generate prompts.txt --model stabilityai/stable-diffusion-xl-base-1.0 \\
      --variant fp16 --offload model --vae-tiling --output few-gigabytes

Each finished image is remembered with its prompt. While the next ones are denoised, guidance moves
them away from what is remembered for similar prompts, and from one another. --diversity is the
dial: 0 is the stock pipeline, 1 gives the most variety. An image then depends on the earlier ones,
not on its seed alone; with --diversity-memory call it depends on its batch and --window-in only.

Ctrl-C and SIGTERM stop after the current batch. The same command with --resume continues a run that
was stopped, killed or crashed, and makes the images that an uninterrupted run makes. Several
processes share the prompts and what is remembered:

\b
  accelerate launch --multi_gpu --num_processes 4 -m vendi_guidance generate \\
      prompts.txt --model MODEL --output many
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from math import isinf
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from vendi_guidance.checks import check_device, counted
from vendi_guidance.commands.cli import NONE, Command, Range, tell
from vendi_guidance.commands.run_options import (
    COUNT,
    PATH,
    how,
    machine_options,
    model_of,
    model_options,
    undistilled_option,
    what,
    where,
)
from vendi_guidance.guidance.memory import LASTING
from vendi_guidance.guidance.settings import PRESETS, SETTINGS, STRENGTH
from vendi_guidance.guidance.window import WINDOW
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.runner import Runner
from vendi_guidance.runs.settings_file import load_settings
from vendi_guidance.runs.setup import open_run
from vendi_guidance.runs.signals import Stop


def setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each setting of guidance; what is not given comes from the dial."""
    for name, fields_of_it in reversed(SETTINGS.items()):
        about = fields_of_it[0].metadata
        if about["command_line"]:
            command = how(
                f"--diversity-{name.replace('_', '-')}",
                type=option_type(about),
                none=about["none"],
                show_default="the dial's",
                help=" ".join(one.metadata["help"] for one in fields_of_it),
            )(command)
    return command


def option_type(about: Mapping[str, Any]) -> click.ParamType:
    """The type of the option for a setting with this metadata."""
    if about["choices"] is not None:
        return click.Choice(about["choices"])
    if about["type"] is int:
        return click.IntRange(1)
    low, high = about["range"]
    return Range(low, None if isinf(high) else high, min_open=about["above"])


COMMON = (
    *("model", "steps", "images_per_prompt", "batch_size", "seed"),
    *("strength", "settings", "output", "overwrite", "resume", "device"),
)


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@click.argument("prompts")
@model_options
@what("--images-per-prompt", type=COUNT, default=1, help="Number of images for each prompt.")
@what("--batch-size", type=COUNT, default=8, help="Number of images generated at a time.")
@what("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Seed of the first image.")
@how(
    "--diversity",
    "strength",
    type=Range(0, 1),
    show_default=str(STRENGTH),
    help="The dial: 0 is the stock pipeline, 1 the most variety.",
)
@how(
    "--settings",
    type=PATH,
    help="File that vendi-guidance tune wrote; options beside it take precedence.",
)
@how(
    "--diversity-memory",
    type=click.Choice(LASTING),
    default="session",
    help="What images avoid: session, all earlier ones; call, those of their batch and of "
    "--window-in.",
)
@how(
    "--diversity-preset",
    type=click.Choice(list(PRESETS)),
    help="Settings in place of the dial's: published is the paper's.",
)
@undistilled_option
@setting_options
@how(
    "--diversity-window",
    type=click.IntRange(1, 10**6),  # a million take terabytes
    show_default=f"{WINDOW}, or as in --window-in",
    help="Number of finished images to remember.",
)
@how("--window-in", type=PATH, help="File to read what an earlier run remembered from.")
@how("--window-out", type=PATH, help="File to write what is remembered to, at the end.")
@where("--output", type=PATH, required=True, help="Folder for the run.")
@where("--overwrite", is_flag=True, help="Replace the run in the output folder, if any.")
@where("--resume", is_flag=True, help="Continue the run in the output folder, or begin it.")
@where("--no-metadata", is_flag=True, help="Do not write prompt and settings into the PNG files.")
@machine_options
def main(**given: Any) -> None:
    given["model"] = model_of(given["model"])
    names = [field.name for field in fields(RunOptions) if field.name in given]
    named = {name: given.pop(name) for name in names}
    diversity = {
        name.removeprefix("diversity_"): None if value is NONE else value
        for name, value in given.items()
        if value is not None
    }
    if (file := diversity.pop("settings", None)) is not None:
        chosen = {"strength", "preset"} & diversity.keys()
        tuned = load_settings(file, prefix="")
        # a dial or preset that is given replaces the tuned dial
        diversity = {k: v for k, v in tuned.items() if k != "strength" or not chosen} | diversity
    options = RunOptions(**named, diversity=diversity)
    check_device(options.device)
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        group = stack.enter_context(process_group(options.device))
        stop.is_silent = not group.is_first
        run = open_run(options, group, stop, stack, tell=tell)
        total = run.plan.total
        done, quiet = run.progress.done, not group.is_first
        with tqdm(total=total, initial=done, unit="image", disable=quiet) as bar:
            for made in run.rounds():
                bar.update(made)
        if group.is_first:
            if run.progress.done == total and options.window_out is not None:
                save_window(run, options.window_out)
            click.echo(summary(run, options))
        if run.stopped_by is not None:
            raise SystemExit(128 + run.stopped_by)


def save_window(run: Runner, path: Path) -> None:
    try:
        run.window.save(path)
    except OSError as error:
        raise OSError(
            f"cannot write --window-out {path}: {error.strerror or error}; all images are safe, "
            "and --resume writes it again"
        ) from error


def summary(run: Runner, options: RunOptions) -> str:
    """What was made, for the user."""
    done, total = run.progress.done, run.plan.total
    images = counted(total, "image") if done == total else f"{done:,} of {total:,} images"
    each = f"{run.seconds / run.made:.3f} seconds each" if run.made else "nothing was left to do"
    text = f"{images} in {options.output}, {each}"
    if run.progress.skipped:
        text += f"\nskipped for NaN or infinity: {counted(run.progress.skipped, 'guidance step')}"
    if done < total:
        how = "--resume in place of --overwrite" if options.overwrite else "--resume"
        text += f"\nstopped: the same command with {how} goes on"
    return text
