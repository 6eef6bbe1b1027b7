"""Modes of a sample.

With phi the feature map of the kernel, k(a, b) = <phi(a), phi(b)>, the modes are the eigenvectors
v_j of C = sum_i phi(x_i) phi(x_i)^T / n. Their eigenvalues are those of K/n, and the loading
u_j(x) = <phi(x), v_j> measures how strongly item x belongs to mode j. With random Fourier features
this is FKEA: Ospanov et al. (NeurIPS 2024), Remark 2 and equation (5).
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
    Map,
    leading,
    second_moments,
    to_precise,
)
from vendi_guidance.scores.spectra import Exact, RandomFourier

FKEA = RandomFourier(4000)

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
def find_modes(
    x: Items,
    kernel: Kernel,
    *,
    count: int = 10,
    top: int = 20,
    spectrum: RandomFourier | Exact = FKEA,
) -> list[Mode]:
    """The leading modes of x and the most typical items of each; the largest eigenvalue first.

    The sign of an eigenvector is chosen so that the loading with the largest magnitude is positive.

    Args:
        x: (n, d) features, or any other input that `vendi` accepts.
        kernel: similarity of two items.
        count: number of modes; fewer are returned if K has a smaller rank.
        top: number of items for each mode.
        spectrum: `RandomFourier` for Gaussian kernels, with O(features^2 + n count) memory beside
            x; or `Exact`, from Z with K = Z Z^T if Z has fewer than n columns, else from K, O(n^2).

    Raises:
        ValueError: count or top < 1; another spectrum; or a kernel that the spectrum does not
            support.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian
        >>> from vendi_guidance.scores import Exact, find_modes
        >>> x = torch.tensor([[0.0], [9.0], [9.0]])
        >>> [mode] = find_modes(x, Gaussian(1.0), count=1, top=2, spectrum=Exact())
        >>> round(mode.eigenvalue, 3), sorted(mode.rows)
        (0.667, [1, 2])
    """
    check_count("count", count)
    check_count("top", top)
    rows = as_kernel(kernel).read(x)
    feature_map = _feature_map(rows, kernel, spectrum)
    if feature_map is None:
        n = len(rows)
        eigenvalues, vectors = _leading(kernel.gram(rows).div_(n), count)
        return _as_modes(eigenvalues, vectors * (n * eigenvalues).sqrt().to(vectors), top)
    [moment] = second_moments(rows, [(Part(kernel), feature_map)])
    eigenvalues, vectors = _leading(moment, count)
    loadings = [z @ vectors.to(z) for z in map(feature_map, rows.split(CHUNK))]
    return _as_modes(eigenvalues, torch.cat(loadings), top)


def _feature_map(rows: Tensor, kernel: Kernel, spectrum: RandomFourier | Exact) -> Map | None:
    """The feature map phi, or None if the kernel has none or if K is smaller than C."""
    n, d = rows.shape
    if isinstance(spectrum, RandomFourier):
        return spectrum.map(kernel, d)
    if not isinstance(spectrum, Exact):
        raise ValueError(f"modes need RandomFourier(...) or Exact() as spectrum, got {spectrum}")
    rank = kernel.rank(d)
    return None if rank is None or rank >= n else kernel.factor


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
