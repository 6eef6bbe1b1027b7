"""Attributes, such as hair (black, brown, blond), and judges of which value an image shows."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.probe import Probe

TEMPLATES = (  # embeddings are averaged over phrases, because single ones are unreliable
    "a photo of {value} {attribute}",
    "an image with {value} {attribute}",
    "{attribute}: {value}",
    "a picture, {value} {attribute}",
)
TEMPERATURE = 0.01  # of the softmax of cosines, as in CLIP


@dataclass(frozen=True)
class Attribute:
    """An attribute that images may vary in, and its values.

    Attributes:
        prompt: the only prompt that the attribute applies to; None applies it to all prompts.
        asked: for each prompt that the attribute applies to, the value that it names, or None;
            without this mapping, values are looked up in the text of prompts.

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
        """The name, and the prompt if the attribute applies to one only."""
        return self.name if self.prompt is None else f"{self.name} ({self.prompt})"

    def is_for(self, prompt: str) -> bool:
        """Whether the attribute applies to a prompt."""
        return self.prompt in (None, prompt) and (self.asked is None or prompt in self.asked)

    def named(self, prompt: str) -> str | None:
        """The value that a prompt names in whole words, ignoring case; the longest if several."""
        if self.asked is not None:
            return self.asked.get(prompt)
        words = {value: rf"(?<!\w){re.escape(value.casefold())}(?!\w)" for value in self.values}
        found = [value for value in words if re.search(words[value], prompt.casefold())]
        return max(found, key=len, default=None)


class AttributeJudge(ABC):
    """A model that says which value of an attribute images show, from features of the images."""

    @abstractmethod
    def embed(self, images: Sequence[Image]) -> Tensor:
        """(n, d) features of n images, which serve all attributes."""

    @abstractmethod
    def probabilities(self, features: Tensor, attribute: Attribute) -> Tensor:
        """(n, values) probabilities of the attribute's values; each row sums to 1."""


@dataclass(frozen=True, eq=False)
class ZeroShot(AttributeJudge):
    """Zero-shot classification with CLIP or SigLIP: softmax over cosines of image and phrases."""

    images: ImageEmbedder
    texts: PromptEmbedder

    def embed(self, images: Sequence[Image]) -> Tensor:
        return self.images.embed(images)

    def probabilities(self, features: Tensor, attribute: Attribute) -> Tensor:
        phrases = [
            template.format(value=value, attribute=attribute.name)
            for value in attribute.values
            for template in TEMPLATES
        ]
        texts = normalize(self.texts.embed(phrases), dim=-1)
        means = normalize(texts.unflatten(0, (-1, len(TEMPLATES))).mean(1), dim=-1)
        return (normalize(features, dim=-1) @ means.T / TEMPERATURE).softmax(dim=1)


@dataclass(frozen=True, eq=False)
class ProbeJudge(AttributeJudge):
    """A judge for the attributes of a demo model, by the demo's probe."""

    probe: Probe

    def embed(self, images: Sequence[Image]) -> Tensor:
        return self.probe.embed(images)

    def probabilities(self, features: Tensor, attribute: Attribute) -> Tensor:
        known = self.probe.attributes
        if {*attribute.values} != {*known.get(attribute.name, [])}:
            about = "; ".join(f"{name}: {', '.join(values)}" for name, values in known.items())
            raise ValueError(
                f"the probe does not know these values of {attribute.name!r}, only {about}"
            )
        index = [*known].index(attribute.name) + 1  # looks begin with the concept
        looks = [attribute.values.index(look[index]) for look in self.probe.looks_of(features)]
        return one_hot(torch.tensor(looks, device="cpu"), len(attribute.values))


def load_attributes(path: str | PathLike[str]) -> list[Attribute]:
    """Read attributes from a JSON file.

    Args:
        path: a file with `{"hair": ["black", "brown"]}`, where values may also be one string,
            "black, brown"; or with `{"attributes": {...}, "prompts": {"a doctor": {...}}}`, where
            "attributes" apply to all prompts and those in "prompts" to one prompt each.

    Raises:
        ValueError: the file has another format.
        FileNotFoundError: the file does not exist.

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
    if not content.keys() <= {"attributes", "prompts"}:
        content = {"attributes": content}
    by_prompt = _items(content.get("prompts", {}), f"{path}: prompts")
    groups = [(None, content.get("attributes", {})), *by_prompt]
    found = [
        Attribute(name, _values(values, f"{path}: {name}"), prompt)
        for prompt, attributes in groups
        for name, values in _items(attributes, f"{path}: {prompt or 'attributes'}")
    ]
    if not found:
        raise ValueError(f"{path} has no attributes")
    return found


def attributes_of_probe(probe: Probe, prompts: Sequence[str]) -> list[Attribute]:
    """The attributes that a probe recognizes, for those of the prompts that it can parse."""
    parsed = zip(prompts, probe.asked(prompts), strict=True)
    known = {prompt: named for prompt, named in parsed if named is not None}
    return [
        Attribute(name, tuple(values), asked={prompt: named[i] for prompt, named in known.items()})
        for i, (name, values) in enumerate(probe.attributes.items(), 1)
    ]


def _items(given: Any, name: str) -> list[tuple[str, Any]]:
    if not isinstance(given, dict):
        raise ValueError(f"{name} must be an object, got {given!r:.80}")
    return list(given.items())


def _values(given: Any, name: str) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [value.strip() for value in given.split(",")]
    is_text = isinstance(given, list) and all(isinstance(v, str) and v.strip() for v in given)
    if not is_text or len({v.casefold() for v in given}) != len(given) or len(given) < 2:
        raise ValueError(f"{name} must have at least two different values, got {given!r:.80}")
    return tuple(given)
