"""Scores of subsets of the items, and confidence intervals from them."""

import math
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from statistics import stdev
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.stats import norm, t as student
from torch import Tensor

from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.streams import as_stream

Score: TypeAlias = Callable[..., Any]  # (items, kernels) -> a number or a 0-d tensor


class Subsets:
    """A score as a function of the row indices of a subset of its items.

    The positional arguments of the score are first `items` (tensors, arrays or sequences with n
    entries each), then as many `kernels` or one fewer: (x, kernel), (x, t, kernel_x, kernel_t),
    (x, clusters, kernel). Kernels among the keyword `options` count as arguments. Raises ValueError
    if there are no arguments, if items are streams or differ in n, or if there are weights.
    """

    def __init__(self, score: Score, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        if not arguments:
            raise ValueError("there are no items: give the score's arguments after the score")
        if options.get("weights") is not None:
            raise ValueError("subsets do not support item weights: leave them out")
        named = [name for name, option in options.items() if isinstance(option, Kernel)]
        if named:
            named = [name for name in signature(score).parameters if name in named]
            arguments = [*arguments, *(options[name] for name in named)]
            options = {name: option for name, option in options.items() if name not in named}
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
        """The score of the items with these (m,) row indices, or of all items."""
        items = self.items if rows is None else [_take(entries, rows) for entries in self.items]
        return float(self.score(*items, *self.kernels, **self.options))

    def permutations(self, seed: int, count: int) -> Iterator[Tensor]:
        """`count` random permutations of the n row indices."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            yield torch.randperm(self.n, generator=generator, device="cpu")


def quantile(level: float, degrees: int | None = None) -> float:
    """z such that a share `level` in (0, 1) of the normal distribution, or of Student's t with
    these degrees of freedom, lies in [-z, z]."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    upper = (1 + level) / 2
    return float(norm.ppf(upper) if degrees is None else student.ppf(upper, degrees))


def standard_error(of_parts: Sequence[float], scale: float, is_ratio: bool) -> float:
    """The standard error of a score, or of its logarithm if `is_ratio`, from scores of subsets.

    `scale` is sqrt(m / (n - m)) for subsets of m of n items: means of such subsets have variance
    proportional to 1/m - 1/n, means of n new items to 1/n. Logarithms suit scores that grow with n,
    whose standard deviation is about proportional to the score.
    """
    return scale * stdev([math.log(part) for part in of_parts] if is_ratio else of_parts)


def interval(value: float, half: float, is_ratio: bool) -> tuple[float, float]:
    """(low, high) at distance `half` from the value, or from its logarithm if `is_ratio`."""
    if is_ratio:
        return value * math.exp(-half), value * math.exp(half)
    return value - half, value + half


def _take(entries: Any, rows: Tensor) -> Any:
    if isinstance(entries, (Tensor, np.ndarray)):
        return entries[rows.numpy()]
    return [entries[row] for row in rows.tolist()]
