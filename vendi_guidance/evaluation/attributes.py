"""Attributes, such as hair: black, brown, blond; and what judges or labels say of them."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.evaluation.batches import Batch
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


@dataclass(frozen=True)
class Attribute:
    """What may vary, and its values; of one prompt, or of all where `prompt` is None.

    Attributes:
        asked: the value that each prompt names, or None, by prompt; without it, values are looked
            for in the prompts' texts.

    Example:
        >>> Attribute("hair", ("brown", "light brown")).named("a doctor with light brown hair")
        'light brown'
    """

    name: str
    values: tuple[str, ...]
    prompt: str | None = None
    asked: Mapping[str, str | None] | None = field(default=None, repr=False, hash=False)

    @property
    def title(self) -> str:
        """Its name, and the prompt if it is for one only."""
        return self.name if self.prompt is None else f"{self.name} ({self.prompt})"

    def is_for(self, prompt: str) -> bool:
        """Whether it may vary in images of a prompt."""
        return self.prompt in (None, prompt) and (self.asked is None or prompt in self.asked)

    def named(self, prompt: str) -> str | None:
        """The value that a prompt names, as whole words in any case; the longest of several."""
        if self.asked is not None:
            return self.asked.get(prompt)
        text = prompt.casefold()
        found = [
            value
            for value in self.values
            if re.search(rf"(?<!\w){re.escape(value.casefold())}(?!\w)", text)
        ]
        return max(found, key=len, default=None)


AttributeJudge: TypeAlias = Callable[[Sequence[Image], Sequence[str], Attribute], Tensor]
"""Says which value of an attribute images show, given them and their prompts: (n, values)
probabilities, rows that sum to 1."""


def load_attributes(path: str | PathLike[str]) -> list[Attribute]:
    """Attributes from a JSON file.

    Args:
        path: `{"hair": ["black", "brown"]}`, values also as "black, brown"; or
            `{"attributes": {...}, "prompts": {"a doctor": {"gender": [...]}}}`, where the first
            hold for all prompts and the others for one each.

    Raises:
        ValueError: it is no such file.
        FileNotFoundError: there is none.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "attributes.json")
        ...     _ = path.write_text('{"hair": "black, brown"}')
        ...     load_attributes(path)
        [Attribute(name='hair', values=('black', 'brown'), prompt=None)]
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict) or not content:
        raise ValueError(f'{path} must be an object such as {{"hair": ["black", "brown"]}}')
    is_split = content.keys() <= {"attributes", "prompts"}
    of_all = content.get("attributes", {}) if is_split else content
    of_prompts = content.get("prompts", {}) if is_split else {}
    groups = [(None, of_all), *_items(of_prompts, f"{path}: prompts")]
    found = [
        Attribute(name, _values(values, f"{path}: {name}"), prompt)
        for prompt, attributes in groups
        for name, values in _items(attributes, f"{path}: {prompt or 'attributes'}")
    ]
    if not found:
        raise ValueError(f"{path} has no attributes")
    return found


def attributes_of_probe(probe: Probe, prompts: Sequence[str]) -> list[Attribute]:
    """What a probe tells, for the prompts that it knows; their captions say what they name."""
    asked = dict(zip(prompts, probe.asked(prompts), strict=True))
    known = {prompt: named for prompt, named in asked.items() if named is not None}
    return [
        Attribute(name, tuple(values), asked={prompt: one[place] for prompt, one in known.items()})
        for place, (name, values) in enumerate(probe.attributes.items(), 1)
    ]


def judged(
    batch: Batch, attribute: Attribute, judge: Any, features: Tensor | None = None
) -> Tensor:
    """(n, values) float64 probabilities, as an `AttributeJudge` gives them, of the images or of the
    features that it has of them; without a judge, by the labels in `metadata.jsonl`."""
    if judge is None:
        return _labelled(batch, attribute)
    if features is not None:
        return _checked(judge.from_features(features, attribute), attribute, len(features))
    chunks = batch.chunks()
    return torch.cat(
        [_checked(judge(*both, attribute), attribute, len(both[0])) for both in chunks]
    )


