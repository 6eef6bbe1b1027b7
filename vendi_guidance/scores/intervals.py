"""Convergence of a score: its values for random subsets of the items.

The curves are those of figures 1 and 3-5 of Ospanov & Farnia (UAI 2025).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import check_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Score: TypeAlias = Callable[..., Any]  # (items, kernels) -> a number or a 0-d tensor
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
    score: Score,
    *arguments: Any,
    sizes: Sequence[int] | None = None,
    repeats: int = 5,
    seed: int = 0,
    **options: Any,
) -> Convergence:
    """A score of random subsets of increasing size, which shows if it has converged at n items.

    Args:
        score: the score, such as `rke`, or any function with arguments like its own.
        arguments: of the score: first the n items (features, prompts, labels), then the kernels.
        options: keyword arguments of the score.
        sizes: subset sizes from 1 to n, at least one of them below n; None is eight sizes from
            max(20, n/64) to n, spaced geometrically.
        repeats, seed: number of random orders in which items are added, >= 1, and their seed.

    Raises:
        ValueError: sizes or repeats are out of range; there are fewer than 40 items and no
            sizes; items have weights, have no length or differ in n; or the score rejects them.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, rke
        >>> from vendi_guidance.scores import convergence
        >>> result = convergence(rke, torch.eye(8), Cosine(), sizes=[2, 4, 8])
        >>> [round(mean, 3) for mean in result.mean.tolist()]
        [2.0, 4.0, 8.0]
    """
    check_count("repeats", repeats)
    items, of_rows = _by_rows(score, arguments, options)
    n = len(items[0])
    given = eight_sizes(n) if sizes is None else sorted(set(sizes))
    sizes = [int(size) for size in given]
    if not sizes or sizes != given or not 1 <= sizes[0] < n or sizes[-1] > n:
        raise ValueError(
            f"sizes must be whole numbers from 1 to n = {n}, one of them below n, got {given}"
        )

    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(n, generator=generator, device="cpu") for _ in range(repeats)]
    of_all = [of_rows(orders[0])] if sizes[-1] == n else []  # the same in every repeat
    below = [size for size in sizes if size < n]
    repeated = [[of_rows(order[:size]) for size in below] + of_all for order in orders]
    scores = torch.tensor(repeated, dtype=torch.float64, device="cpu").T
    return Convergence(torch.tensor(sizes, device="cpu"), scores, scores.mean(dim=1))


def eight_sizes(n: int) -> list[int]:
    """Sizes from max(20, n/64) to n, spaced geometrically."""
    if n < CURVES_FROM:
        raise ValueError(f"got {n} items: give at least {CURVES_FROM}, or the sizes to score")
    first = max(CURVES_FROM / 2, n / 64)
    return [round(first * (n / first) ** (step / 7)) for step in range(8)]


def _by_rows(
    score: Score, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[list[Any], Callable[[Tensor | None], float]]:
    """The items among the arguments of a score, and the score as a function of the (m,) row
    numbers of a subset, or of None for all items."""
    items = [*takewhile(lambda argument: isinstance(argument, Iterable), arguments)]
    if not items:
        raise ValueError("there are no items: give the score's arguments after the score")
    if options.get("weights") is not None:
        raise ValueError("subsets do not support item weights: leave them out")
    for entries in items:
        if not isinstance(entries, (Sequence, Tensor, np.ndarray)):
            kind = type(entries).__name__
            raise ValueError(f"{kind} is not a tensor, an array or a sequence: gather its chunks")
    lengths = [len(entries) for entries in items]
    if min(lengths) < max(lengths):
        raise ValueError(f"the arguments must describe the same items, got n = {lengths}")

    def of_rows(rows: Tensor | None) -> float:
        taken = items if rows is None else [_take(entries, rows) for entries in items]
        if (found := score(*taken, *arguments[len(items) :], **options)) is None:
            raise ValueError(f"a subset of {len(taken[0])} items has no score: give more items")
        return float(found)

    return items, of_rows


def _take(entries: Any, rows: Tensor) -> Any:
    if isinstance(entries, (Tensor, np.ndarray)):
        return entries[rows.numpy()]
    return [entries[row] for row in rows.tolist()]
