"""Options of what images are scored by: features, attributes and the demo's probe."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from vendi_guidance.commands.cli import Option, Range
from vendi_guidance.commands.run_options import PATH, together
from vendi_guidance.evaluation.attributes import (
    Attribute,
    ProbeJudge,
    ZeroShot,
    attributes_of_probe,
    load_attributes,
)
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import ProbeLabeler
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.assets import asset

FALLBACKS = {
    "dinov2": (
        "pixels",
        "DINOv2 is not at hand, so images are compared by their pixels: scores then say how "
        "much colours and layout differ, not what is shown, and cannot be compared with "
        "scores by other embedders.",
    ),
    "clip": (
        "words",
        "CLIP is not at hand, so prompts are compared by their words: two that say the same "
        "in other words count as different.",
    ),
}
"""By the embedder that is used if none is named: what replaces it where it is not at hand, and what
that costs."""

scored = partial(click.option, cls=Option, group="Features and scores")
judged = partial(click.option, cls=Option, group="Judges")


def sigma(what: str) -> Any:
    """The option of a kernel's bandwidth."""
    return scored(
        f"--sigma-{what}",
        type=Range(0, min_open=True),
        show_default="the embedder's usual one, else the median distance",
        help=f"Bandwidth of the Gaussian kernel on {what} features.",
    )


embedding_options = together(
    scored(
        "--image-embedder",
        show_default="probe for the demo's prompts, else dinov2",
        help="Features of images: dinov2, clip:MODEL, timm:NAME, pixels, ...",
    ),
    scored(
        "--prompt-embedder",
        show_default="sdxl for the demo's prompts, else clip",
        help="Features of prompts: clip:MODEL, sentence-transformers:NAME, sdxl:FOLDER, ...",
    ),
    sigma("image"),
    sigma("prompt"),
    scored(
        "--truncation",
        type=click.IntRange(1),
        help="How many eigenvalues the truncated scores keep; without it, these are left out.",
    ),
)

attribute_options = together(
    judged(
        "--attributes",
        type=PATH,
        metavar="FILE",
        help='JSON file of what may vary, such as {"hair": ["black", "brown", "blond"]}.',
    ),
    judged(
        "--attribute-judge",
        show_default="the demo's probe for the demo, else clip",
        help="Model that classifies attribute values: clip or clip:MODEL/PRETRAINED; or, of "
        "finished images, labels, columns of metadata.jsonl.",
    ),
    judged(
        "--probe",
        type=PATH,
        default=asset("demo-probe"),
        show_default=False,
        help="Classifier of a demo model's images, for the prompts that it knows.",
    ),
)


def open_embedding(
    image: str | None,
    prompt: str | None,
    device: str,
    sigma_image: float | None,
    sigma_prompt: float | None,
) -> tuple[Embedding, list[str]]:
    """The embedders of these names, None for the usual ones, and what it costs if they are not at
    hand.

    Raises:
        ValueError: there is no such embedder.
        FileNotFoundError: the weights of one that is named are missing.
    """
    notes: list[str] = []

    def opened(open: Callable[..., Any], name: str | None, usual: str) -> Any:
        if name is not None:
            return open(name, device=device)
        try:
            return open(usual, device=device)
        except (ImportError, OSError) as error:
            fallback, note = FALLBACKS[usual]
            notes.append(note)
            click.echo(f"{note}\nTo have it: {error}", err=True)
            return open(fallback, device=device)

    of_images = opened(open_image_embedder, image, "dinov2")
    of_prompts = opened(open_prompt_embedder, prompt, "clip")
    sigmas = sigma_image, sigma_prompt
    kernel_x, kernel_t = (None if sigma is None else Gaussian(sigma) for sigma in sigmas)
    return Embedding(of_images, of_prompts, kernel_x, kernel_t), notes


def open_attributes(
    file: Path | None,
    judge: str | None,
    labeler: ProbeLabeler | None,
    device: str,
    prompts: Sequence[str] = (),
) -> Judges:
    """The judges of `evaluate` that these options and a labeler make.

    Args:
        labeler: labels images, and judges attributes where no judge is named.
        prompts: those of the images, for which a labeler's own attributes are counted where no file
            is given.

    Raises:
        ValueError: there is no such judge, or the file is no list of attributes.
        FileNotFoundError: the file or the judge's weights are missing.
    """
    own = attributes_of_probe(labeler.probe, prompts) if labeler and prompts else []
    if file is None:
        if judge is not None:
            raise ValueError("--attribute-judge needs --attributes FILE, which says what to judge")
        attributes = own
    else:
        attributes = load_attributes(file)
        if judge is None:
            known = {one.name: one for one in own}
            attributes = [_as_asked(one, known.get(one.name), prompts) for one in attributes]
    opened = open_judge(judge, labeler, device) if attributes else None
    return Judges(labels=labeler, attributes=attributes, attribute_judge=opened)


def _as_asked(given: Attribute, own: Attribute | None, prompts: Sequence[str]) -> Attribute:
    """A probe's attribute as its captions name it: "red hair" says nothing of red clothes."""
    if own is None or given.prompt is not None or {*given.values} != {*own.values}:
        return given
    said = {prompt: given.named(prompt) for prompt in prompts} | dict(own.asked or {})
    return replace(given, asked=said)


def open_judge(name: str | None, labeler: ProbeLabeler | None, device: str) -> Any:
    """What tells the values of attributes; None takes labels from the folder."""
    if name is None and labeler is not None:
        return ProbeJudge(labeler.probe)
    if name == "labels":
        return None
    name = name or "clip"
    if name.partition(":")[0] != "clip":
        raise ValueError(f"--attribute-judge must be clip, clip:MODEL or labels, got {name!r}")
    return ZeroShot(*open_clip(name, device))


def open_clip(name: str, device: str) -> tuple[ImageEmbedder, PromptEmbedder]:
    """The two embedders of a CLIP."""
    return open_image_embedder(name, device=device), open_prompt_embedder(name, device=device)
