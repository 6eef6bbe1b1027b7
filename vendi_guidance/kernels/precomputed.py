"""A given matrix of similarities as a kernel."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel, as_features
from vendi_guidance.kernels.tiles import Blocks

ROUNDING = 1e-3
"""Similarities may be off by this much, as they are in half precision."""


class Precomputed(Kernel):
    """A matrix of similarities, k(i, j) = matrix[i, j]; items are its row numbers, from 0.

    `vendi(range(n), Precomputed(matrix))`, in the matrix's precision. Negative similarities are
    fine, but the matrix should be positive semi-definite, as those of kernels are. If it is not,
    entropies of eigenvalues drop the negative ones, while order 2 counts them, squared.

    Args:
        matrix: (n, n), symmetric, entries in [-1, 1] and 1 on the diagonal, all to within 1e-3.

    Raises:
        ValueError: the matrix is not of that kind; on use, items that are not its row numbers.

    Example:
        >>> import torch
        >>> from vendi_guidance import Precomputed, rke
        >>> round(float(rke(range(2), Precomputed(torch.tensor([[1.0, 0.5], [0.5, 1.0]])))), 3)
        1.6
    """

    def __init__(self, matrix: Features) -> None:
        try:
            k = as_features(matrix)
        except ValueError as error:
            raise ValueError(f"in the similarity matrix: {error}") from None
        if len(k) != k.shape[1]:
            raise ValueError(f"a similarity matrix must be square, got shape {tuple(k.shape)}")
        worst = k.diagonal()[(k.diagonal() - 1).abs().argmax()]
        if not abs(worst - 1) <= ROUNDING:
            raise ValueError(f"an item's similarity to itself must be 1, got {float(worst)}")
        skew = float((k - k.T).abs_().max())
        if not skew <= ROUNDING:
            raise ValueError(f"similarities must be symmetric, got some that differ by {skew}")
        largest = max(k.max(), k.min(), key=abs)
        if not abs(largest) <= 1 + ROUNDING:
            raise ValueError(f"similarities must lie in [-1, 1], got {float(largest)}")
        self.matrix = k

    def __repr__(self) -> str:
        return "Precomputed()"

    def read(self, items: Any) -> Tensor:
        """(n, 1) row numbers, so that code that selects rows of features selects items too."""
        if isinstance(items, Tensor):
            items = (items.double() if items.is_floating_point() else items).detach().cpu()
        numbers = np.asarray(items)
        if numbers.ndim == 2 and numbers.shape[1] == 1:
            numbers = numbers[:, 0]
        if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iuf":
            raise ValueError(
                f"items must be row numbers, (n,) or (n, 1), got {numbers.dtype} of {numbers.shape}"
            )
        wrong = ~np.isin(numbers, np.arange(len(self.matrix)))
        if wrong.any():
            last = len(self.matrix) - 1
            raise ValueError(f"row numbers go from 0 to {last}, got {numbers[wrong][0]}")
        return torch.from_numpy(numbers.astype(np.int64))[:, None].to(self.matrix)

    def blocks(self, x: Tensor) -> Blocks:
        numbers = x[:, 0].long().to(self.matrix.device)
        return lambda rows, columns: self.matrix[numbers[rows, None], numbers[columns]].to(x)
