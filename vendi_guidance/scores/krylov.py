"""Eigenvalues from products with a symmetric matrix alone, many vectors at a time.

Block Krylov iteration (Musco & Musco, 2015) finds the leading ones; Lanczos quadrature (Ubaru, Chen
& Saad, 2017) gives v^T f(A) v without finding any.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from vendi_guidance.kernels.rounding import rounding

Multiply: TypeAlias = Callable[[Tensor], Tensor]
"""(n, b) vectors V -> (n, b) A V, for a symmetric positive semi-definite A."""

SPARE = 16  # extra vectors, which make the last of the requested eigenvalues converge


def leading_eigenpairs(
    multiply: Multiply, start: Tensor, count: int, tolerance: float = 3e-5
) -> tuple[Tensor, Tensor]:
    """The (count,) largest eigenvalues of A, float64, and their (n, count) orthonormal vectors.

    One product with (n, b) vectors for each of three to ten steps, and O(n (b steps)^2) operations;
    memory is that of b x steps vectors. Stops when a step adds less than a share `tolerance` to the
    sum of the eigenvalues. The start is (n, b) random vectors, b >= count + SPARE or n.
    """
    n = len(start)
    block = torch.linalg.qr(start).Q
    basis, reduced = block[:, :0], block.new_zeros(0, 0, dtype=torch.float64)
    found = 0.0
    while True:
        product = multiply(block)
        # the new columns of basis^T A basis
        beside, within = (basis.T @ product).double(), (block.T @ product).double()
        basis = torch.cat([basis, block], dim=1)
        above = torch.cat([reduced, beside], dim=1)
        below = torch.cat([beside.T, (within + within.T) / 2], dim=1)
        reduced = torch.cat([above, below])
        values, vectors = torch.linalg.eigh(reduced)
        before, found = found, float(values[-count:].sum())
        size = basis.shape[1]
        if size == n or found - before <= tolerance * found:
            leading = vectors[:, -count:].flip(1).to(basis)
            return values[-count:].flip(0), basis @ leading
        for _ in range(2):  # once leaves rounding errors of the size of the projection
            product = torch.linalg.qr(product - basis @ (basis.T @ product)).Q
        block = product[:, : n - size]


def tridiagonalise(multiply: Multiply, start: Tensor, steps: int) -> Tensor:
    """Lanczos' T = Q^T A Q for each column v of start, Q a basis of the Krylov space of A and v.

    From `steps` products with (n, p) vectors, 1 <= steps <= n, orthogonalised against all earlier
    ones; memory is that of p x steps vectors. T is (p, steps, steps), tridiagonal, float64.
    """
    n, probes = start.shape
    v = torch.nn.functional.normalize(start, dim=0)
    vectors = start.new_zeros(probes, steps, n)
    diagonal, beside = [], []
    for step in range(steps):
        vectors[:, step] = v.T
        basis = vectors[:, : step + 1]
        w = multiply(v).T[..., None]  # (probes, n, 1)
        along = basis @ w
        diagonal.append(along[:, -1, 0])
        if step + 1 == steps:
            break
        w = w - basis.mT @ along
        w = (w - basis.mT @ (basis @ w))[..., 0]
        length = torch.linalg.vector_norm(w, dim=1)
        # once the space is exhausted only rounding is left, which gets weight 0
        real = length > rounding(w.dtype, n) * diagonal[0].abs()
        beside.append(length.where(real, 0))
        v = (w * (real / length.where(real, 1))[:, None]).T
    result = torch.diag_embed(torch.stack(diagonal, dim=1).double())
    if beside:
        off = torch.stack(beside, dim=1).double()
        result = result + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    return result


def gauss_quadrature(tridiagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes theta and weights w: (p, steps) with v^T f(A) v ~ |v|^2 sum_k w_k f(theta_k).

    From what `tridiagonalise` returns, or its leading part, which is that of fewer steps. Exact for
    polynomials f of degree up to 2 steps - 1. The weights sum to 1 for each v.
    """
    nodes, vectors = torch.linalg.eigh(tridiagonal)
    return nodes, vectors[:, 0].square()
