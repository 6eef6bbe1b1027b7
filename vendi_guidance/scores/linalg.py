"""Symmetric matrices: spectra, entropies, and sums of outer products.

Where a matrix is large, products with it alone find its leading eigenvalues, many vectors at a time
(block Krylov iteration: Musco & Musco, 2015), or v^T f(A) v without any eigenvalue (Lanczos
quadrature: Ubaru, Chen & Saad, 2017).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.kernels.streams import Rows, chunks
from vendi_guidance.scores.entropy import Entropy, fill_up, renyi_entropy

FLOAT64_UP_TO = 4096  # rows: beyond, a matrix is decomposed in the features' precision
LEADING_BELOW = 32  # from this ratio of n to the eigenvalues needed, no others are computed
SPARE = 16  # extra vectors, which make the last of the requested eigenvalues converge
Map: TypeAlias = Callable[[Tensor], Tensor]  # (b, d) features -> (b, w) rows of Z with K ~ Z Z^T
Multiply: TypeAlias = Callable[[Tensor], Tensor]  # V: (n, b) -> A V, for a symmetric A >= 0


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
    top, _ = leading(precise(matrix), t)
    return renyi_entropy(fill_up(top.clamp_(min=0)), entropy.order)


def leading(matrix: Tensor, count: int, tolerance: float = 3e-5) -> tuple[Tensor, Tensor]:
    """`leading_eigenpairs` of a (w, w) symmetric matrix, from a start that is always the same."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(
        len(matrix), count + SPARE, generator=generator, dtype=torch.float32, device="cpu"
    )
    return leading_eigenpairs(matrix.matmul, start.to(matrix), count, tolerance)


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
        # once leaves errors of the size of the projection; twice, where little else is left, too
        for _ in range(3):
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
