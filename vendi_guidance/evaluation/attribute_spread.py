"""How many values of each open attribute a prompt's images show, and how many combinations: of a
run, of its model's training images, and of even draws, all for the same number of images.

A value of an attribute counts as in `attribute_diversity`: effective values are the exponential of
the entropy, from 1 to the number of values. Looks are the different combinations of all attributes
that the prompt leaves open.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, prod
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.evaluation.attribute_diversity import (
    DRAWN,
    AttributeScores,
    draw_values,
)
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.intervals import draw_parts
from vendi_guidance.scores.groups import rows_by_label

FROM_MIX = 20_000
"""Images are drawn from a mix as often as makes so many in all, or `DRAWN` times."""

LOOKS = "looks (combinations)"
MIX = "training_mix.json"

Mix = Sequence[tuple[float, Mapping[str, Mapping[str, float]]]]
"""Kinds of training images: the share of each kind, and in it, by attribute, the shares of values
where captions leave it open. Within a kind, attributes are independent of one another."""

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Spread:
    """How many values of an attribute a prompt's images show, or how many looks, mean over prompts.

    Attributes:
        title: of the attribute, or `LOOKS`.
        most: the number of values; of looks, the most that so many images can show.
        by_prompt: entropies in nats, or looks, of the prompts that leave the attribute open.
        value: the effective number of values, or looks.
        interval: the 95% confidence interval of `value`, for as many new prompts.
        even, training: what as many draws show from even values, and from the training images
            where these are known.
    """

    title: str
    most: float
    by_prompt: dict[str, float]
    value: float
    interval: Interval
    even: float
    training: float | None


def read_mix(folder: Path) -> Mix | None:
    """The mix of the training images that a probe's folder tells of; None if it does not.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / MIX
    if not path.is_file():
        return None
    try:
        mix = [
            (float(one["share"]), dict(one["values"]))
            for one in json.loads(path.read_text("utf-8"))
        ]
        if not mix or not all(sum(p.values()) > 0 for _, values in mix for p in values.values()):
            raise ValueError("it has no shares")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        example = '[{"share": 1, "values": {"hair": {"brown": 1}}}]'
        raise ValueError(f"{path} must be a list such as {example}: {error}") from None
    return mix


def attribute_spreads(
    scores: Sequence[AttributeScores], prompts: Sequence[str], mix: Mix | None = None
) -> list[Spread]:
    """A row for each attribute that some prompt leaves open, then one for looks if there are two.

    Args:
        scores: with the values that were drawn for each image, of `attribute_scores`.
        prompts: of the n images.
        mix: of the training images, if it is known.
    """
    attributes = [one.attribute for one in scores]
    found = _counts(attributes, prompts, [one.drawn for one in scores])
    uniform = [(1.0, {one.name: dict.fromkeys(one.values, 1.0) for one in attributes})]
    even = _counts(attributes, prompts, draw_mix(uniform, attributes, len(prompts)))
    known = [one for one in attributes if mix and all(_knows(kind, one) for _, kind in mix)]
    training = _counts(known, prompts, draw_mix(mix or [], known, len(prompts)))
    if len(known) < len(attributes):
        training.pop(LOOKS, None)
    most = {one.title: float(len(one.values)) for one in attributes}
    rows = []
    for title, by_prompt in found.items():
        mean = partial(_mean, title)
        at_most = most.get(title) or _most_looks(attributes, prompts)
        low, high = _interval(by_prompt, mean) or (None, None)
        ends = None if low is None or high is None else (max(1.0, low), min(at_most, high))
        trained = mean(training[title]) if title in training else None
        rows.append(
            Spread(title, at_most, by_prompt, mean(by_prompt), ends, mean(even[title]), trained)
        )
    return rows


def change(first: Spread, second: Spread) -> tuple[float, Interval] | None:
    """The ratio of `value` of two runs and its 95% confidence interval, by the prompts of both;
    None where there are none."""
    later = second.by_prompt
    pairs = {prompt: (n, later[prompt]) for prompt, n in first.by_prompt.items() if prompt in later}
    if not pairs:
        return None

    def ratio(some: Mapping[str, tuple[float, float]]) -> float:
        before, after = ({prompt: pair[i] for prompt, pair in some.items()} for i in (0, 1))
        return _mean(first.title, after) / _mean(first.title, before)

    return ratio(pairs), _interval(pairs, ratio)


def draw_mix(mix: Mix, attributes: Sequence[Attribute], count: int) -> list[Tensor]:
    """For each attribute the places of values, (count, draws), of images drawn from a mix."""
    if not attributes:
        return []
    generator, draws = torch.Generator().manual_seed(0), max(DRAWN, FROM_MIX // count)

    def drawn(shares: Sequence[float]) -> Tensor:
        p = torch.tensor(shares, dtype=torch.float64).expand(count, -1)
        return draw_values(p, draws, generator)

    kind = drawn([share for share, _ in mix])[None]
    of_kinds = (
        torch.stack(
            [drawn([values[one.name].get(v, 0.0) for v in one.values]) for _, values in mix]
        )
        for one in attributes
    )
    return [places.gather(0, kind)[0] for places in of_kinds]


def _knows(kind: Mapping[str, Mapping[str, float]], attribute: Attribute) -> bool:
    return {*kind.get(attribute.name, ())} <= {*attribute.values} and attribute.name in kind


def _counts(
    attributes: Sequence[Attribute], prompts: Sequence[str], drawn: Sequence[Tensor]
) -> dict[str, dict[str, float]]:
    """By title and prompt: entropies of open attributes, and the number of looks."""
    found: dict[str, dict[str, float]] = {
        title: {} for title in [*(one.title for one in attributes), LOOKS]
    }
    for prompt, rows in rows_by_label(prompts, len(prompts)).items():
        place, opened = torch.zeros((), dtype=torch.long), 0
        for one, values in zip(attributes, drawn, strict=True):
            if not one.is_for(str(prompt)) or one.named(str(prompt)) is not None:
                continue
            shares = torch.nn.functional.one_hot(values[rows], len(one.values)).double().mean(0)
            entropy = torch.special.entr(shares).sum(1).mean()
            found[one.title][str(prompt)] = float(entropy)
            place, opened = place * len(one.values) + values[rows], opened + 1
        if opened > 1:
            ordered = place.sort(dim=0).values
            found[LOOKS][str(prompt)] = 1 + float((ordered.diff(dim=0) != 0).sum(0).double().mean())
    return {title: by_prompt for title, by_prompt in found.items() if by_prompt}


def _most_looks(attributes: Sequence[Attribute], prompts: Sequence[str]) -> float:
    """The most that a prompt's images can show."""
    images = max(len(rows) for rows in rows_by_label(prompts, len(prompts)).values())
    return float(min(images, prod(len(one.values) for one in attributes)))


def _mean(title: str, by_prompt: Mapping[str, float]) -> float:
    mean = fmean(by_prompt.values())
    return mean if title == LOOKS else exp(mean)


def _interval(by_prompt: dict[str, Any], value: Callable[[Mapping[str, Any]], float]) -> Interval:
    """Of a value of some prompts, by parts of them; None where there are too few prompts."""
    prompts = [*by_prompt]
    draws = draw_parts([prompts], [len(prompts)])
    if draws is None or draws.unit != "prompts":
        return None
    parts = [
        value({prompts[i]: by_prompt[prompts[i]] for i in rows.tolist()}) for (rows,) in draws.parts
    ]
    low, high = draws.interval(value(by_prompt), parts, is_ratio=True)
    return None if low is None or high is None else (low, high)
