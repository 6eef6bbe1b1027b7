"""Options and setup of `compare`: runs of one model, and their judges."""

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
    output_option,
    sampling_option,
    together,
)
from vendi_guidance.commands.scoring_options import judge_option, open_clip
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges
from vendi_guidance.evaluation.judging import Judging, ProbeConcept
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.signals import Stop
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.assets import asset

SEED = click.IntRange(0, 2**62)
FEATURES = ".features"
"""Name of the folder of cached features, next to the runs."""

judged_run_options = together(
    click.argument("prompts"),
    model_options,
    sampling_option(
        "--images-per-prompt", type=click.IntRange(2), default=8, help="Images per prompt."
    ),
    sampling_option("--seed", type=SEED, default=0, help="Seed of the first image."),
    judge_option(
        "--image-embedder",
        show_default="pixels for the demo model, else dinov2",
        help="Image features that diversity is scored on, named as in evaluate.",
    ),
    judge_option(
        "--prompt-embedder",
        show_default="the demo model's, else clip",
        help="Prompt features, named as in evaluate.",
    ),
    judge_option(
        "--faithfulness",
        show_default="the demo's probe for the demo model, else clip",
        help="What scores faithfulness: clip or clip:MODEL/PRETRAINED, by CLIPScore; or "
        "probe:FOLDER.",
    ),
    judge_option(
        "--keep",
        type=Range(0, 1, min_open=True),
        default=0.98,
        help="Minimum faithfulness, as a share of the unguided images'.",
    ),
    output_option("--output", type=PATH, required=True, help="Folder for all runs and results."),
    machine_options,
)


def open_judged_runs(
    given: dict[str, Any], prompts: Sequence[str], judges: Judges = NO_JUDGES
) -> tuple[Sweep, Judging, dict[str, Any]]:
    """Set up the runs of a command and their judges.

    Args:
        given: the values of `judged_run_options`, except those of the command itself.
        prompts: of the runs.
        judges: of the other scores of `evaluate`.

    Returns:
        The runs, what judges them, and the settings of both as JSON values, without the model.

    Raises:
        ValueError: there is no such judge.
        FileNotFoundError: a judge's weights are missing.
    """
    transformers.utils.logging.disable_progress_bar()
    check_device(given["device"])
    image, prompt = given.pop("image_embedder"), given.pop("prompt_embedder")
    faithfulness = given.pop("faithfulness")
    runs = Sweep(RunOptions(**given, resume=True), Stop(), tell=tell)
    options, model, demo = runs.options, runs.model, asset("demo-sdxl")
    is_demo = demo is not None and model.folder.resolve() == demo.resolve()
    image = image or ("pixels" if is_demo else "dinov2")
    prompt = prompt or (f"sdxl:{model.folder}" if is_demo else "clip")
    faithfulness = faithfulness or (f"probe:{asset('demo-probe')}" if is_demo else "clip")
    kind, _, place = faithfulness.partition(":")
    judge: Any
    if kind == "clip":
        judge = open_clip(faithfulness, options.device)
    elif kind == "probe":
        judge = ProbeConcept(load_probe(place))
    else:
        raise ValueError(
            "--faithfulness must be clip, clip:MODEL or probe:FOLDER, got "
            f"{faithfulness!r}{nearest(kind, ('clip', 'probe'))}"
        )
    images = open_image_embedder(image, device=options.device)
    texts = open_prompt_embedder(prompt, device=options.device)
    judging = Judging(images, texts, judge, options.output / FEATURES, judges)
    settings = {
        **model.sampling.about,
        "image_embedder": image,
        "prompt_embedder": prompt,
        "faithfulness": faithfulness,
        "images_per_prompt": options.images_per_prompt,
        "prompts": len(prompts),
        "batch_size": options.batch_size,
        "dtype": model.options.dtype,
    }
    return runs, judging, settings


@contextmanager
def progress(runs: Sweep, count: int, prompts: int) -> Iterator[Any]:
    """Announce `count` runs of `prompts` prompts each, and show a progress bar for their images; a
    signal meanwhile lets the current batch finish."""
    for remark in runs.model.remarks:
        tell(remark)
    each = runs.options.images_per_prompt
    total = count * prompts * each
    images = f"{counted(prompts, 'prompt')} x {counted(each, 'image')}"
    tell(f"{counted(count, 'run')} of {images}: {total:,} in all")
    with runs.stop, tqdm(total=total, unit="image") as bar:
        runs.on_images = bar.update
        yield bar
