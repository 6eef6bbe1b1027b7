"""Attribute diversity: how a prompt's images spread over the values of attributes.

A prompt that names a value asks whether it is shown (*can it*); one that leaves an attribute open
asks whether its values vary (*does it*), after DIMCIM (Teotia et al., 2025). Effective values are
the exponential of the entropy, from 1 to the number of values. Looks are the different combinations
of all attributes that a prompt leaves open. Both grow with the number of images, so a run is shown
beside as many draws from its model's training images, and from even values.

Values are drawn by a judge's probabilities, and scores are means over the draws: what the true
values give on average, if the judge is right.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import exp, prod
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from vendi_guidance.evaluation.attributes import (
    Attribute,
    AttributeJudge,
    FeatureJudge,
    judged,
)
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.evaluation.intervals import Interval, draw_parts
from vendi_guidance.scores.groups import rows_by_label

DRAWN = 50
"""Draws of the values."""

FROM_MIX = 20_000
"""Images are drawn from a mix as often as makes so many in all, or `DRAWN` times."""

LOOKS = "looks (combinations)"
MIX = "training_mix.json"

Mix: TypeAlias = Sequence[tuple[float, Mapping[str, Mapping[str, float]]]]
"""Kinds of training images: the share of each kind, and in it, by attribute, the shares of values
where captions leave it open. Within a kind, attributes are independent of one another."""


@dataclass(frozen=True)
class Shares:
    """One attribute in the images of one prompt.

    Attributes:
        count: the number of images.
        shares: of each value, as the judge believes.
        named: the value that the prompt names, or None.
    """

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images.

    Attributes:
        by_prompt: of each prompt.
        named_kept: the share of images that show the value that their prompt names, mean over
            prompts, with low and high of the 95% confidence interval, None where there are too few
            prompts. The interval covers both the mean over prompts of this kind and what the true
            values of these very images give. None if no prompt names a value.
        drawn: (n, draws) places of values, of all images of the batch; 0 of those of prompts that
            the attribute is not for.
    """

    attribute: Attribute
    by_prompt: list[Shares]
    named_kept: tuple[float, float | None, float | None] | None
    drawn: Tensor = field(repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """As JSON values, without what was drawn; named as files always did."""
        return {
            "attribute": asdict(self.attribute),
            "spreads": [asdict(one) for one in self.by_prompt],
            "means": {} if self.named_kept is None else {"named_kept": self.named_kept},
        }


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
    interval: Interval | None
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
        content = json.loads(path.read_text("utf-8"))
        mix = [(float(one["share"]), dict(one["values"])) for one in content]
        if not mix or not all(sum(p.values()) > 0 for _, values in mix for p in values.values()):
            raise ValueError("it has no shares")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        example = '[{"share": 1, "values": {"hair": {"brown": 1}}}]'
        raise ValueError(f"{path} must be a list such as {example}: {error}") from None
    return mix


def attribute_scores(
    batch: Batch,
    attributes: Sequence[Attribute],
    judge: AttributeJudge | None,
    features: Tensor | None = None,
) -> list[AttributeScores]:
    """What the images of each prompt show of each attribute.

    Args:
        judge: None takes labels, a person's or another model's, from the columns of
            `metadata.jsonl` with the attributes' names.
        features: (n, d) what the judge itself would read off the images, if that is known.

    Raises:
        ValueError: there is no image of a prompt that an attribute is for, or the judge does not
            return a distribution for each image.
    """
    if attributes and features is None and isinstance(judge, FeatureJudge):
        features = torch.cat([judge.embed(images) for images in batch.images.chunks()])
    results = []
    for attribute in attributes:
        rows = [row for row, prompt in enumerate(batch.prompts or []) if attribute.is_for(prompt)]
        if not rows:
            raise ValueError(
                f"attribute {attribute.name!r} is for the prompt {attribute.prompt!r}, of which "
                "there are no images"
            )
        some = batch.take(rows)
        p = judged(some, attribute, judge, None if features is None else features[rows])
        # once, not for each part: intervals scale parts as sampled without replacement
        values = draw_values(p, DRAWN, torch.Generator().manual_seed(0))
        drawn = values.new_zeros(len(batch.images), DRAWN)
        drawn[rows] = values
        by_prompt = [
            Shares(prompt, len(of), tuple(p[of].mean(0).tolist()), attribute.named(prompt))
            for prompt, of in _rows_of(some.prompts or [])
        ]
        kept = _named_kept(attribute, some.prompts or [], values)
        results.append(AttributeScores(attribute, by_prompt, kept, drawn))
    return results


def attribute_spreads(
    scores: Sequence[AttributeScores], prompts: Sequence[str], mix: Mix | None = None
) -> list[Spread]:
    """A row for each attribute that some prompt leaves open, then one for looks if there are two.

    Args:
        scores: with the values that were drawn for each image.
        prompts: of the n images.
        mix: of the training images, if it is known.
    """
    attributes = [one.attribute for one in scores]
    found = _counts(attributes, prompts, [one.drawn for one in scores])
    alike: dict[str, dict[str, float]] = {}
    for one in attributes:  # those of different prompts may share a name
        alike.setdefault(one.name, {}).update(dict.fromkeys(one.values, 1.0))
    even = _counts_of_mix(attributes, prompts, [(1.0, alike)])
    known = [one for one in attributes if mix and all(_knows(kind, one) for _, kind in mix)]
    training = _counts_of_mix(known, prompts, mix or [])
    if known != attributes:
        training.pop(LOOKS, None)
    most = {one.title: len(one.values) for one in attributes}
    images = max((len(rows) for _, rows in _rows_of(prompts)), default=0)
    most[LOOKS] = min(images, prod(most.values()))
    spreads = []
    for title, by_prompt in found.items():
        mean, at_most = partial(_mean, title), float(most[title])
        ends = _interval([*by_prompt], partial(mean, by_prompt))
        ends = None if ends is None else (max(1.0, ends[0]), min(at_most, ends[1]))
        trained = mean(training[title], by_prompt) if title in training else None
        value, drawn = mean(by_prompt, by_prompt), mean(even[title], by_prompt)
        spreads.append(Spread(title, at_most, by_prompt, value, ends, drawn, trained))
    return spreads


def change(first: Spread, second: Spread) -> tuple[float, Interval | None] | None:
    """The ratio of `value` of two runs and its 95% confidence interval, by the prompts of both;
    None where there are none."""
    prompts = [prompt for prompt in first.by_prompt if prompt in second.by_prompt]
    if not prompts:
        return None

    def ratio(some: Iterable[str]) -> float:
        before, after = (_mean(first.title, one.by_prompt, some) for one in (first, second))
        return after / before

    return ratio(prompts), _interval(prompts, ratio)


def draw_values(p: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(n, count) places of values, as a judge's probabilities p (n, values) have it.

    Each image shows a value in p of its draws, up to rounding: a Latin hypercube, whose means vary
    less than those of independent draws.
    """
    order = torch.rand(
        len(p), count, generator=generator, dtype=torch.float32, device="cpu"
    ).argsort(1)
    within = torch.rand(len(p), count, generator=generator, dtype=p.dtype, device="cpu")
    edges = (p / p.sum(1, keepdim=True)).cumsum(1)
    places = torch.searchsorted(edges, (order + within) / count, right=True)
    return places.clamp(max=p.shape[1] - 1)  # a sum may round to less than 1


def _named_kept(
    attribute: Attribute, prompts: Sequence[str], values: Tensor
) -> tuple[float, float | None, float | None] | None:
    """`AttributeScores.named_kept` of images whose values (n, draws) were drawn."""

    def kept(rows: Sequence[int]) -> Tensor | None:
        """(draws,) of some images."""
        some = values[rows]
        shares = [
            (some[of] == attribute.values.index(named)).double().mean(0)
            for prompt, of in _rows_of([prompts[row] for row in rows])
            if (named := attribute.named(prompt)) is not None
        ]
        return torch.stack(shares).mean(0) if shares else None

    of_all = kept(range(len(prompts)))
    if of_all is None:
        return None
    draws, value, ends = draw_parts([prompts], [len(prompts)]), float(of_all.mean()), None
    parts = [] if draws is None else [kept(rows.tolist()) for (rows,) in draws.parts]
    of_parts = [float(part.mean()) for part in parts if part is not None]
    if draws is not None and len(of_parts) == len(parts):
        doubts = float(of_all.std())
        ends = draws.interval(value, of_parts, is_ratio=False, common=doubts)
    return (value, None, None) if ends is None else (value, max(0.0, ends[0]), min(1.0, ends[1]))


def _counts_of_mix(
    attributes: Sequence[Attribute], prompts: Sequence[str], mix: Mix
) -> dict[str, dict[str, float]]:
    """`_counts` of as many images drawn from a mix."""
    if not attributes:
        return {}
    generator, draws = torch.Generator().manual_seed(0), max(DRAWN, FROM_MIX // len(prompts))

    def drawn(shares: Iterable[float]) -> Tensor:
        p = torch.tensor([*shares], dtype=torch.float64, device="cpu").expand(len(prompts), -1)
        return draw_values(p, draws, generator)

    kind, places = drawn(share for share, _ in mix)[None], []
    for one in attributes:
        of_kinds = [drawn(values[one.name].get(v, 0.0) for v in one.values) for _, values in mix]
        places.append(torch.stack(of_kinds).gather(0, kind)[0])
    return _counts(attributes, prompts, places)


def _knows(kind: Mapping[str, Mapping[str, float]], attribute: Attribute) -> bool:
    return attribute.name in kind and {*kind[attribute.name]} <= {*attribute.values}


def _counts(
    attributes: Sequence[Attribute], prompts: Sequence[str], drawn: Sequence[Tensor]
) -> dict[str, dict[str, float]]:
    """By title and prompt: entropies of open attributes, and the number of looks."""
    titles = [*(one.title for one in attributes), LOOKS]
    found: dict[str, dict[str, float]] = {title: {} for title in titles}
    for prompt, rows in _rows_of(prompts):
        place, opened = torch.zeros((), dtype=torch.long, device="cpu"), 0
        for one, values in zip(attributes, drawn, strict=True):
            if not one.is_for(prompt) or one.named(prompt) is not None:
                continue
            shares = F.one_hot(values[rows], len(one.values)).double().mean(0)
            found[one.title][prompt] = float(torch.special.entr(shares).sum(1).mean())
            place, opened = place * len(one.values) + values[rows], opened + 1
        if opened > 1:
            ordered = place.sort(dim=0).values
            found[LOOKS][prompt] = 1 + float((ordered.diff(dim=0) != 0).sum(0).double().mean())
    return {title: by_prompt for title, by_prompt in found.items() if by_prompt}


def _mean(title: str, by_prompt: Mapping[str, float], prompts: Iterable[str]) -> float:
    """Effective values, or looks, over some prompts."""
    mean = fmean(by_prompt[prompt] for prompt in prompts)
    return mean if title == LOOKS else exp(mean)


def _interval(prompts: list[str], value: Callable[[list[str]], float]) -> Interval | None:
    """Of a value of some prompts, by parts of them; None where there are too few prompts."""
    draws = draw_parts([prompts], [len(prompts)])
    if draws is None or draws.unit != "prompts":
        return None
    parts = [value([prompts[row] for row in rows.tolist()]) for (rows,) in draws.parts]
    return draws.interval(value(prompts), parts, is_ratio=True)


def _rows_of(prompts: Sequence[str]) -> list[tuple[str, list[int]]]:
    return [(str(one), rows) for one, rows in rows_by_label(prompts, len(prompts)).items()]
