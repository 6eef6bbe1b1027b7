"""Convergence of a score: its values for random subsets of the items.

The curves are those of figures 1 and 3-5 of Ospanov & Farnia (UAI 2025).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat

import torch
from torch import Tensor

from vendi_guidance.kernels.base import check_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES_FROM = 40  # fewest items for a convergence curve of the default sizes


@dataclass(frozen=True)
class Convergence:
    """The score of random subsets against their size.

    Attributes:
        sizes: (s,) numbers of items, increasing.
        scores, mean: (s, repeats) and their (s,) means, float64; subsets of a repeat are nested, so
            that repeats agree at n items and vary less than new items would.
    """

    sizes: Tensor
    scores: Tensor
    mean: Tensor

    def reached(self, share: float = 0.9) -> int:
        """The first size at which the mean reaches this share of the last mean."""
        return int(self.sizes[self.mean >= share * self.mean[-1]][0])

    def plot(self, ax: "Axes", label: str | None = None) -> "Axes":
        """Plots the mean, with this label, and each repeat on axes of matplotlib."""
        (line,) = ax.plot(self.sizes, self.mean, label=label)
        ax.plot(self.sizes, self.scores, color=line.get_color(), alpha=0.4, linewidth=0.6)
        return ax


def convergence(
    score: Callable[[Tensor], SupportsFloat],
    n: int,
    *,
    sizes: Sequence[int] | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> Convergence:
    """A score of random subsets of increasing size, which shows if it has converged at n items.

    Args:
        score: the score of a subset, given its (m,) row numbers.
        n: number of items.
        sizes: subset sizes from 1 to n, increasing, at least one of them below n; None is eight
            sizes from max(20, n/64) to n, spaced geometrically.
        repeats, seed: number of random orders in which items are added, >= 1, and their seed.

    Raises:
        ValueError: sizes or repeats are out of range, or there are fewer than 40 items and no
            sizes.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, rke
        >>> from vendi_guidance.scores import convergence
        >>> x = torch.eye(8)
        >>> result = convergence(lambda rows: rke(x[rows], Cosine()), len(x), sizes=[2, 4, 8])
        >>> [round(mean, 3) for mean in result.mean.tolist()]
        [2.0, 4.0, 8.0]
    """
    check_count("repeats", repeats)
    sizes = eight_sizes(n) if sizes is None else list(sizes)
    if not sizes or sizes != sorted({*map(int, sizes)}) or not 1 <= sizes[0] < n >= sizes[-1]:
        raise ValueError(
            f"sizes must be whole numbers from 1 to n = {n}, one of them below n, got {sizes}"
        )
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(n, generator=generator, device="cpu") for _ in range(repeats)]
    of_all = [float(score(torch.arange(n, device="cpu")))] if sizes[-1] == n else []
    below = [size for size in sizes if size < n]
    repeated = [[float(score(order[:size])) for size in below] + of_all for order in orders]
    scores = torch.tensor(repeated, dtype=torch.float64, device="cpu").T
    return Convergence(torch.tensor(sizes, device="cpu"), scores, scores.mean(dim=1))


def eight_sizes(n: int) -> list[int]:
    """Sizes from max(20, n/64) to n, spaced geometrically."""
    if n < CURVES_FROM:
        raise ValueError(f"got {n} items: give at least {CURVES_FROM}, or the sizes to score")
    first = max(CURVES_FROM / 2, n / 64)
    return [round(first * (n / first) ** (step / 7)) for step in range(8)]
