"""Judges of attributes: a CLIP as it is, the demo's probe, and any judge calibrated by labels."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.evaluation.attributes import Attribute, AttributeJudge, judged, one_hot
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.evaluation.calibration import Calibration, calibrate
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.probe import Probe

TEMPLATES = (
    "a photo of {value} {attribute}",
    "an image with {value} {attribute}",
    "{attribute}: {value}",
    "a picture, {value} {attribute}",
)
"""Their embeddings are averaged for each value, which a single phrase would decide by chance."""

TEMPERATURE = 0.01
"""CLIP's own: cosines are divided by it."""


class ZeroShot:
    """A CLIP or SigLIP: the probability of each value, by its similarity with phrases of it.

    Args:
        images, texts: the two halves, of unit length.
    """

    def __init__(self, images: ImageEmbedder, texts: PromptEmbedder) -> None:
        self._images, self._texts = images, texts

    def __call__(
        self, images: Sequence[Image], prompts: Sequence[str], attribute: Attribute
    ) -> Tensor:
        phrases = [
            template.format(value=value, attribute=attribute.name)
            for value in attribute.values
            for template in TEMPLATES
        ]
        normalize = torch.nn.functional.normalize
        texts = normalize(self._texts.embed(phrases), dim=-1)
        means = normalize(texts.unflatten(0, (-1, len(TEMPLATES))).mean(1), dim=-1)
        cosines = normalize(self._images.embed(images), dim=-1) @ means.T
        return (cosines / TEMPERATURE).softmax(dim=1)


class ProbeJudge:
    """The demo's probe, for its own attributes."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def __call__(
        self, images: Sequence[Image], prompts: Sequence[str], attribute: Attribute
    ) -> Tensor:
        known = self._probe.attributes
        if set(attribute.values) != set(known.get(attribute.name, [])):
            about = "; ".join(f"{name}: {', '.join(values)}" for name, values in known.items())
            raise ValueError(
                f"the probe does not know these values of {attribute.name!r}, only {about}"
            )
        place = [*known].index(attribute.name) + 1
        seen = [look[place] for look in self._probe.looks(images)]
        return one_hot(seen, attribute)


class Calibrated:
    """Any judge, corrected by a few labelled images (see `evaluation.calibration`).

    Images of the kind that are evaluated, with values as frequent as there, calibrate best.

    Args:
        judge: what is corrected.
        attributes: the attributes to calibrate it for.
        labelled: images with `metadata.jsonl`, whose columns with the attributes' names have
            labels; an image may lack some.

    Raises:
        ValueError: an attribute has no column, a label that is none of its values, or labels of one
            value only.
    """

    def __init__(
        self, judge: AttributeJudge, attributes: Sequence[Attribute], labelled: Batch
    ) -> None:
        self.judge = judge
        kinds = {(one.name, one.values): one for one in attributes}
        self._found = {
            kind: calibrate(*_labelled(judge, one, attributes, labelled))
            for kind, one in kinds.items()
        }

    def __call__(
        self, images: Sequence[Image], prompts: Sequence[str], attribute: Attribute
    ) -> Tensor:
        p = torch.as_tensor(self.judge(images, prompts, attribute))
        return self.calibration(attribute)(p.detach().cpu())

    def calibration(self, attribute: Attribute) -> Calibration:
        """The correction of what the judge says of an attribute.

        Raises:
            ValueError: it was not calibrated for it.
        """
        kind = attribute.name, attribute.values
        if kind not in self._found:
            known = ", ".join(name for name, _ in self._found)
            raise ValueError(
                f"the judge is not calibrated for these values of {attribute.name!r}, only {known}"
            )
        return self._found[kind]


def _labelled(
    judge: AttributeJudge, attribute: Attribute, attributes: Sequence[Attribute], labelled: Batch
) -> tuple[Tensor, Tensor]:
    """What a judge says of the images with a label, and the labels' places among the values."""
    where = f"{labelled.name or 'the labelled images'}: column {attribute.name!r}"
    # attributes of several prompts may have a name in common, and other values
    known = [value for one in attributes if one.name == attribute.name for value in one.values]
    rows, labels = [], []
    for number, row in enumerate(labelled.rows or []):
        label = row.get(attribute.name)
        if label is not None and label not in known:
            raise ValueError(
                f"{where} of {row['file_name']} is {label!r}: it must be one of "
                f"{', '.join(attribute.values)}, or left out"
            )
        if label in attribute.values:
            rows.append(number)
            labels.append(label)
    if len(set(labels)) < 2:
        found = f"only {labels[0]!r}" if labels else "no label"
        raise ValueError(
            f"{where} of metadata.jsonl has {found}: label images of at least two of "
            f"{', '.join(attribute.values)}"
        )
    some = labelled.take(rows)
    if some.prompts is None:
        some = replace(some, prompts=[""] * len(rows))
    return judged(some, attribute, judge), one_hot(labels, attribute).argmax(1)
