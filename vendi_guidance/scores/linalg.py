"""Symmetric matrices of trace 1: their spectra, their entropies, and sums of outer products."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.streams import Rows, chunks
from vendi_guidance.scores.entropy import Entropy, fill_up, renyi_entropy
from vendi_guidance.scores.krylov import SPARE, leading_eigenpairs

FLOAT64_UP_TO = 4096  # rows: beyond, a matrix is decomposed in the features' precision
LEADING_BELOW = 32  # from this ratio of n to the eigenvalues needed, no others are computed
Map: TypeAlias = Callable[[Tensor], Tensor]  # (b, d) features -> (b, w) rows of Z with K ~ Z Z^T


def eigenvalues(matrix: Tensor) -> Tensor:
    """(w,) float64 eigenvalues of a (w, w) symmetric matrix, largest first, made to sum to 1."""
    found: Tensor = torch.linalg.eigvalsh(precise(matrix)).double().flip(0).clamp_(min=0)
    return found / found.sum()


def matrix_entropy(matrix: Tensor, entropy: Entropy) -> Tensor:
    """The entropy of the spectrum of a (w, w) symmetric matrix of trace 1, 0-d float64."""
    if entropy.is_collision:
        return -torch.linalg.vector_norm(matrix, dim=1).double().square().sum().log()
    w, t = len(matrix), entropy.truncation
    if t is None or LEADING_BELOW * (t + SPARE) > w:
        return entropy.of(eigenvalues(matrix))
    start = torch.randn(w, t + SPARE, generator=torch.Generator().manual_seed(0))
    matrix = precise(matrix)
    top, _ = leading_eigenpairs(matrix.__matmul__, start.to(matrix), t)
    return renyi_entropy(fill_up(top.clamp_(min=0)), entropy.order)


def second_moments(
    rows: Rows, maps: Sequence[tuple[Part, Map]], weights: Tensor | None = None
) -> list[Tensor]:
    """sum_i p_i z(x_i) z(x_i)^T of each part's map z, from one pass over the rows.

    (w, w) tensors, float64 up to `FLOAT64_UP_TO` columns. The weights p: (n,) are probabilities;
    None is 1/n each.
    """
    totals: list[Tensor] = []
    n = 0
    for chunk in chunks(rows):
        for i, (part, features) in enumerate(maps):
            z = features(part.of(chunk))
            if weights is not None:
                z = z * weights[n : n + len(chunk), None].sqrt().to(z)
            if len(totals) == i:
                totals.append(precise(z.new_zeros(z.shape[1], z.shape[1])))
            add_products(totals[i], z)
        n += len(chunk)
    return [symmetric(total).div_(n if weights is None else 1) for total in totals]


def add_products(total: Tensor, z: Tensor) -> None:
    """Add z^T z of z: (b, w) to the upper triangle of total: (w, w), which `symmetric` mirrors."""
    for start in range(0, z.shape[1], 512):
        total[start : start + 512, start:] += z[:, start : start + 512].T @ z[:, start:]


def symmetric(total: Tensor) -> Tensor:
    """The symmetric matrix with the upper triangle of total: (w, w)."""
    return total.triu() + total.triu(1).T


def precise(matrix: Tensor) -> Tensor:
    """In float64 where a decomposition then takes seconds at most, else as it is."""
    return matrix.double() if len(matrix) <= FLOAT64_UP_TO else matrix
