"""Matrices of all pairs, tile by tile, so that memory stays that of the features."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from torch import Tensor

Blocks: TypeAlias = Callable[[slice, slice], Tensor]
"""`blocks(rows, columns)` is that part of K, as a new tensor which the caller may overwrite."""

SIDE = 1024
"""Rows and columns of a tile of `rectangle`: small enough for a CPU's cache."""


def upper_triangle(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Square tiles of the (n, n) matrix of x: (n, d) that cover its diagonal and what is above."""
    # On a CPU a tile should stay in cache between operations, on a GPU outlast their launches.
    side = 512 if x.device.type == "cpu" else 4096
    strips = [slice(start, min(start + side, len(x))) for start in range(0, len(x), side)]
    for i, rows in enumerate(strips):
        for columns in strips[i:]:
            yield rows, columns


def tile(blocks: Blocks, rows: slice, columns: slice) -> Tensor:
    """That part of K; on the diagonal of K symmetric, its own diagonal exactly 1."""
    values = blocks(rows, columns)
    if rows == columns:
        values = (values + values.T).div_(2).fill_diagonal_(1)  # rounding is not symmetric
    return values


def rectangle(x: Tensor, y: Tensor) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover the (n, m) matrix of x: (n, d) and y: (m, d)."""
    for row in range(0, len(x), SIDE):
        for column in range(0, len(y), SIDE):
            yield slice(row, row + SIDE), slice(column, column + SIDE)
