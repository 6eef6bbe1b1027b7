"""Subsets of items that differ: those whose kernel matrix has a large determinant."""

import torch
from torch import Tensor

from vendi_guidance.kernels.rounding import rounding


def greedy_subset(kernel: Tensor, groups: Tensor, count: int) -> list[int]:
    """Items of different groups, each the best addition to those before it: fast greedy MAP
    inference of determinantal point processes (Chen et al., NeurIPS 2018, algorithm 1).

    Args:
        kernel: (n, n), positive semidefinite.
        groups: (n,) numbers. At most one item of each group is taken.
        count: of items, at most as many as there are groups. O(count^2 n) time.

    Returns:
        Rows of `kernel`, the best first.

    Raises:
        ValueError: count is out of its range.

    Example:
        >>> from vendi_guidance.kernels.standard import Gaussian
        >>> kernel = Gaussian(1.0).gram(torch.tensor([[0.0], [0.1], [3.0]]))
        >>> greedy_subset(kernel, torch.arange(3), 2)
        [0, 2]
    """
    most = len(groups.unique())
    if not 1 <= count <= most:
        raise ValueError(f"count must lie between 1 and {most}, got {count}")
    factors = kernel.new_zeros(count, len(kernel))  # rows of the Cholesky factor
    gains = kernel.diagonal().clone()  # by which an item would multiply the determinant
    smallest = rounding(kernel.dtype, count) * gains.max()
    taken: list[int] = []
    for step in range(count):
        best = int((gains >= gains.max() - smallest).int().argmax())  # of equal ones, the first
        taken.append(best)
        row = kernel[best] - factors[:step, best] @ factors[:step]
        # copies of items that are taken gain nothing but rounding errors
        factors[step] = row / gains[best].clamp(min=1e-12).sqrt()
        gains = gains - factors[step].square()
        gains[groups == groups[best]] = -torch.inf
    return taken
