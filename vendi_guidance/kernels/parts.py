"""Kernels of some columns, and means over their matrices, in O(n^2 d) time and O(n d) space."""

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.standard import Product
from vendi_guidance.kernels.tiles import tile, upper_triangle


class Part(NamedTuple):
    """A kernel, and the columns of the features that it reads: from start up to stop."""

    kernel: Kernel
    start: int = 0
    stop: int | None = None

    def of(self, x: Tensor) -> Tensor:
        """(n, d) features -> (n, width)."""
        return x[:, self.start : self.stop]

    def width(self, d: int) -> int:
        """How many of d columns it reads."""
        return (d if self.stop is None else self.stop) - self.start

    @property
    def key(self) -> Hashable:
        """Equal for parts that are the same; custom kernels need not be hashable."""
        return id(self.kernel), self.start, self.stop

    def factors(self) -> "list[Part]":
        """The parts whose kernel matrices multiply to that of this one."""
        if not isinstance(self.kernel, Product):
            return [self]
        middle = self.start + self.kernel.split
        first = Part(self.kernel.first, self.start, middle)
        return [*first.factors(), *Part(self.kernel.second, middle, self.stop).factors()]


def squared_norms(x: Tensor, parts: Sequence[Part]) -> list[Tensor]:
    """|K/n|_F^2, the squared Frobenius norm or mean squared entry of K, for each part of x: (n, d),
    as 0-d float64 tensors in (0, 1].

    What the parts have in common is computed once: K_X and K_T serve K_X∘K_T too.
    """
    products = [[factor.key for factor in part.factors()] for part in parts]
    distinct = {factor.key: factor for part in parts for factor in part.factors()}
    blocks = {key: factor.kernel.blocks(factor.of(x)) for key, factor in distinct.items()}
    totals = x.new_zeros(len(parts), dtype=torch.float64)
    for rows, columns in upper_triangle(x):
        squared = {key: tile(block, rows, columns).square_() for key, block in blocks.items()}
        for i, keys in enumerate(products):
            values = reduce(mul, [squared[key] for key in keys])
            totals[i] += _share(values, rows, columns)
    return list(totals / len(x) ** 2)


def mean_similarity(x: Tensor, kernel: Kernel) -> Tensor:
    """The mean of the entries of K, 0-d float64."""
    blocks = kernel.blocks(x)
    total = x.new_zeros((), dtype=torch.float64)
    for rows, columns in upper_triangle(x):
        total += _share(tile(blocks, rows, columns), rows, columns)
    return total / len(x) ** 2


def _share(values: Tensor, rows: slice, columns: slice) -> Tensor:
    """What a tile adds to the sum over K: off the diagonal, its mirror image too."""
    total = values.sum(dim=1).sum(dtype=torch.float64)  # a row is short enough for float32
    return total if rows == columns else 2 * total
