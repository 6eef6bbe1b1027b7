"""A score of subsets of the items."""

from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.streams import as_stream

Score: TypeAlias = Callable[..., Any]  # items and kernels in, a number or a 0-d tensor out
Progress: TypeAlias = Callable[[range], Iterable[int]]  # wraps a loop, as `tqdm.tqdm` does


class Subsets:
    """A score of subsets: its positional arguments are restricted to the same rows.

    The arguments are first `items`, n entries each (tensors, arrays, sequences), then as many
    `kernels` or one fewer: (x, kernel), (x, t, kernel_x, kernel_t), (x, clusters, kernel). Raises
    ValueError for no arguments, streams, items of different n, and weights.
    """

    def __init__(self, score: Score, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        if not arguments:
            raise ValueError("there are no items: give the score's arguments after the score")
        if options.get("weights") is not None:
            raise ValueError("weights are for all items together: leave them out")
        middle = (len(arguments) + 1) // 2
        self.score, self.options = score, options
        self.items, self.kernels = tuple(arguments[:middle]), tuple(arguments[middle:])
        for entries in self.items:
            listed = isinstance(entries, Sequence) and as_stream(entries) is None
            if not (listed or isinstance(entries, (Tensor, np.ndarray))):
                kind = type(entries).__name__
                raise ValueError(
                    f"{kind} is not a tensor, an array or a sequence: gather its chunks"
                )
        lengths = [len(entries) for entries in self.items]
        if min(lengths) < max(lengths):
            raise ValueError(f"the arguments must describe the same items, got n = {lengths}")
        self.n = lengths[0]

    def __call__(self, rows: Tensor | None = None) -> float:
        """The score of rows: (m,) of the items, or of all."""
        items = self.items if rows is None else [_take(entries, rows) for entries in self.items]
        return float(self.score(*items, *self.kernels, **self.options))

    def permutations(self, seed: int, count: int, progress: Progress) -> Iterable[Tensor]:
        """(n,) row numbers in random order, `count` times."""
        generator = torch.Generator().manual_seed(seed)
        for _ in progress(range(count)):
            yield torch.randperm(self.n, generator=generator)


def normal_quantile(level: float) -> float:
    """z, such that a share `level` in (0, 1) of a normal distribution is within z deviations."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    return NormalDist().inv_cdf((1 + level) / 2)


def _take(entries: Any, rows: Tensor) -> Any:
    if isinstance(entries, (Tensor, np.ndarray)):
        return entries[rows.numpy()]
    return [entries[row] for row in rows.tolist()]
