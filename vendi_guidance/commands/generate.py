"""Generate diverse images for one prompt or for a file of prompts.

PROMPTS is a prompt, or a file of prompts: .txt (one per line), or .csv, .tsv, .json, .jsonl or
.parquet with a column "prompt", "text" or "caption".

\b
  vendi-guidance generate "waving hand" --images-per-prompt 8 --output waving
  vendi-guidance generate prompts.txt --model MODEL --diversity 1 --output out
  vendi-guidance generate prompts.txt --model MODEL --diversity 0 --output off

The output folder is a Hugging Face imagefolder: numbered PNG files, and metadata.jsonl with each
image's prompt, seed and settings. run.json records the settings of the run, timings.jsonl the
seconds and evaluations of the network per image. Image number i is generated from seed + i.

MODEL is a folder written by diffusers' save_pretrained, or the name of a model on the Hugging Face
Hub, which is downloaded once. Any text-to-image pipeline of diffusers that takes
callback_on_step_end works; docs/pipelines.md lists those that are tested. Less GPU memory is needed
with:

\b
  vendi-guidance generate prompts.txt --model stabilityai/stable-diffusion-xl-base-1.0 \\
      --variant fp16 --offload model --vae-tiling --output few-gigabytes

Each finished image is remembered with its prompt. While the next images are denoised, guidance
moves them away from remembered images of similar prompts, and from one another. The dial,
--diversity, sets how far: 0 is the stock pipeline, 1 gives the most variety. An image therefore
depends on earlier images, not on its seed alone; with --diversity-memory call it depends only on
its batch and on --window-in.

Ctrl-C and SIGTERM stop the run after the current batch. The same command with --resume continues a
run that was stopped, killed or crashed, and generates the same images as an uninterrupted run.
Several processes can share the prompts and the memory:

\b
  accelerate launch --multi_gpu --num_processes 4 -m vendi_guidance generate \\
      prompts.txt --model MODEL --output many
"""

from contextlib import ExitStack
from dataclasses import fields
from math import isinf
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from vendi_guidance.commands.cli import NONE, Choice, Command, Range, tell
from vendi_guidance.commands.run_options import (
    COUNT,
    FILE,
    FOLDER,
    PATH,
    PROTOCOLS,
    Decorator,
    guidance_option,
    output_option,
    run_options,
    sampling_option,
    together,
)
from vendi_guidance.guidance.memory import LASTING
from vendi_guidance.guidance.setting import Setting
from vendi_guidance.guidance.settings import PRESETS, SETTINGS, Rounds, adjusted, with_prefix
from vendi_guidance.guidance.window import WINDOW
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.runs.plan import RunOptions
from vendi_guidance.runs.runner import Runner
from vendi_guidance.runs.setup import open_run
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.messages import counted


def setting_option(name: str, setting: Setting) -> Decorator:
    help_text, none = setting.help, setting.none
    if none is not None and " " in none:  # a description, not a keyword
        help_text, none = f"{help_text} Automatic is {none}.", "automatic"
    return guidance_option(
        option_name(name),
        f"diversity_{name}",
        type=option_type(setting),
        none=none,
        show_default=none if setting.default is None else setting.shown,
        help=help_text,
    )


def option_name(name: str) -> str:
    return "--" + with_prefix(name).replace("_", "-")


def option_type(setting: Setting) -> click.ParamType:
    if setting.choices:
        return Choice(setting.choices)
    if setting.kind is int:
        return click.IntRange(int(setting.least))
    most = None if isinf(setting.most) else setting.most
    return Range(setting.least, most, min_open=setting.above)


SEED = click.IntRange(0, 2**63 - 1)
COMMON = (
    *("model", "steps", "images_per_prompt", "batch_size", "seed"),
    *("diversity_diversity", "protocol", "output", "overwrite", "resume", "device"),
)


