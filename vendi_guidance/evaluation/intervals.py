"""Confidence intervals by subsampling: from the scores of random parts of a batch.

Where there are enough prompts, whole prompts are drawn: guided images of one prompt depend on one
another, so prompts are the independent units. With fewer prompts, images are drawn, the same share
of each prompt's.

Scores of parts of m of n units have (n - m) / m times the variance of scores of n new units,
exactly so for means. Scores that grow with n vary about in proportion to it, so their intervals are
computed from logarithms.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
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
"""What confidence intervals need, in words."""

LARGEST_PART = 500
"""The most images scored at a time: exact spectra of more take long."""

LEVEL = 0.95

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Draws:
    """Random parts of one batch, or of several with the same prompts.

    Attributes:
        parts: each a tuple of row numbers, (m,) for each batch.
        unit: what is drawn, "prompts" or "pictures".
        scale: factor from the standard deviation over parts to the standard error.
        degrees: of freedom.
        paired: whether the batches' parts have the same prompts.
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
            value: of the whole batch.
            of_parts: the same of every part.
            is_ratio: compute it from logarithms; all values have to be positive then.
            common: standard error, of the logarithm if `is_ratio`, of what all parts have in
                common and more prompts would not lessen, such as a judge's doubts.

        Returns:
            Its ends; None where nothing varies.
        """
        error = math.hypot(standard_error(of_parts, self.scale, is_ratio), common)
        size = abs(math.log(of_parts[0]) if is_ratio else of_parts[0])
        if not error > 1e-9 * self.scale * max(1.0, size):
            return None
        return interval(value, quantile(LEVEL, self.degrees) * error, is_ratio)


def draw_parts(
    batches: Sequence[Sequence[Hashable] | None], sizes: Sequence[int], *, count: int = 50
) -> Draws | None:
    """Random parts, at most halves, of batches; with the same prompts if all batches have the same.

    Args:
        batches: for each batch, the labels of its images; None where they have none.
        sizes: for each batch, its number of images.
        count: how many parts.

    Returns:
        None where a batch is too small.
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
        fewest = min(map(len, members))
        drawn = max(FEWEST_PROMPTS // 2, math.floor(share * fewest))
        paired = all(groups.keys() == members[0].keys() for groups in members)
        parts = [_prompts(members, drawn, paired, generator) for _ in range(count)]
        return Draws(parts, "prompts", math.sqrt(drawn / (fewest - drawn)), fewest - 1, paired)
    if min(sizes) < FEWEST_IMAGES:
        return None
    parts = [tuple(_images(groups, share, generator) for groups in members) for _ in range(count)]
    return Draws(parts, "pictures", math.sqrt(share / (1 - share)), min(sizes) - 1, False)


def _prompts(
    members: list[dict[Hashable, list[int]]], drawn: int, paired: bool, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """For each batch the rows of some prompts, in order; of the same prompts if paired."""
    found: list[Tensor] = []
    for groups in members:
        if not found or not paired:
            labels = list(groups)
            chosen = [
                labels[i]
                for i in torch.randperm(len(labels), generator=generator, device="cpu")[:drawn]
            ]
        found.append(
            torch.tensor(sorted(row for label in chosen for row in groups[label]), device="cpu")
        )
    return tuple(found)


def _images(groups: dict[Hashable, list[int]], share: float, generator: torch.Generator) -> Tensor:
    """A share of the rows of every group, in order; at least one row of each."""
    chosen: list[int] = []
    for rows in groups.values():
        # rounds the share up or down at random
        lot = float(torch.rand((), generator=generator, dtype=torch.float32, device="cpu"))
        kept = max(1, min(len(rows), math.floor(share * len(rows) + lot)))
        order = torch.randperm(len(rows), generator=generator, device="cpu")[:kept].tolist()
        chosen += [rows[i] for i in order]
    return torch.tensor(sorted(chosen), device="cpu")
