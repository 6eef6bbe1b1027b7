"""Judges of attributes: a CLIP as it is, and the demo's probe."""

from collections.abc import Sequence

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.evaluation.attributes import Attribute, one_hot
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
