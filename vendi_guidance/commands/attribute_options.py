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
    Calibrated,
    ProbeJudge,
    ZeroShot,
    attributes_of_probe,
    load_attributes,
)
from vendi_guidance.evaluation.batches import as_batch
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
    judged(
        "--attribute-calibration",
        type=PATH,
        metavar="FOLDER",
        help="A few labelled images to calibrate the judge by: a folder with metadata.jsonl, "
        "whose columns with the attributes' names have the labels.",
    ),
)


def open_attributes(
    file: Path | None,
    judge: str | None,
    calibration: Path | None,
    labeler: ProbeLabeler | None,
    device: str,
    known: list[Attribute] | None = None,
    prompts: Sequence[str] = (),
) -> Judges:
    """The judges of `evaluate` that these options and a labeler make.

    Args:
        labeler: labels images, and judges attributes where no judge is named.
        known: the file's attributes, where something else has read it.
        prompts: those of the images, for which a labeler's own attributes are counted where no file
            is given.

    Raises:
        ValueError: there is no such judge, the file is no list of attributes, or the labels do not
            suit it.
        FileNotFoundError: the file, the folder or the judge's weights are missing.
    """
    if file is None:
        if judge is not None or calibration is not None:
            option = "--attribute-judge" if judge is not None else "--attribute-calibration"
            raise ValueError(f"{option} needs --attributes FILE, which says what to judge")
        if labeler is None or not prompts:
            return Judges(labels=labeler)
        attributes = attributes_of_probe(labeler.probe, prompts)
        return Judges(
            labels=labeler, attributes=attributes, attribute_judge=ProbeJudge(labeler.probe)
        )
    attributes = load_attributes(file) if known is None else known
    if judge is None and labeler is not None and prompts:
        own = {one.name: one for one in attributes_of_probe(labeler.probe, prompts)}
        attributes = [_as_asked(one, own.get(one.name), prompts) for one in attributes]
    opened = open_judge(judge, labeler, device)
    if calibration is not None:
        if opened is None:
            raise ValueError(
                "--attribute-calibration corrects a judge, which --attribute-judge labels is not: "
                "give one of them"
            )
        opened = Calibrated(opened, attributes, as_batch(calibration, read_prompts=False))
    return Judges(labels=labeler, attributes=attributes, attribute_judge=opened)


def _as_asked(given: Attribute, own: Attribute | None, prompts: Sequence[str]) -> Attribute:
    """A probe's attribute as its captions name it: "red hair" says nothing of red clothes."""
    if own is None or given.prompt is not None or {*given.values} != {*own.values}:
        return given
    said = {prompt: given.named(prompt) for prompt in prompts} | dict(own.asked or ())
    return replace(given, asked=tuple(said.items()))


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
