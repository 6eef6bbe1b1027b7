"""Modes of a sample.

With phi the feature map of the kernel, k(a, b) = <phi(a), phi(b)>, the modes are the eigenvectors
v_j of C = sum_i phi(x_i) phi(x_i)^T / n. Their eigenvalues are those of K/n, and the loading
u_j(x) = <phi(x), v_j> measures how strongly item x belongs to mode j: Ospanov et al. (NeurIPS
2024), Remark 2 and equation (5), without their random features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.kernels.base import CHUNK, Kernel, as_kernel, check_count
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.scores.functional import Items
from vendi_guidance.scores.linalg import (
    OVERSAMPLING,
    PARTIAL_RATIO,
    leading,
    second_moments,
    to_precise,
)
from vendi_guidance.scores.spectra import has_small_factor

ROUNDING = 1e-6  # eigenvalues below this share of the largest are rounding errors


@dataclass(frozen=True)
class Mode:
    """An eigenvector of C and the items with the largest loadings on it.

    Attributes:
        eigenvalue: of K/n, in (0, 1], with sum 1 over all modes. For well separated modes, it is
            the share of items in this mode times their mean similarity.
        rows, loadings: indices of the top items, and u(x) in [-1, 1] of each, the largest first.
    """

    eigenvalue: float
    rows: tuple[int, ...]
    loadings: tuple[float, ...]


@isolated()
def find_modes(x: Items, kernel: Kernel, *, count: int = 10, top: int = 20) -> list[Mode]:
    """The leading modes of x and the most typical items of each; the largest eigenvalue first.

    The sign of an eigenvector is chosen so that the loading with the largest magnitude is positive.

    Args:
        x: (n, d) features, or any other input that `vendi` accepts.
        kernel: similarity of two items.
        count: number of modes; fewer are returned if K has a smaller rank.
        top: number of items for each mode.

    O(n^2) memory, or that of Z if K = Z Z^T and Z has fewer than n columns.

    Raises:
        ValueError: count or top < 1, or the kernel rejects x.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian
        >>> from vendi_guidance.scores import find_modes
        >>> x = torch.tensor([[0.0], [9.0], [9.0]])
        >>> [mode] = find_modes(x, Gaussian(1.0), count=1, top=2)
        >>> round(mode.eigenvalue, 3), sorted(mode.rows)
        (0.667, [1, 2])
    """
    check_count("count", count)
    check_count("top", top)
    rows = as_kernel(kernel).read(x)
    n = len(rows)
    if not has_small_factor(kernel, rows):
        eigenvalues, vectors = _leading(kernel.gram(rows).div_(n), count)
        return _as_modes(eigenvalues, vectors * (n * eigenvalues).sqrt().to(vectors), top)
    [moment] = second_moments(rows, [(Part(kernel), kernel.factor)])
    eigenvalues, vectors = _leading(moment, count)
    loadings = [z @ vectors.to(z) for z in map(kernel.factor, rows.split(CHUNK))]
    return _as_modes(eigenvalues, torch.cat(loadings), top)


def _leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """At most `count` nonzero eigenvalues of a matrix, largest first, and their eigenvectors."""
    w, matrix = len(matrix), to_precise(matrix)
    if PARTIAL_RATIO * (count + OVERSAMPLING) > w:
        values, vectors = torch.linalg.eigh(matrix)
        values, vectors = values.flip(0)[:count], vectors.flip(1)[:, :count]
    else:
        tolerance = max(1e-9, 10 * torch.finfo(matrix.dtype).eps)
        values, vectors = leading(matrix, count, tolerance)
    nonzero = values > ROUNDING * values[0]
    return values[nonzero].double(), vectors[:, nonzero]


def _as_modes(eigenvalues: Tensor, u: Tensor, top: int) -> list[Mode]:
    """The modes with these eigenvalues: (count,) and loadings u: (n, count) of all items."""
    u = torch.where(u.amax(dim=0) < -u.amin(dim=0), -u, u)
    loadings, rows = u.T.topk(min(top, len(u)), dim=1)
    columns = zip(eigenvalues.tolist(), rows.tolist(), loadings.tolist(), strict=True)
    return [Mode(value, tuple(items), tuple(largest)) for value, items, largest in columns]
