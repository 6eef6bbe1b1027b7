"""How far chance reaches: scores of random parts of a batch, and intervals from them.

What is drawn is a prompt with all its pictures, where there are enough prompts: guided pictures of
one prompt depend on one another, so it is prompts that are independent. With fewer prompts,
pictures are drawn, as many of each prompt.

Parts of m of n units vary (n - m) / m times as much as n fresh units would, exactly so for means;
scores that grow with n vary about in proportion, hence logarithms for those (see `uncertainty`).
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import stdev

import torch
from scipy.stats import t as student
from torch import Tensor

from vendi_guidance.scores.functional import rows_by_label

FEWEST_PROMPTS = 8
"""With fewer prompts, pictures are drawn."""

FEWEST_PICTURES = 20
"""With fewer pictures of few prompts, nothing can be said of chance."""

LARGEST_PART = 500
"""So many pictures are scored at a time, at most: exact spectra of more take long."""

LEVEL = 0.95


@dataclass(frozen=True)
class Draws:
    """Random parts of one batch, or of several from the same prompts.

    Attributes:
        parts: each a tuple of row numbers, (m,) for each batch.
        unit: what is drawn, "prompts" or "pictures".
        scale: what the deviation over parts is to be multiplied with.
        degrees: of freedom.
        paired: whether the batches' parts are of the same prompts.
    """

    parts: list[tuple[Tensor, ...]]
    unit: str
    scale: float
    degrees: int
    paired: bool

    def reach(self, values: Sequence[float]) -> float | None:
        """Half the width of an interval of level `LEVEL`; None where the parts are all alike."""
        deviation = stdev(values)
        if not deviation > 1e-9 * max(1.0, abs(values[0])):
            return None
        return float(student.ppf((1 + LEVEL) / 2, self.degrees)) * self.scale * deviation


def draw_parts(
    batches: Sequence[Sequence[Hashable] | None],
    sizes: Sequence[int],
    *,
    count: int = 50,
    seed: int = 0,
) -> Draws | None:
    """Random parts, at most halves, of batches; the same prompts of each that has the same ones.

    Args:
        batches: of each batch, the labels of its pictures; None where they have none.
        sizes: of each batch, its number of pictures.
        count: how many parts.
        seed: of the draw.

    Returns:
        None where a batch is too small to say anything.
    """
    generator = torch.Generator().manual_seed(seed)
    members = [
        rows_by_label(labels or [None] * size, size)
        for labels, size in zip(batches, sizes, strict=True)
    ]
    by_prompt = [
        len(groups) >= FEWEST_PROMPTS and size / len(groups) * FEWEST_PROMPTS / 2 <= LARGEST_PART
        for groups, size in zip(members, sizes, strict=True)
    ]
    if all(by_prompt):
        fewest = min(map(len, members))
        share = min(0.5, LARGEST_PART / max(sizes))
        drawn = max(FEWEST_PROMPTS // 2, math.floor(share * fewest))
        paired = all(groups.keys() == members[0].keys() for groups in members)
        parts = [tuple(_prompts(members, drawn, paired, generator)) for _ in range(count)]
        return Draws(parts, "prompts", math.sqrt(drawn / (fewest - drawn)), fewest - 1, paired)
    if min(sizes) < FEWEST_PICTURES:
        return None
    share = min(0.5, LARGEST_PART / max(sizes))
    parts = [tuple(_pictures(groups, share, generator) for groups in members) for _ in range(count)]
    return Draws(parts, "pictures", math.sqrt(share / (1 - share)), min(sizes) - 1, False)


def _prompts(
    members: Sequence[dict[Hashable, list[int]]],
    drawn: int,
    paired: bool,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Of each batch the rows of some prompts, in order; the same prompts if paired."""
    chosen: list[Hashable] = []
    for groups in members:
        if not chosen or not paired:
            labels = list(groups)
            chosen = [labels[i] for i in torch.randperm(len(labels), generator=generator)[:drawn]]
        yield torch.tensor(sorted(row for label in chosen for row in groups[label]))


def _pictures(
    groups: dict[Hashable, list[int]], share: float, generator: torch.Generator
) -> Tensor:
    """That share of the rows of every group, in order; at least one."""
    chosen: list[int] = []
    for rows in groups.values():
        # what is left over of a share of a group is drawn by lot
        lot = float(torch.rand((), generator=generator))
        kept = max(1, min(len(rows), math.floor(share * len(rows) + lot)))
        order = torch.randperm(len(rows), generator=generator)[:kept].tolist()
        chosen += [rows[i] for i in order]
    return torch.tensor(sorted(chosen))
