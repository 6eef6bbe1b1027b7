"""Scores against the number of items, as in figures 1 and 3-5 of Ospanov & Farnia (UAI 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.scores.intervals import Score, Subsets
from vendi_guidance.scores.subsampling import quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 20  # items in the smallest subset by default


@dataclass(frozen=True)
class Convergence:
    """The score of random subsets against their size.

    Attributes:
        sizes: (s,) numbers of items, increasing.
        scores, mean: (s, repeats) and their (s,) means, float64; subsets of a repeat are nested.
        low, high: (s,) band that contains a share `level` of the scores of as many new items. It is
            corrected for subsets varying less than new items, at n from the largest size below n.
        level: of the band.
    """

    sizes: Tensor
    scores: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    level: float

    def plot(self, ax: "Axes | None" = None, label: str | None = None) -> "Axes":
        """Plots the mean, with this label, and the band on ax or new axes; needs matplotlib."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
            ax.set(xlabel="items", ylabel="score")
        (line,) = ax.plot(self.sizes, self.mean, label=label)
        color = line.get_color()
        ax.fill_between(self.sizes, self.low, self.high, color=color, alpha=0.2, linewidth=0)
        return ax


def convergence(
    score: Score,
    *arguments: Any,
    sizes: Sequence[int] | None = None,
    repeats: int = 5,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Convergence:
    """A score of random subsets of increasing size, which shows if it has converged at n items.

    Args:
        score, arguments, options: as in `score_interval`.
        sizes: subset sizes from 1 to n, at least one of them below n; None is eight sizes from
            max(20, n/64) to n, spaced geometrically.
        repeats, seed: number of random orders in which items are added, >= 3, and their seed.
        level: of the band, 0 < level < 1.

    Raises:
        ValueError: sizes, repeats or level is out of range; there are fewer than 40 items and no
            sizes; items are streams, have weights or differ in n; or the score rejects them.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, convergence, rke
        >>> result = convergence(rke, torch.eye(8), Cosine(), sizes=[2, 4, 8])
        >>> [round(mean, 3) for mean in result.mean.tolist()]
        [2.0, 4.0, 8.0]
    """
    check_count("repeats", repeats, 3)
    t = quantile(level, repeats - 1)
    subsets = Subsets(score, arguments, options)
    n = subsets.n
    given = _eight_sizes(n) if sizes is None else sorted(set(sizes))
    sizes = [int(size) for size in given]
    if not sizes or sizes != given or not 1 <= sizes[0] < n or sizes[-1] > n:
        raise ValueError(
            f"sizes must be whole numbers from 1 to n = {n}, one of them below n, got {given}"
        )

    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(n, generator=generator, device="cpu") for _ in range(repeats)]
    of_all = [subsets(orders[0])] if sizes[-1] == n else []  # the same in every repeat
    below = [size for size in sizes if size < n]
    repeated = [[subsets(order[:size]) for size in below] + of_all for order in orders]
    scores = torch.tensor(repeated, dtype=torch.float64, device="cpu").T
    mean, deviation = scores.mean(dim=1), scores.std(dim=1)
    shares = torch.tensor(sizes, dtype=torch.float64, device="cpu") / n
    if sizes[-1] == n:
        # as for a mean, whose deviation is proportional to 1 / sqrt(number of items)
        deviation[-1] = deviation[-2] * shares[-2].sqrt()
        shares[-1] = shares[-2]
    half = t * deviation / (1 - shares).sqrt()
    return Convergence(
        torch.tensor(sizes, device="cpu"), scores, mean, mean - half, mean + half, level
    )


def _eight_sizes(n: int) -> list[int]:
    if n < 2 * FEWEST:
        raise ValueError(f"got {n} items: give at least {2 * FEWEST}, or the sizes to score")
    first = max(FEWEST, n / 64)
    return [round(first * (n / first) ** (step / 7)) for step in range(8)]
