"""A precomputed similarity matrix as a kernel."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel, as_features
from vendi_guidance.kernels.tiles import Blocks

ROUNDING = 1e-3
"""Tolerance for symmetry, the diagonal and the range: rounding errors of half precision."""


class Precomputed(Kernel):
    """Precomputed similarities, k(i, j) = matrix[i, j]; items are row indices of the matrix.

    Scores are computed in the dtype of the matrix: `vendi(range(n), Precomputed(matrix))`. The
    matrix should be positive semi-definite, as kernel matrices are. If it is not, negative
    eigenvalues are set to 0, except that scores of order 2 include their squares.

    Args:
        matrix: (n, n) tensor or array, symmetric, with entries in [-1, 1] and a diagonal of 1, all
            to within 1e-3. A float32 or float64 tensor is not copied.

    Raises:
        ValueError: the matrix is not of this form; on use, items are not its row indices.

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
        """The row indices as (n, 1), so that code that selects rows of features also works."""
        if isinstance(items, Tensor):
            items = (items.double() if items.is_floating_point() else items).detach().cpu()
        indices = np.asarray(items)
        if indices.ndim == 2 and indices.shape[1] == 1:
            indices = indices[:, 0]
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iuf":
            raise ValueError(
                f"items must be row indices, (n,) or (n, 1), got {indices.dtype} of {indices.shape}"
            )
        invalid = ~np.isin(indices, np.arange(len(self.matrix)))
        if invalid.any():
            last = len(self.matrix) - 1
            raise ValueError(f"row indices go from 0 to {last}, got {indices[invalid][0]}")
        return torch.from_numpy(indices.astype(np.int64))[:, None].to(self.matrix)

    def blocks(self, x: Tensor) -> Blocks:
        indices = x[:, 0].long().to(self.matrix.device)
        return lambda rows, columns: self.matrix[indices[rows, None], indices[columns]].to(x)
