"""A score of subsets of the items, and confidence intervals from such scores."""

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

Score: TypeAlias = Callable[..., Any]  # items and kernels in, a number or a 0-d tensor out


class Subsets:
    """A score of subsets: its positional arguments are restricted to the same rows.

    The arguments are first `items`, n entries each (tensors, arrays, sequences), then as many
    `kernels` or one fewer: (x, kernel), (x, t, kernel_x, kernel_t), (x, clusters, kernel). Kernels
    among the `options`, the keywords, are moved to the arguments. Raises ValueError for no
    arguments, streams, items of different n, and weights.
    """

    def __init__(self, score: Score, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        if not arguments:
            raise ValueError("there are no items: give the score's arguments after the score")
        if options.get("weights") is not None:
            raise ValueError("weights are for all items together: leave them out")
        by_name = {k: kernel for k, kernel in options.items() if isinstance(kernel, Kernel)}
        if by_name:
            named = [name for name in signature(score).parameters if name in by_name]
            arguments = [*arguments, *(by_name[name] for name in named)]
            options = {k: option for k, option in options.items() if k not in named}
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

    def permutations(self, seed: int, count: int) -> Iterator[Tensor]:
        """(n,) row numbers in random order, `count` times."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            yield torch.randperm(self.n, generator=generator, device="cpu")


def quantile(level: float, degrees: int | None = None) -> float:
    """z, such that a share `level` in (0, 1) of a distribution is within z deviations: of Student's
    t with these degrees of freedom, of the normal without any."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    upper = (1 + level) / 2
    return float(norm.ppf(upper) if degrees is None else student.ppf(upper, degrees))


def standard_error(of_parts: Sequence[float], scale: float, is_ratio: bool) -> float:
    """The standard error of a score, of its logarithm if `is_ratio`, from the scores of parts.

    `scale` is sqrt(m / (n - m)) for parts of m of n items: the variance of means of m of n items is
    to that of n fresh items as 1/m - 1/n to 1/n. The deviation of a score that grows with n is
    about proportional to the score: hence logarithms.
    """
    return scale * stdev([math.log(part) for part in of_parts] if is_ratio else of_parts)


def interval(value: float, half: float, is_ratio: bool) -> tuple[float, float]:
    """The ends of a confidence interval whose half, of the logarithm if `is_ratio`, is `half`."""
    if is_ratio:
        return value * math.exp(-half), value * math.exp(half)
    return value - half, value + half


def _take(entries: Any, rows: Tensor) -> Any:
    if isinstance(entries, (Tensor, np.ndarray)):
        return entries[rows.numpy()]
    return [entries[row] for row in rows.tolist()]
