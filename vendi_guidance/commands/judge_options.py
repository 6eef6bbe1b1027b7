"""Options of the commands that judge what they draw."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vendi_guidance.checks import nearest
from vendi_guidance.commands.attribute_options import judged, open_clip
from vendi_guidance.commands.run_options import together
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges
from vendi_guidance.evaluation.judging import Judging, ProbeConcept
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.runs.series import Series
from vendi_guidance.storage.assets import asset
from vendi_guidance.tuning.own_model import OwnModel

FEATURES = ".features"
"""Folder beside the runs."""

JUDGES = ("clip", "own-model", "own-prompt", "probe")

judge_options = together(
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
        "recognises the prompt of an image, or own-prompt, whether the most similar unguided image "
        "has the same one, which need no weights; or probe:FOLDER.",
    ),
)


def is_demo(model: Path) -> bool:
    """Whether a folder is the demo model's, which has judges of its own."""
    demo = asset("demo-sdxl")
    return demo is not None and model.resolve() == demo.resolve()


def judges_of(
    model: Path, images: str | None, prompts: str | None, faithfulness: str | None
) -> dict[str, str]:
    """The judges' names by their options: those given, else those that suit the model."""
    demo = is_demo(model)
    return {
        "image_embedder": images or ("pixels" if demo else "dinov2"),
        "prompt_embedder": prompts or (f"sdxl:{model}" if demo else "clip"),
        "faithfulness": faithfulness or ("own-model" if demo else "clip"),
    }


def open_judging(
    images: str,
    prompts: str,
    faithfulness: str,
    *,
    runs: Series,
    drawn: Sequence[str],
    judges: Judges = NO_JUDGES,
) -> Judging:
    """The judges with these names.

    Args:
        runs: that are judged.
        drawn: their prompts.
        judges: of what else `evaluate` scores.

    Raises:
        ValueError: there is no such judge.
        FileNotFoundError: its weights are missing.
    """
    device = runs.options.device
    kind, _, which = faithfulness.partition(":")
    judge: Any = None
    if kind == "clip":
        judge = open_clip(faithfulness, device)
    elif kind == "probe":
        judge = ProbeConcept(load_probe(which))
    elif faithfulness == "own-model":
        judge = OwnModel(runs, drawn)
    elif faithfulness == "own-prompt":
        if len(set(drawn)) < 2:
            raise ValueError(
                "--faithfulness own-prompt tells the images of different prompts apart, and there "
                "is one prompt: give more, or another judge"
            )
    else:
        raise ValueError(
            "--faithfulness must be clip, clip:MODEL, own-model, own-prompt or probe:FOLDER, got "
            f"{faithfulness!r}{nearest(kind, JUDGES)}"
        )
    of_images = open_image_embedder(images, device=device)
    of_prompts = open_prompt_embedder(prompts, device=device)
    return Judging(of_images, of_prompts, judge, runs.options.output / FEATURES, judges)
