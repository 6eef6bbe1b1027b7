"""What `tune` and `compare` share: runs of one model, and the judges of what they show."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import transformers
from tqdm import tqdm

from vendi_guidance.checks import check_device, counted, nearest
from vendi_guidance.commands.attribute_options import judged, open_clip
from vendi_guidance.commands.cli import Range, tell
from vendi_guidance.commands.run_options import (
    PATH,
    machine_options,
    model_options,
    together,
    what,
    where,
)
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


def open_runs(given: dict[str, Any]) -> tuple[Sweep, dict[str, str]]:
    """The runs with these options of a command, and the names of their judges by option: those
    given, else those that suit the model."""
    transformers.utils.logging.disable_progress_bar()
    check_device(given["device"])
    asked = [given.pop(name) for name in ("image_embedder", "prompt_embedder", "faithfulness")]
    runs = Sweep(RunOptions(**given, resume=True), Stop(), tell=tell)
    folder, demo = runs.model.folder, asset("demo-sdxl")
    is_demo = demo is not None and folder.resolve() == demo.resolve()
    usual = ("pixels", f"sdxl:{folder}", "own-model") if is_demo else ("dinov2", "clip", "clip")
    image, prompt, faithfulness = (a or b for a, b in zip(asked, usual, strict=True))
    return runs, {"image_embedder": image, "prompt_embedder": prompt, "faithfulness": faithfulness}


def settings_of(runs: Sweep, names: dict[str, str], prompts: Sequence[str]) -> dict[str, Any]:
    """What runs with these prompts depend on beside the model, as JSON values."""
    options, model = runs.options, runs.model
    settings: dict[str, Any] = {
        "images_per_prompt": options.images_per_prompt,
        "prompts": len(prompts),
    }
    settings |= {"batch_size": options.batch_size, "dtype": model.options.dtype}
    return {**model.sampling.about, **names, **settings}


@contextmanager
def progress(runs: Sweep, what: str, prompts: int, total: int) -> Iterator[Any]:
    """Say what is made, as so many of `what`, and then show how far it has come; meanwhile a signal
    lets the current batch finish."""
    for remark in runs.model.remarks:
        tell(remark)
    each = counted(runs.options.images_per_prompt, "image")
    tell(f"{what} of {counted(prompts, 'prompt')} x {each}: {total:,} to generate in all")
    with runs.stop, tqdm(total=total, unit="image") as bar:
        yield bar


def open_judging(
    runs: Sweep, names: dict[str, str], prompts: Sequence[str], judges: Judges = NO_JUDGES
) -> Judging:
    """The judges with these names, of runs with these prompts.

    Args:
        judges: of what else `evaluate` scores.

    Raises:
        ValueError: there is no such judge.
        FileNotFoundError: its weights are missing.
    """
    device, faithfulness = runs.options.device, names["faithfulness"]
    kind, _, which = faithfulness.partition(":")
    judge: Any
    if kind == "clip":
        judge = open_clip(faithfulness, device)
    elif kind == "probe":
        judge = ProbeConcept(load_probe(which))
    elif faithfulness == "own-model":
        judge = OwnModel(runs, prompts)
    else:
        raise ValueError(
            "--faithfulness must be clip, clip:MODEL, own-model or probe:FOLDER, got "
            f"{faithfulness!r}{nearest(kind, ('clip', 'own-model', 'probe'))}"
        )
    of_images = open_image_embedder(names["image_embedder"], device=device)
    of_prompts = open_prompt_embedder(names["prompt_embedder"], device=device)
    return Judging(of_images, of_prompts, judge, runs.options.output / FEATURES, judges)
