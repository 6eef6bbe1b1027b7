"""Options of the commands that count how images spread over attributes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from vendi_guidance.commands.cli import Option
from vendi_guidance.commands.run_options import PATH, together
from vendi_guidance.evaluation.attributes import (
    Attribute,
    ProbeJudge,
    ZeroShot,
    attributes_of_probe,
    load_attributes,
)
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import ProbeLabeler
from vendi_guidance.features.prompts import open_prompt_embedder

judged = partial(click.option, cls=Option, group="Judges")

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
        help="What tells values: clip, clip:MODEL/PRETRAINED; or, of finished images, labels, "
        "columns of metadata.jsonl.",
    ),
)


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
    if file is None:
        if judge is not None:
            raise ValueError("--attribute-judge needs --attributes FILE, which says what to judge")
        if labeler is None or not prompts:
            return Judges(labels=labeler)
        attributes = attributes_of_probe(labeler.probe, prompts)
        return Judges(
            labels=labeler, attributes=attributes, attribute_judge=ProbeJudge(labeler.probe)
        )
    attributes = load_attributes(file)
    if judge is None and labeler is not None and prompts:
        own = {one.name: one for one in attributes_of_probe(labeler.probe, prompts)}
        attributes = [_as_asked(one, own.get(one.name), prompts) for one in attributes]
    opened = open_judge(judge, labeler, device)
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
