"""Confidence intervals by subsampling: from the scores of random subsets of the items.

Subsets have m of n independent units and are drawn without replacement. Over such subsets the
variance of a score is (n - m) / m times its variance over fresh samples of n units: for a mean this
is exact, and over all subsets its interval is that of Student's t. The deviation of scores that
grow with n is about proportional to the score, so their intervals are computed from logarithms.

Where items have labels, such as prompts, and there are enough of them, all items of a label are one
unit: guided images of one prompt depend on one another. With fewer labels, items are the units, and
the same share of each label's is drawn.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, stdev
from typing import NamedTuple

import torch
from scipy.stats import t as student
from torch import Tensor

from vendi_guidance.scores.groups import rows_by_label

FEWEST_PROMPTS = 8  # with fewer labels, items are drawn
FEWEST_IMAGES = 20  # with fewer items of few labels, there are no intervals
ENOUGH = f"{FEWEST_IMAGES} images, or {FEWEST_PROMPTS} prompts"
LARGEST_PART = 500  # most items of a subset: exact spectra of more take long

LEVEL = 0.95
UNLIMITED = (-math.inf, math.inf)


class Estimate(NamedTuple):
    """A score and the ends of its confidence interval, which are None if there is none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Subsamples:
    """Random subsets of one batch, or of several batches; no parts if a batch is too small."""

    parts: Sequence[tuple[Tensor, ...]] = ()  # for each subset, the (m,) row numbers of each batch
    unit: str | None = None  # what was drawn, "prompts" or "pictures"
    scale: float = math.nan  # from the standard deviation over subsets to the standard error
    degrees: int = 0  # degrees of freedom
    paired: bool = False  # whether all batches have the same labels in each subset

    def estimate(
        self,
        value: float,
        of_parts: Sequence[float],
        *,
        is_ratio: bool = False,
        limits: tuple[float, float] = UNLIMITED,
    ) -> Estimate:
        """A score and its confidence interval, clamped to the limits.

        `of_parts` are the scores of the subsets. There is no interval if subsets are missing, or
        nothing varies. `is_ratio` computes it from logarithms, if all scores are positive.
        """
        if not self.parts or len(of_parts) < len(self.parts):
            return Estimate(value, None, None)
        is_ratio = is_ratio and min(value, *of_parts) > 0
        compared = [math.log(score) for score in of_parts] if is_ratio else of_parts
        error = self.scale * stdev(compared)
        if not error > 1e-9 * self.scale * max(1.0, abs(compared[0])):
            return Estimate(value, None, None)
        half = float(student.ppf((1 + LEVEL) / 2, self.degrees)) * error
        low, high = value - half, value + half
        if is_ratio:
            low, high = value * math.exp(-half), value * math.exp(half)
        return Estimate(value, max(limits[0], low), min(limits[1], high))


def subsample(
    batches: Sequence[Sequence[Hashable] | None],
    sizes: Sequence[int],
    *,
    count: int = 50,
    seed: int = 0,
) -> Subsamples:
    """`count` random subsets of at most half of each batch, or three quarters of the items where
    there are few labels, and at most `LARGEST_PART` items.

    `batches` are the labels of each batch's items, such as prompts, or None; `sizes` their numbers
    of items. Paired if all have the same labels. There are no parts if a batch is too small.
    """
    generator = torch.Generator().manual_seed(seed)
    members = [
        rows_by_label(labels or [None] * size, size)
        for labels, size in zip(batches, sizes, strict=True)
    ]
    if all(len(groups) >= FEWEST_PROMPTS for groups in members):
        n = min(map(len, members))
        m = max(FEWEST_PROMPTS // 2, math.floor(min(0.5, LARGEST_PART / max(sizes)) * n))
        paired = all(groups.keys() == members[0].keys() for groups in members)
        parts = [_draw_prompts(members, m, paired, generator) for _ in range(count)]
        return Subsamples(parts, "prompts", math.sqrt(m / (n - m)), n - 1, paired)
    if min(sizes) < FEWEST_IMAGES:
        return Subsamples()
    # scores of a few images of each prompt saturate, so that those of halves vary too little
    share = min(0.5 if None in batches else 0.75, LARGEST_PART / max(sizes))
    parts = [tuple(_draw_images(it, share, generator) for it in members) for _ in range(count)]
    return Subsamples(parts, "pictures", math.sqrt(share / (1 - share)), min(sizes) - 1, False)


def mean_over_prompts(
    values: Sequence[float], *, is_ratio: bool = False, limits: tuple[float, float] = UNLIMITED
) -> Estimate:
    """The mean of one value for each prompt, and its interval; arguments as in
    `Subsamples.estimate`."""
    subsamples = subsample([range(len(values))], [len(values)])
    of_parts = [fmean(values[row] for row in rows) for (rows,) in subsamples.parts]
    return subsamples.estimate(fmean(values), of_parts, is_ratio=is_ratio, limits=limits)


def _draw_prompts(
    members: list[dict[Hashable, list[int]]], m: int, paired: bool, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """For each batch, at most `LARGEST_PART` sorted rows of m random labels, the same if paired."""
    parts: list[Tensor] = []
    for groups in members:
        if not parts or not paired:
            labels = list(groups)
            order = torch.randperm(len(labels), generator=generator, device="cpu")
            chosen = [labels[i] for i in order[:m]]
        rows = torch.tensor([*chain(*(groups[label] for label in chosen))], device="cpu")
        if len(rows) > LARGEST_PART:
            order = torch.randperm(len(rows), generator=generator, device="cpu")
            rows = rows[order[:LARGEST_PART]]
        parts.append(rows.sort().values)
    return tuple(parts)


def _draw_images(
    groups: dict[Hashable, list[int]], share: float, generator: torch.Generator
) -> Tensor:
    """A share of the rows of every label, at least one of each, in ascending order."""
    chosen: list[int] = []
    for rows in groups.values():
        # rounds up or down at random, so that the share is met on average
        rounding = float(torch.rand((), generator=generator, dtype=torch.float32, device="cpu"))
        kept = max(1, min(len(rows), math.floor(share * len(rows) + rounding)))
        order = torch.randperm(len(rows), generator=generator, device="cpu")[:kept].tolist()
        chosen += [rows[i] for i in order]
    return torch.tensor(sorted(chosen), device="cpu")
