"""Kernels on columns of features, and means over K in O(n^2 d) time and O(n d) memory."""

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Kernel, tile, upper_triangle
from vendi_guidance.kernels.standard import Product


class Part(NamedTuple):
    """A kernel and the columns of the features that it compares, [start, stop)."""

    kernel: Kernel
    start: int = 0
    stop: int | None = None

    def of(self, x: Tensor) -> Tensor:
        """(n, width) columns of this part."""
        return x[:, self.start : self.stop]

    def width(self, d: int) -> int:
        return (d if self.stop is None else self.stop) - self.start

    @property
    def key(self) -> Hashable:
        """A hashable identity of this part; custom kernels need not be hashable."""
        return id(self.kernel), self.start, self.stop

    def factors(self) -> "list[Part]":
        """The parts whose kernel matrices have the one of this part as elementwise product."""
        if not isinstance(self.kernel, Product):
            return [self]
        middle = self.start + self.kernel.split
        first = Part(self.kernel.first, self.start, middle)
        return [*first.factors(), *Part(self.kernel.second, middle, self.stop).factors()]


def squared_norms(x: Tensor, parts: Sequence[Part]) -> list[Tensor]:
    """|K/n|_F^2, the mean squared entry of K, of each part of x: (n, d); 0-d float64, in (0, 1].

    Factors that parts share are computed once: K_X and K_T are reused for K_X∘K_T.
    """
    products = [[factor.key for factor in part.factors()] for part in parts]
    factors = {factor.key: factor for part in parts for factor in part.factors()}
    blocks = {key: factor.kernel.blocks(factor.of(x)) for key, factor in factors.items()}
    totals = x.new_zeros(len(parts), dtype=torch.float64)
    for rows, columns in upper_triangle(x):
        squared = {key: tile(block, rows, columns).square_() for key, block in blocks.items()}
        for i, keys in enumerate(products):
            values = reduce(mul, [squared[key] for key in keys])
            totals[i] += _sum_over_tile(values, rows, columns)
    return list(totals / len(x) ** 2)


def mean_similarity(x: Tensor, kernel: Kernel) -> Tensor:
    """The mean of the entries of K, 0-d float64."""
    blocks = kernel.blocks(x)
    total = x.new_zeros((), dtype=torch.float64)
    for rows, columns in upper_triangle(x):
        total += _sum_over_tile(tile(blocks, rows, columns), rows, columns)
    return total / len(x) ** 2


def _sum_over_tile(values: Tensor, rows: slice, columns: slice) -> Tensor:
    """The sum over a tile of K and, off the diagonal, over its mirror image."""
    total = values.sum(dim=1).sum(dtype=torch.float64)  # a row is short enough for float32
    return total if rows == columns else 2 * total
