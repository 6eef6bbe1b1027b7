"""Attribute diversity: entropy and coverage of the values of attributes in a prompt's images.

A prompt that names a value asks whether it is shown (*can it*); one that leaves an attribute open
asks whether its values vary (*does it*), after DIMCIM (Teotia et al., 2025).

Values are drawn by a judge's probabilities, and scores are means over the draws: what the true
values give on average, if the judge is right. The standard error has two parts: how the prompts
vary, and how the draws do. So the interval covers both the mean over prompts of this kind and what
the true values of these very images give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vendi_guidance.evaluation.attributes import (
    Attribute,
    AttributeJudge,
    judged,
    labelled,
)
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.evaluation.intervals import draw_parts
from vendi_guidance.scores.groups import rows_by_label

DRAWN = 50
"""Draws of the values."""

TITLES = {
    "entropy": "evenness",
    "coverage": "values shown",
    "commonest": "commonest value",
    "named_kept": "named kept",
}
"""Of the scores: evenness over the values, 0 for one value alone to 1 for all alike; the shares of
values that were generated, of the commonest value, and of images that show the value they name."""


@dataclass(frozen=True)
class AttributeDiversity:
    """One attribute in the images of one prompt.

    Attributes:
        shares: of each value, as the judge believes.
        named: the value that the prompt names, or None.
        scores: by the names of `TITLES`: `named_kept` where a value is named, else the others.
    """

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None
    scores: dict[str, float]


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images.

    Attributes:
        by_prompt: of each prompt.
        means: over prompts, by the names of `TITLES`: value, low and high of the 95% confidence
            interval, None where there are too few prompts.
        drawn: (n, draws) places of values, of all images of the batch; 0 of those of prompts that
            the attribute is not for.
    """

    attribute: Attribute
    by_prompt: list[AttributeDiversity]
    means: dict[str, tuple[float, float | None, float | None]]
    drawn: Tensor = field(default_factory=lambda: torch.empty(0), repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """As JSON values, without what was drawn; files call `by_prompt` "spreads", as they always
        did."""
        values = asdict(replace(self, drawn=torch.empty(0)))
        del values["drawn"]
        return {"spreads" if k == "by_prompt" else k: value for k, value in values.items()}


def attribute_scores(
    batch: Batch, attributes: Sequence[Attribute], judge: AttributeJudge | None
) -> list[AttributeScores]:
    """How diverse the images of each prompt are in each attribute.

    Args:
        judge: None takes labels, a person's or another model's, from the columns of
            `metadata.jsonl` with the attributes' names.

    Raises:
        ValueError: the batch has no prompts, or not those that attributes are for, or the judge
            does not return a distribution for each image.
    """
    if not attributes:
        return []
    if batch.prompts is None:
        raise ValueError("attributes are counted for each prompt: give the prompts too")
    results = []
    for attribute in attributes:
        rows = [row for row, prompt in enumerate(batch.prompts) if attribute.is_for(prompt)]
        if not rows:
            raise ValueError(
                f"attribute {attribute.name!r} is for the prompt {attribute.prompt!r}, of which "
                "there are no images"
            )
        some = batch.take(rows)
        p = labelled(some, attribute) if judge is None else judged(some, attribute, judge)
        scores, values = _scores(attribute, some.prompts or [], p)
        drawn = values.new_zeros(len(batch.prompts), values.shape[1])
        drawn[rows] = values
        results.append(replace(scores, drawn=drawn))
    return results


def draw_values(p: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(n, count) places of values, as a judge's probabilities p (n, values) have it.

    Each image shows a value in p of its draws, up to rounding: a Latin hypercube, whose means vary
    less than those of independent draws.
    """
    order = torch.rand(len(p), count, generator=generator).argsort(1)
    within = torch.rand(len(p), count, generator=generator, dtype=p.dtype)
    edges = (p / p.sum(1, keepdim=True)).cumsum(1)
    places = torch.searchsorted(edges, (order + within) / count, right=True)
    return places.clamp(max=p.shape[1] - 1)  # a sum may round to less than 1


def _scores(
    attribute: Attribute, prompts: Sequence[str], p: Tensor
) -> tuple[AttributeScores, Tensor]:
    """The scores, and the values that were drawn for each image."""
    # once, not for each part: drawing anew is no sampling without replacement, as parts are scaled
    values = draw_values(p, DRAWN, torch.Generator().manual_seed(0))
    of_prompts = _of_prompts(attribute, prompts, values)
    draws = draw_parts([prompts], [len(prompts)])
    parts = [
        _means(_of_prompts(attribute, [prompts[i] for i in rows.tolist()], values[rows]))
        for (rows,) in ([] if draws is None else draws.parts)
    ]
    means: dict[str, tuple[float, float | None, float | None]] = {}
    for name, of_draws in _means(of_prompts).items():
        value, low, high = float(of_draws.mean()), None, None
        if draws is not None and all(name in part for part in parts):
            of_parts = [float(part[name].mean()) for part in parts]
            common = float(of_draws.std())
            low, high = draws.interval(value, of_parts, is_ratio=False, common=common)
        if low is not None and high is not None:
            low, high = max(0.0, low), min(1.0, high)
        means[name] = (value, low, high)
    by_prompt = [
        AttributeDiversity(
            prompt,
            len(rows),
            tuple(p[rows].mean(0).tolist()),
            attribute.named(prompt),
            {name: float(it.mean()) for name, it in of_prompts[prompt].items()},
        )
        for prompt, rows in _rows_of(prompts)
    ]
    return AttributeScores(attribute, by_prompt, means), values


def _of_prompts(
    attribute: Attribute, prompts: Sequence[str], values: Tensor
) -> dict[str, dict[str, Tensor]]:
    """By prompt, its scores in each draw, (draws,), of values (n, draws)."""
    found = {}
    for prompt, rows in _rows_of(prompts):
        shares = F.one_hot(values[rows], len(attribute.values)).double().mean(0)
        if (named := attribute.named(prompt)) is not None:
            found[prompt] = {"named_kept": shares[:, attribute.values.index(named)]}
        else:
            found[prompt] = {
                "entropy": torch.special.entr(shares).sum(1) / log(shares.shape[1]),
                "coverage": (shares > 0).double().mean(1),
                "commonest": shares.amax(1),
            }
    return found


def _means(of_prompts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Over prompts, of each draw: (draws,) by the names of `TITLES`."""
    found = {name: [of[name] for of in of_prompts.values() if name in of] for name in TITLES}
    return {name: torch.stack(scores).mean(0) for name, scores in found.items() if scores}


def _rows_of(prompts: Sequence[str]) -> list[tuple[str, list[int]]]:
    return [(str(one), rows) for one, rows in rows_by_label(prompts, len(prompts)).items()]
