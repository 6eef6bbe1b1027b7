"""Diverse subsets of items: subsets whose kernel matrix has a large determinant."""

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.rounding import rounding

COPIES = 1e-6  # gains of copies are smaller, also in features of float32


def greedy_subset(kernel: Tensor, groups: Tensor, count: int) -> list[int]:
    """Greedy MAP inference of a determinantal point process (Chen et al., NeurIPS 2018, algorithm
    1): each step adds the item that increases the determinant most, at most one of each group.

    The kernel is (n, n) and positive semi-definite; groups are the (n,) numbers of the items'.
    Returns row indices in the order in which items were added, in O(count^2 n) time. ValueError
    unless count lies between 1 and the number of groups.
    """
    matrix, own = kernel.cpu().numpy(), groups.cpu().numpy()  # a call takes less time than torch's
    if not 1 <= count <= len(np.unique(own)):
        raise ValueError(f"count must lie between 1 and {len(np.unique(own))}, got {count}")
    factors = np.zeros((count, len(matrix)), matrix.dtype)  # rows of the Cholesky factor
    gains = matrix.diagonal().copy()  # the factor by which each item would change the determinant
    tolerance = rounding(kernel.dtype, count) * gains.max()
    chosen: list[int] = []
    for step in range(count):
        best = int((gains >= gains.max() - tolerance).argmax())  # the first of equal gains
        chosen.append(best)
        row = matrix[best] - factors[:step, best] @ factors[:step]
        # the gains of copies of chosen items are rounding errors
        factors[step] = row / max(gains[best], 1e-12) ** 0.5
        gains = gains - factors[step] ** 2
        gains[own == own[best]] = -np.inf
    return chosen


def diverse_subset(kernel: Tensor, count: int) -> list[int]:
    """At most `count` rows of an (n, n) float64 kernel matrix with ones on its diagonal: first the
    item most similar to all, then those that increase the determinant most; fewer if only copies of
    them are left. O(count^3 n) time."""
    chosen = [int(kernel.mean(dim=1).argmax())]
    while len(chosen) < min(count, len(kernel)):
        border = kernel[chosen]
        gains = 1 - (border * torch.linalg.solve(border[:, chosen], border)).sum(dim=0)
        best = int(gains.argmax())
        if gains[best] < COPIES:
            break
        chosen.append(best)
    return chosen
