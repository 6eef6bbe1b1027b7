"""Diverse subsets of items: subsets whose kernel matrix has a large determinant."""

import torch
from torch import Tensor

from vendi_guidance.kernels.rounding import rounding


def greedy_subset(kernel: Tensor, groups: Tensor, count: int) -> list[int]:
    """Greedy MAP inference of a determinantal point process: a subset with a large determinant.

    Each step adds the item that increases the determinant most, at most one from each group (Chen
    et al., NeurIPS 2018, algorithm 1). O(count^2 n) time.

    Args:
        kernel: (n, n), positive semi-definite.
        groups: (n,) numbers of the items' groups.
        count: number of items, from 1 to the number of groups.

    Returns:
        Row indices of the items in the order in which they were added.

    Raises:
        ValueError: count is out of range.

    Example:
        >>> from vendi_guidance.kernels.standard import Gaussian
        >>> kernel = Gaussian(1.0).gram(torch.tensor([[0.0], [0.1], [3.0]]))
        >>> greedy_subset(kernel, torch.arange(3), 2)
        [0, 2]
    """
    limit = len(groups.unique())
    if not 1 <= count <= limit:
        raise ValueError(f"count must lie between 1 and {limit}, got {count}")
    factors = kernel.new_zeros(count, len(kernel))  # rows of the Cholesky factor
    gains = kernel.diagonal().clone()  # the factor by which each item would change the determinant
    tolerance = rounding(kernel.dtype, count) * gains.max()
    chosen: list[int] = []
    for step in range(count):
        best = int((gains >= gains.max() - tolerance).int().argmax())  # the first of equal gains
        chosen.append(best)
        row = kernel[best] - factors[:step, best] @ factors[:step]
        # the gains of copies of chosen items are rounding errors
        factors[step] = row / gains[best].clamp(min=1e-12).sqrt()
        gains = gains - factors[step].square()
        gains[groups == groups[best]] = -torch.inf
    return chosen