@click.command(cls=Command, common=COMMON, help=__doc__)
@click.argument("prompts")
@sampling_option(
    "--images-per-prompt",
    type=COUNT,
    show_default="1, or those of --protocol",
    help="Number of images per prompt.",
)
@sampling_option(
    "--protocol", type=Choice([*PROTOCOLS]), help="Make 4 images per prompt, or 8 (sets)."
)
@sampling_option("--seed", type=SEED, default=0, help="Seed of the first image.")
@guidance_option(
    "--diversity-memory",
    type=Choice(LASTING),
    default="session",
    help="What images are moved away from. session: all remembered images. call: those of the "
    "same batch and of --window-in.",
)
@guidance_option(
    "--diversity-preset",
    type=Choice(list(PRESETS)),
    help="Named settings that replace --diversity and the defaults below. published: the paper's.",
)
@together(*[setting_option(*it) for it in SETTINGS.items() if it[1].has_option])
@guidance_option(
    "--diversity-window",
    type=click.IntRange(1, 10**6),  # a million images take terabytes
    show_default=f"{WINDOW}, or the size of --window-in",
    help="Number of finished images to remember.",
)
@guidance_option(
    "--window-in",
    type=PATH,
    help="Memory file of an earlier run to begin with; a copy is kept in OUTPUT/memory.",
)
@guidance_option("--window-out", type=FILE, help="File to save the memory to at the end.")
@output_option("--output", type=FOLDER, required=True, help="Folder for the images.")
@output_option("--overwrite", is_flag=True, help="Replace the run in the output folder.")
@output_option("--resume", is_flag=True, help="Continue the run in the output folder, or start it.")
@output_option("--no-metadata", is_flag=True, help="Keep prompt and settings out of the PNG files.")
@guidance_option(
    "--explain",
    is_flag=True,
    help="Say how the first batch would be guided, and why, and generate nothing.",
)
@run_options
def main(images_per_prompt: int | None, protocol: str | None, explain: bool, **given: Any) -> None:
    size = PROTOCOLS[protocol] if protocol else 1
    given["images_per_prompt"] = images_per_prompt or size
    if given["images_per_prompt"] % size:
        raise ValueError(
            f"--protocol {protocol} scores groups of {size} images of a prompt, and "
            f"--images-per-prompt {images_per_prompt} is no multiple: leave it out for {size}"
        )
    names = [field.name for field in fields(RunOptions) if field.name in given]
    of_run = {name: given.pop(name) for name in names}
    diversity = {
        name.removeprefix("diversity_"): None if value is NONE else value
        for name, value in given.items()
        if value is not None
    }
    options = RunOptions(**of_run, diversity=dict(diversity))
    diversity.pop("memory")
    try:
        adjusted(Rounds(), diversity, diversity.pop("preset", None), option_name)
    except TypeError as error:
        raise click.UsageError(str(error)) from None
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        group = stack.enter_context(process_group(options.device))
        stop.is_silent = not group.is_first
        run = open_run(options, group, stop, stack, tell=tell)
        if explain:
            return click.echo(run.explain())
        total, done = run.plan.total, run.progress.done
        with tqdm(total=total, initial=done, unit="image", disable=not group.is_first) as bar:
            for count in run.rounds():
                bar.update(count)
        if group.is_first:
            if run.progress.done == total and options.window_out is not None:
                save_window(run, options.window_out)
            click.echo(summary(run, options))
            if protocol is not None:
                click.echo(f"next: vendi-guidance evaluate {options.output} --protocol {protocol}")
        if run.stopped_by is not None:
            raise SystemExit(128 + run.stopped_by)
        return None


def save_window(run: Runner, path: Path) -> None:
    try:
        run.window.save(path)
    except OSError as error:
        raise OSError(
            f"cannot write --window-out {path}: {error.strerror or error}; all images are safe, "
            "and --resume writes it again"
        ) from error


def summary(run: Runner, options: RunOptions) -> str:
    """What the run generated, as text for the user."""
    done, total = run.progress.done, run.plan.total
    images = counted(total, "image") if done == total else f"{done:,} of {total:,} images"
    time = f"{run.seconds / run.made:.3f} seconds each" if run.made else "nothing was left to do"
    text = f"{images} in {options.output}, {time}"
    if run.progress.skipped:
        text += f"\nskipped for NaN or infinity: {counted(run.progress.skipped, 'guidance step')}"
    if done < total:
        option = "--resume in place of --overwrite" if options.overwrite else "--resume"
        text += f"\nstopped: run the same command with {option} to continue"
    return text
