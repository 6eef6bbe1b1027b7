"""What `tune` and `compare` share: runs of one model, and the judges of what they show."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import transformers
from tqdm import tqdm

from vendi_guidance.checks import check_device, counted, nearest
from vendi_guidance.commands.cli import Range, tell
from vendi_guidance.commands.run_options import (
    PATH,
    machine_options,
    model_options,
    together,
    what,
    where,
)
from vendi_guidance.commands.scoring_options import judged, open_clip
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges
from vendi_guidance.evaluation.judging import Judging, ProbeConcept
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.signals import Stop
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.assets import asset
from vendi_guidance.tuning.own_model import OwnModel

FEATURES = ".features"
"""Folder beside the runs."""

judged_run_options = together(
    click.argument("prompts"),
    model_options,
    what("--images-per-prompt", type=click.IntRange(2), default=8, help="Images of each prompt."),
    what("--seed", type=click.IntRange(0, 2**62), default=0, help="Seed of the first image."),
    judged(
        "--image-embedder",
        show_default="pixels for the demo model, else dinov2",
        help="Features in which diversity is scored, as of evaluate.",
    ),
    judged(
        "--prompt-embedder",
        show_default="the demo model's, else clip",
        help="Features of prompts, as of evaluate.",
    ),
    judged(
        "--faithfulness",
        show_default="own-model for the demo model, else clip",
        help="clip or clip:MODEL/PRETRAINED, their CLIPScore; own-model, whether the model itself "
        "recognises the prompt of an image, which needs no weights; or probe:FOLDER.",
    ),
    judged(
        "--keep",
        type=Range(0, 1, min_open=True),
        default=0.98,
        help="Least faithfulness, as a share of the unguided images'.",
    ),
    where("--output", type=PATH, required=True, help="Folder for all runs and what they show."),
    machine_options,
)


def open_judged_runs(
    given: dict[str, Any], prompts: Sequence[str], judges: Judges = NO_JUDGES
) -> tuple[Sweep, Judging, dict[str, Any]]:
    """The runs with these options of a command, what judges them, and what both depend on beside
    the model, as JSON values.

    Args:
        judges: of what else `evaluate` scores.

    Raises:
        ValueError: there is no such judge.
        FileNotFoundError: its weights are missing.
    """
    transformers.utils.logging.disable_progress_bar()
    check_device(given["device"])
    asked = {
        name: given.pop(name) for name in ("image_embedder", "prompt_embedder", "faithfulness")
    }
    runs = Sweep(RunOptions(**given, resume=True), Stop(), tell=tell)
    options, model, demo = runs.options, runs.model, asset("demo-sdxl")
    is_demo = demo is not None and model.folder.resolve() == demo.resolve()
    usual = ("dinov2", "clip", "clip")
    if is_demo:
        usual = ("pixels", f"sdxl:{model.folder}", "own-model")
    names = {what: name or other for (what, name), other in zip(asked.items(), usual, strict=True)}
    image, prompt, faithfulness = names.values()
    kind, _, which = faithfulness.partition(":")
    judge: Any
    if kind == "clip":
        judge = open_clip(faithfulness, options.device)
    elif kind == "probe":
        judge = ProbeConcept(load_probe(which))
    elif faithfulness == "own-model":
        judge = OwnModel(runs, prompts)
    else:
        raise ValueError(
            "--faithfulness must be clip, clip:MODEL, own-model or probe:FOLDER, got "
            f"{faithfulness!r}{nearest(kind, ('clip', 'own-model', 'probe'))}"
        )
    of_images = open_image_embedder(image, device=options.device)
    of_prompts = open_prompt_embedder(prompt, device=options.device)
    judging = Judging(of_images, of_prompts, judge, options.output / FEATURES, judges)
    about: dict[str, Any] = {"images_per_prompt": options.images_per_prompt}
    about |= {"prompts": len(prompts), "batch_size": options.batch_size}
    about["dtype"] = model.options.dtype
    return runs, judging, {**model.sampling.about, **names, **about}


@contextmanager
def progress(runs: Sweep, count: int, prompts: int) -> Iterator[Any]:
    """Say how many runs are made, and then show how far they have come; meanwhile a signal lets the
    current batch finish."""
    for remark in runs.model.remarks:
        tell(remark)
    each = runs.options.images_per_prompt
    total = count * prompts * each
    images = f"{counted(prompts, 'prompt')} x {counted(each, 'image')}"
    tell(f"{counted(count, 'run')} of {images}: {total:,} in all")
    with runs.stop, tqdm(total=total, unit="image") as bar:
        runs.on_images = bar.update
        yield bar
