"""Linear algebra of symmetric matrices: spectra, entropies and second moments.

Block Krylov iteration (Musco & Musco, 2015) computes leading eigenpairs from products alone.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from vendi_guidance.kernels.base import CHUNK
from vendi_guidance.kernels.parts import Part, squared_norm
from vendi_guidance.scores.entropy import Entropy, add_missing_mass, renyi_entropy

FLOAT64_UP_TO = 4096  # rows; larger matrices are decomposed in the precision of the features
PARTIAL_RATIO = 32  # k eigenvalues with n / (k + OVERSAMPLING) >= this: partial decomposition
OVERSAMPLING = 16  # extra vectors in a block, so that the last requested eigenvalue converges
Map: TypeAlias = Callable[[Tensor], Tensor]  # (b, d) features -> (b, w) rows of Z with K ~ Z Z^T


def eigenvalues(matrix: Tensor) -> Tensor:
    """(w,) float64 eigenvalues of a (w, w) symmetric matrix, largest first, scaled to sum to 1."""
    values: Tensor = torch.linalg.eigvalsh(to_precise(matrix)).double().flip(0).clamp_(min=0)
    return values / values.sum()


def matrix_entropy(matrix: Tensor, entropy: Entropy) -> Tensor:
    """The entropy of the spectrum of a (w, w) symmetric matrix of trace 1, 0-d float64."""
    if entropy.is_collision:
        return -squared_norm(matrix).log()
    w, t = len(matrix), entropy.truncation
    if t is None or PARTIAL_RATIO * (t + OVERSAMPLING) > w:
        return entropy.of(eigenvalues(matrix))
    top, _ = leading(to_precise(matrix), t)
    return renyi_entropy(add_missing_mass(top.clamp_(min=0)), entropy.order)


def second_moments(
    x: Tensor, maps: Sequence[tuple[Part, Map]], weights: Tensor | None = None
) -> list[Tensor]:
    """sum_i p_i z(x_i) z(x_i)^T of each part's feature map z, x: (n, d).

    Returns (w, w) tensors, float64 up to w = `FLOAT64_UP_TO`. The weights p: (n,) are
    probabilities; None is 1/n each.
    """
    totals: list[Tensor] = []
    n = 0
    for chunk in x.split(CHUNK):
        for i, (part, features) in enumerate(maps):
            z = features(part.of(chunk))
            if weights is not None:
                z = z * weights[n : n + len(chunk), None].sqrt().to(z)
            if len(totals) == i:
                totals.append(to_precise(z.new_zeros(z.shape[1], z.shape[1])))
            add_products(totals[i], z)
        n += len(chunk)
    return [mirror(total).div_(n if weights is None else 1) for total in totals]


def add_products(total: Tensor, z: Tensor) -> None:
    """Adds z^T z to the upper triangle of total: (w, w) in place, for z: (b, w); see `mirror`."""
    for start in range(0, z.shape[1], 512):
        total[start : start + 512, start:].add_(z[:, start : start + 512].T @ z[:, start:])


def mirror(total: Tensor) -> Tensor:
    """The symmetric matrix with the upper triangle of total: (w, w)."""
    return total.triu() + total.triu(1).T


def to_precise(matrix: Tensor) -> Tensor:
    """The matrix in float64 if that decomposes within seconds, else in its own dtype."""
    return matrix.double() if len(matrix) <= FLOAT64_UP_TO else matrix


def leading(matrix: Tensor, count: int, tolerance: float = 3e-5) -> tuple[Tensor, Tensor]:
    """(count,) largest eigenvalues first, float64, and (n, count) orthonormal eigenvectors of a
    (n, n) symmetric matrix.

    Block Krylov iteration with Rayleigh-Ritz projection, from b = count + OVERSAMPLING random
    vectors, always the same. Takes three to ten steps, each one product with (n, b) vectors and
    O(n (b steps)^2) further operations, until a step increases the sum of the eigenvalues by less
    than a share `tolerance`; memory is that of b x steps vectors.
    """
    n, generator = len(matrix), torch.Generator().manual_seed(0)
    size = (n, count + OVERSAMPLING)
    start = torch.randn(size, generator=generator, dtype=torch.float32, device="cpu")
    block = torch.linalg.qr(start.to(matrix)).Q
    basis, projected = block[:, :0], block.new_zeros(0, 0, dtype=torch.float64)
    total = 0.0
    while True:
        product = matrix @ block
        # extend basis^T A basis by the columns and rows of the new block
        coupling, corner = (basis.T @ product).double(), (block.T @ product).double()
        basis = torch.cat([basis, block], dim=1)
        upper = torch.cat([projected, coupling], dim=1)
        lower = torch.cat([coupling.T, (corner + corner.T) / 2], dim=1)
        projected = torch.cat([upper, lower])
        values, vectors = torch.linalg.eigh(projected)
        previous, total = total, float(values[-count:].sum())
        width = basis.shape[1]
        if width == n or total - previous <= tolerance * total:
            return values[-count:].flip(0), basis @ vectors[:, -count:].flip(1).to(basis)
        # Repeated, since one pass leaves errors as large as the projection, and two still do when
        # little of the product lies outside the basis.
        for _ in range(3):
            product = torch.linalg.qr(product - basis @ (basis.T @ product)).Q
        block = product[:, : n - width]
