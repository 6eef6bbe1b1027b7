"""Kernels on columns of features, and squared norms of K in O(n^2 d) time and O(n d) memory."""

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Blocks, Kernel, tile, upper_triangle
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

    Factors that parts share are computed once: K_X and K_T are reused for K_X∘K_T. So are equal
    rows of the last factor, as those of a prompt's images are.
    """
    products = [[factor.key for factor in part.factors()] for part in parts]
    factors = {factor.key: factor for part in parts for factor in part.factors()}
    last, of_last = factors.popitem()
    distinct, places = torch.unique(of_last.of(x), dim=0, return_inverse=True)
    places, order = places.sort()
    blocks = {key: it.kernel.blocks(it.of(x)[order]) for key, it in factors.items()}
    blocks[last] = _repeated(of_last.kernel.blocks(distinct), places)
    totals = x.new_zeros(len(parts), dtype=torch.float64)
    for rows, columns in upper_triangle(x):
        values = {key: tile(block, rows, columns) for key, block in blocks.items()}
        for total, keys in zip(totals, products, strict=True):
            of_tile = squared_norm(reduce(mul, [values[key] for key in keys]))
            total.add_(of_tile, alpha=1 if rows == columns else 2)
    return list(totals / len(x) ** 2)


def _repeated(blocks: Blocks, places: Tensor) -> Blocks:
    """Blocks of K for rows of which row i is the distinct row at places[i], which ascend."""
    known = places.tolist()  # once: each block would wait for the device

    def block(rows: slice, columns: slice) -> Tensor:
        sides = known[rows], known[columns]
        first, last = zip(*((it[0], it[-1] + 1) for it in sides), strict=True)
        found = blocks(*map(slice, first, last))
        if found.shape == tuple(map(len, sides)):
            return found
        i, j = places[rows] - first[0], places[columns] - first[1]
        return found.index_select(1, j).index_select(0, i)

    return block


def squared_norm(matrix: Tensor) -> Tensor:
    """The squared Frobenius norm of matrix: (n, m), 0-d float64; without a copy in float64."""
    rows = torch.linalg.vector_norm(matrix, dim=1).double()
    return rows.dot(rows)
