"""Iteration over matrices of all pairs in tiles, so that the matrix need not be stored."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from torch import Tensor

Blocks: TypeAlias = Callable[[slice, slice], Tensor]
"""`blocks(rows, columns)` returns K[rows, columns], which the caller may overwrite."""

SIDE = 1024
"""Side of a tile of `rectangle`, small enough for the cache of a CPU."""


def upper_triangle(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Square tiles that cover the upper triangle and diagonal of the (n, n) matrix of x: (n, d)."""
    # A tile should fit into a CPU's cache, and on a GPU take longer than launching its kernels.
    side = 512 if x.device.type == "cpu" else 4096
    strips = [slice(start, min(start + side, len(x))) for start in range(0, len(x), side)]
    for i, rows in enumerate(strips):
        for columns in strips[i:]:
            yield rows, columns


def tile(blocks: Blocks, rows: slice, columns: slice) -> Tensor:
    """K[rows, columns]; tiles on the diagonal are exactly symmetric with ones on their diagonal."""
    values = blocks(rows, columns)
    if rows == columns:
        values = (values + values.T).div_(2).fill_diagonal_(1)  # removes rounding errors
    return values


def rectangle(x: Tensor, y: Tensor) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover the (n, m) matrix of pairs of x: (n, d) and y: (m, d)."""
    for row in range(0, len(x), SIDE):
        for column in range(0, len(y), SIDE):
            yield slice(row, row + SIDE), slice(column, column + SIDE)
