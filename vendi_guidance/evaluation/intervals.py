"""Confidence intervals by subsampling: from the scores of random subsets of a batch.

With enough prompts, whole prompts are drawn: guided images of one prompt depend on one another, so
prompts are the independent units. With fewer prompts, images are drawn, the same share of each
prompt's.

Over subsamples of m of n units, the variance of a score is (n - m) / m times its variance over
fresh samples of n units; for means this is exact. The deviation of scores that grow with n is about
proportional to the score, so their intervals are computed from logarithms.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import torch
from torch import Tensor

from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.subsampling import interval, quantile, standard_error

FEWEST_PROMPTS = 8
"""With fewer prompts, images are drawn."""

FEWEST_IMAGES = 20
"""With fewer images of few prompts, there are no intervals."""

ENOUGH = f"{FEWEST_IMAGES} images, or {FEWEST_PROMPTS} prompts"
"""The smallest batch that has confidence intervals, as text."""

LARGEST_PART = 500
"""Most images of a subsample, because exact spectra of more take long."""

LEVEL = 0.95

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Subsamples:
    """Random subsets of one batch, or of several batches with the same prompts.

    Attributes:
        parts: for each subsample, the (m,) row numbers of each batch.
        unit: what was drawn, "prompts" or "pictures".
        scale: factor from the standard deviation over subsamples to the standard error.
        degrees: degrees of freedom.
        paired: whether all batches have the same prompts in each subsample.
    """

    parts: list[tuple[Tensor, ...]]
    unit: str
    scale: float
    degrees: int
    paired: bool

    def interval(
        self, value: float, of_parts: Sequence[float], *, is_ratio: bool, common: float = 0.0
    ) -> Interval | None:
        """The confidence interval of level `LEVEL` around a value.

        Args:
            value: the score of the whole batch.
            of_parts: the score of each subsample.
            is_ratio: compute the interval from logarithms; all values must be positive.
            common: a standard error (of the logarithm if `is_ratio`) that all subsamples share and
                more prompts would not reduce, such as that of an uncertain judge.

        Returns:
            Its ends; None if nothing varies.
        """
        error = math.hypot(standard_error(of_parts, self.scale, is_ratio), common)
        size = abs(math.log(of_parts[0]) if is_ratio else of_parts[0])
        if not error > 1e-9 * self.scale * max(1.0, size):
            return None
        return interval(value, quantile(LEVEL, self.degrees) * error, is_ratio)


def subsample(
    batches: Sequence[Sequence[Hashable] | None], sizes: Sequence[int], *, count: int = 50
) -> Subsamples | None:
    """Random subsets of at most half of each batch, paired by prompt if all have the same prompts.

    Args:
        batches: for each batch, the labels of its images, such as prompts; None without labels.
        sizes: for each batch, its number of images.
        count: number of subsamples.

    Returns:
        None if a batch is too small.
    """
    generator = torch.Generator().manual_seed(0)
    members = [
        rows_by_label(labels or [None] * size, size)
        for labels, size in zip(batches, sizes, strict=True)
    ]
    share = min(0.5, LARGEST_PART / max(sizes))
    if all(
        len(groups) >= FEWEST_PROMPTS and size / len(groups) * FEWEST_PROMPTS / 2 <= LARGEST_PART
        for groups, size in zip(members, sizes, strict=True)
    ):
        n = min(map(len, members))
        m = max(FEWEST_PROMPTS // 2, math.floor(share * n))
        paired = all(groups.keys() == members[0].keys() for groups in members)
        parts = [_draw_prompts(members, m, paired, generator) for _ in range(count)]
        return Subsamples(parts, "prompts", math.sqrt(m / (n - m)), n - 1, paired)
    if min(sizes) < FEWEST_IMAGES:
        return None
    parts = [
        tuple(_draw_images(groups, share, generator) for groups in members) for _ in range(count)
    ]
    return Subsamples(parts, "pictures", math.sqrt(share / (1 - share)), min(sizes) - 1, False)


def _draw_prompts(
    members: list[dict[Hashable, list[int]]], m: int, paired: bool, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """For each batch, the sorted rows of m random prompts; the same prompts if paired."""
    parts: list[Tensor] = []
    for groups in members:
        if not parts or not paired:
            labels = list(groups)
            order = torch.randperm(len(labels), generator=generator, device="cpu")
            chosen = [labels[i] for i in order[:m]]
        rows = chain(*(groups[label] for label in chosen))
        parts.append(torch.tensor(sorted(rows), device="cpu"))
    return tuple(parts)


def _draw_images(
    groups: dict[Hashable, list[int]], share: float, generator: torch.Generator
) -> Tensor:
    """A share of the rows of every group, at least one of each, in ascending order."""
    chosen: list[int] = []
    for rows in groups.values():
        # rounds up or down at random, so that the share is met on average
        rounding = float(torch.rand((), generator=generator, dtype=torch.float32, device="cpu"))
        kept = max(1, min(len(rows), math.floor(share * len(rows) + rounding)))
        order = torch.randperm(len(rows), generator=generator, device="cpu")[:kept].tolist()
        chosen += [rows[i] for i in order]
    return torch.tensor(sorted(chosen), device="cpu")
