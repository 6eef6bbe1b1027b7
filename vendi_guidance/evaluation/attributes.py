"""Attributes, such as hair: black, brown, blond; and what a judge or labels say of them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.evaluation.batches import Batch


@dataclass(frozen=True)
class Attribute:
    """What may vary, and its values; of one prompt, or of all where `prompt` is None.

    Attributes:
        asked: instead of `prompt`, several prompts, each with the value that it names or None;
            without it, values are looked for in the prompts' texts.

    Example:
        >>> Attribute("hair", ("brown", "light brown")).named("a doctor with light brown hair")
        'light brown'
    """

    name: str
    values: tuple[str, ...]
    prompt: str | None = None
    asked: tuple[tuple[str, str | None], ...] | None = field(default=None, repr=False)

    @cached_property
    def _asked(self) -> dict[str, str | None]:
        return dict(self.asked or ())

    def is_for(self, prompt: str) -> bool:
        """Whether it may vary in images of a prompt."""
        return self.prompt in (None, prompt) if self.asked is None else prompt in self._asked

    def named(self, prompt: str) -> str | None:
        """The value that a prompt names, as whole words in any case; the longest of several."""
        if self.asked is not None:
            return self._asked.get(prompt)
        text = prompt.casefold()
        found = [
            value
            for value in self.values
            if re.search(rf"(?<!\w){re.escape(value.casefold())}(?!\w)", text)
        ]
        return max(found, key=len, default=None)


class AttributeJudge(Protocol):
    """Says which value of an attribute images show; any function will do."""

    def __call__(
        self, images: Sequence[Image], prompts: Sequence[str], attribute: Attribute, /
    ) -> Tensor:
        """(n, values) probabilities, rows that sum to 1."""
        ...


def load_attributes(path: Path) -> list[Attribute]:
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
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
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


def judged(batch: Batch, attribute: Attribute, judge: AttributeJudge) -> Tensor:
    """(n, values) float64 probabilities, as the judge gives them."""
    parts, start = [], 0
    for images in batch.images.chunks():
        prompts = (batch.prompts or [])[start : start + len(images)]
        given = torch.as_tensor(judge(images, prompts, attribute)).detach().cpu().double()
        wanted = (len(images), len(attribute.values))
        ones = torch.ones(len(images), dtype=torch.float64)
        if (
            given.shape != wanted
            or not torch.allclose(given.sum(1), ones, atol=1e-3)
            or (given < 0).any()
        ):
            raise ValueError(
                f"the judge of {attribute.name!r} returned shape {tuple(given.shape)}: it has to "
                f"return {wanted}, probabilities of {', '.join(attribute.values)}"
            )
        parts.append(given)
        start += len(images)
    return torch.cat(parts)


def labelled(batch: Batch, attribute: Attribute) -> Tensor:
    """(n, values) by the labels in `metadata.jsonl`.

    Raises:
        ValueError: there is no such column, or it has other values.
    """
    labels = [row.get(attribute.name) for row in batch.rows or []]
    for row, label in zip(batch.rows or [], labels, strict=True):
        if label not in attribute.values:
            raise ValueError(
                f"{row['file_name']} has the {attribute.name} {label!r} in metadata.jsonl: it must "
                f"be one of {', '.join(attribute.values)}"
            )
    if not labels:
        raise ValueError(f"there is no metadata.jsonl with the column {attribute.name!r}")
    return one_hot([str(label) for label in labels], attribute)


def one_hot(labels: Sequence[str], attribute: Attribute) -> Tensor:
    """(n, values) with 1 for each label."""
    places = [attribute.values.index(label) for label in labels]
    return torch.eye(len(attribute.values), dtype=torch.float64)[places]


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