def _checked(given: Any, attribute: Attribute, n: int) -> Tensor:
    p, wanted = torch.as_tensor(given).detach().cpu().double(), (n, len(attribute.values))
    is_sum = p.shape == wanted and torch.allclose(p.sum(1), p.new_ones(n), atol=1e-3)
    if not is_sum or (p < 0).any():
        raise ValueError(
            f"the judge of {attribute.name!r} returned shape {tuple(p.shape)}: it has to "
            f"return {wanted}, probabilities of {', '.join(attribute.values)}, rows that sum to 1"
        )
    return p


def _labelled(batch: Batch, attribute: Attribute) -> Tensor:
    if not batch.rows:
        raise ValueError(f"there is no metadata.jsonl with the column {attribute.name!r}")
    for row in batch.rows:
        if row.get(attribute.name) not in attribute.values:
            raise ValueError(
                f"{row['file_name']} has the {attribute.name} {row.get(attribute.name)!r} in "
                f"metadata.jsonl: it must be one of {', '.join(attribute.values)}"
            )
    return one_hot([row[attribute.name] for row in batch.rows], attribute)


def one_hot(labels: Sequence[str], attribute: Attribute) -> Tensor:
    """(n, values) with 1 for each label."""
    places = [attribute.values.index(label) for label in labels]
    return torch.eye(len(attribute.values), dtype=torch.float64, device="cpu")[places]


def _items(given: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be an object, got {given!r:.80}")
    return list(given.items())


def _values(given: Any, where: str) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [value.strip() for value in given.split(",")]
    is_list = isinstance(given, list) and all(isinstance(it, str) and it.strip() for it in given)
    if not is_list or len({it.casefold() for it in given}) != len(given) or len(given) < 2:
        raise ValueError(f"{where} must have at least two different values, got {given!r:.80}")
    return tuple(given)


class FeatureJudge(ABC):
    """A judge that reads all attributes off the same features of an image."""

    def __call__(
        self, images: Sequence[Image], prompts: Sequence[str], attribute: Attribute
    ) -> Tensor:
        return self.from_features(self.embed(images), attribute)

    @abstractmethod
    def embed(self, images: Sequence[Image]) -> Tensor:
        """(n, d) features of n images."""

    @abstractmethod
    def from_features(self, features: Tensor, attribute: Attribute) -> Tensor:
        """(n, values) probabilities by (n, d) features."""


@dataclass(frozen=True, eq=False)
class ZeroShot(FeatureJudge):
    """A CLIP or SigLIP: the probability of each value, by its similarity with phrases of it.

    Attributes:
        images, texts: the two halves, of unit length.
    """

    images: ImageEmbedder
    texts: PromptEmbedder

    def embed(self, images: Sequence[Image]) -> Tensor:
        return self.images.embed(images)

    def from_features(self, features: Tensor, attribute: Attribute) -> Tensor:
        phrases = [
            template.format(value=value, attribute=attribute.name)
            for value in attribute.values
            for template in TEMPLATES
        ]
        normalize = torch.nn.functional.normalize
        texts = normalize(self.texts.embed(phrases), dim=-1)
        means = normalize(texts.unflatten(0, (-1, len(TEMPLATES))).mean(1), dim=-1)
        cosines = normalize(features, dim=-1) @ means.T
        return (cosines / TEMPERATURE).softmax(dim=1)


@dataclass(frozen=True, eq=False)
class ProbeJudge(FeatureJudge):
    """The demo's probe, for its own attributes."""

    probe: Probe

    def embed(self, images: Sequence[Image]) -> Tensor:
        return self.probe.embed(images)

    def from_features(self, features: Tensor, attribute: Attribute) -> Tensor:
        known = self.probe.attributes
        if set(attribute.values) != set(known.get(attribute.name, [])):
            about = "; ".join(f"{name}: {', '.join(values)}" for name, values in known.items())
            raise ValueError(
                f"the probe does not know these values of {attribute.name!r}, only {about}"
            )
        place = [*known].index(attribute.name) + 1
        seen = [look[place] for look in self.probe.looks_of(features)]
        return one_hot(seen, attribute)
