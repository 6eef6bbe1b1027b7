"""Attributes, such as hair (black, brown, blond), and how images spread over their values.

After DIMCIM (Teotia et al., 2025), prompts that name a value test whether the model can show it,
and prompts that leave an attribute open test whether its values vary. Effective values are the
exponential of the entropy, from 1 to the number of values. They grow with the number of images, so
those of a run are shown beside those of as many images with equally likely values, and of as many
of the model's training images.

A judge gives probabilities. Scores are expectations over the true values, if it is calibrated.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, inf, log
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vendi_guidance.scores.subsampling import UNLIMITED, Estimate, mean_over_prompts

ATTRIBUTES = "attributes.json"  # in a probe's folder: its attributes


@dataclass(frozen=True)
class Attribute:
    """An attribute that images may vary in, and its values.

    Attributes:
        training: the share of each value in the model's training images whose captions leave the
            attribute open, up to a factor; None if unknown.

    Example:
        >>> Attribute("hair", ("brown", "light brown")).named("a doctor with light brown hair")
        'light brown'
    """

    name: str
    values: tuple[str, ...]
    training: tuple[float, ...] | None = None

    def named(self, prompt: str) -> str | None:
        """The value that a prompt names in whole words, ignoring case; the longest if several."""
        words = {value: rf"(?<!\w){re.escape(value.casefold())}(?!\w)" for value in self.values}
        found = [value for value in words if re.search(words[value], prompt.casefold())]
        return max(found, key=len, default=None)


@dataclass(frozen=True)
class Shares:
    """One attribute in the images of one prompt: the share of each value by the judge's
    probabilities, the value that the prompt names, and the expected entropy in nats."""

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None
    entropy: float


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images; None for what no prompt or no share of training images tells."""

    attribute: Attribute
    by_prompt: list[Shares]
    effective_values: Estimate | None  # exp of the mean entropy over prompts that leave it open
    even: float | None  # the same for as many images with equally likely values
    training: float | None  # the same for as many training images
    named_kept: Estimate | None  # share that show the value named, mean over prompts that name one


def load_attributes(path: str | PathLike[str]) -> list[Attribute]:
    """Read attributes from a JSON file.

    Args:
        path: a file with `{"hair": ["black", "brown"]}`, or with the values' shares in training
            images, `{"hair": {"black": 0.8, "brown": 0.2}}`.

    Raises:
        ValueError: the file has another format.
        FileNotFoundError: the file does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "attributes.json")
        ...     _ = path.write_text('{"hair": ["black", "brown"]}')
        ...     load_attributes(path)
        [Attribute(name='hair', values=('black', 'brown'), training=None)]
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
    return [_attribute(name, given, f"{path}: {name}") for name, given in content.items()]


def attribute_scores(
    attribute: Attribute, probabilities: Mapping[str, Tensor], named: Mapping[str, str | None]
) -> AttributeScores:
    """One attribute's scores, for (n, values) probabilities of the values in each prompt's images,
    and the value that each of the prompts names, or None."""
    by_prompt = [
        Shares(prompt, len(p), tuple(p.mean(0).tolist()), named[prompt], expected_entropy(p))
        for prompt, p in probabilities.items()
    ]
    left_open = [one for one in by_prompt if one.named is None]
    counts, values = [one.count for one in left_open], attribute.values
    kept = [one.shares[values.index(one.named)] for one in by_prompt if one.named is not None]
    return AttributeScores(
        attribute,
        by_prompt,
        _exp_of_mean([one.entropy for one in left_open], (0.0, log(len(values)))),
        _of_draws(counts, [1.0] * len(values)),
        _of_draws(counts, attribute.training),
        mean_over_prompts(kept, limits=(0.0, 1.0)) if kept else None,
    )


def change(first: AttributeScores, second: AttributeScores) -> Estimate | None:
    """The ratio of two runs' effective values over the prompts of both that leave the attribute
    open; None without such prompts."""
    before, after = (
        {one.prompt: one.entropy for one in run.by_prompt if one.named is None}
        for run in (first, second)
    )
    changes = [after[prompt] - before[prompt] for prompt in before if prompt in after]
    return _exp_of_mean(changes, UNLIMITED)


def expected_entropy(p: Tensor) -> float:
    """The expected entropy, in nats, of the values of n images with probabilities p: (n, values).

    The number of images with a value has a Poisson binomial distribution.
    """
    counts = p.new_ones(p.shape[1], 1)  # the probability of 0, 1, ... images with each value
    for row in p[..., None]:
        counts = F.pad(counts * (1 - row), (0, 1)) + F.pad(counts * row, (1, 0))
    shares = torch.linspace(0, 1, len(p) + 1, dtype=p.dtype, device=p.device)
    return float((counts @ torch.special.entr(shares)).sum())


def _of_draws(counts: Sequence[int], shares: Sequence[float] | None) -> float | None:
    """Effective values of prompts with these numbers of images, with these shares of values."""
    if not counts or shares is None:
        return None
    p = torch.tensor([shares], dtype=torch.float64, device="cpu")
    entropy = cache(lambda count: expected_entropy((p / p.sum()).expand(count, -1)))
    return exp(fmean(map(entropy, counts)))


def _exp_of_mean(logarithms: Sequence[float], limits: tuple[float, float]) -> Estimate | None:
    """exp of the mean over prompts, with its interval; None without prompts."""
    if not logarithms:
        return None
    found = mean_over_prompts(logarithms, limits=limits)
    return Estimate._make(None if end is None else exp(end) for end in found)


def _attribute(name: str, given: Any, place: str) -> Attribute:
    values = list(given) if isinstance(given, (dict, list)) else []
    is_text = all(isinstance(value, str) and value.strip() for value in values)
    if len(values) < 2 or not is_text or len({v.casefold() for v in values}) < len(values):
        raise ValueError(f"{place} must have at least two different values, got {given!r:.80}")
    if isinstance(given, list):
        return Attribute(name, tuple(values))
    training = tuple(given.values())
    are_shares = all(type(share) in (int, float) and share >= 0 for share in training)
    if not are_shares or not 0 < sum(training) < inf:
        raise ValueError(f"{place} must have a share of each value, got {given!r:.80}")
    return Attribute(name, tuple(values), training)
