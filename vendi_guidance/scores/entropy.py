"""Entropies of a spectrum, and their gradient in the matrix the spectrum belongs to.

A spectrum is a 1-D tensor of eigenvalues, non-negative and summing to 1. Entropies are Renyi's;
order 1 is Shannon's (von Neumann's, for a matrix). Truncation is Definition 2 of Ospanov & Farnia
(UAI 2025), the gradient equation (24) of Jalali et al. (AISTATS 2026).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.kernels.rounding import rounding


def truncate(spectrum: Tensor, rank: int | None) -> Tensor:
    """The nearest distribution, in Euclidean distance, on the `rank` largest eigenvalues.

    (n,) eigenvalues in any order become min(rank, n), largest first; a rank of None, or n and
    above, keeps all. Raises ValueError for a rank that is not a whole number of at least 1.
    """
    kept = _kept(len(spectrum), rank)
    top = spectrum.sort(descending=True).values[:kept]
    return top if kept == len(spectrum) else fill_up(top)


def fill_up(top: Tensor) -> Tensor:
    """The leading eigenvalues top: (t,) of a spectrum, plus equal shares of its remaining mass."""
    return top + (1 - top.sum()) / len(top)


def renyi_entropy(spectrum: Tensor, order: float = 1.0) -> Tensor:
    """H_order in nats: log(sum p^order) / (1 - order), and its limits at order 1 and infinity.

    0 <= H <= log n, 0-d, decreasing in the order. The spectrum p: (n,) may be in any order; 0 log 0
    is 0, and what rounding leaves of a zero counts as zero. Raises ValueError for an order that is
    not in (0, infinity].
    """
    _check_order(order)
    p = spectrum[spectrum > rounding(spectrum.dtype, len(spectrum)) * spectrum.max()]
    log_p = p.log()
    if order == 1:
        return -(p * log_p).sum()
    if math.isinf(order):
        return -log_p.max()
    if abs(order - 1) < 1e-3:  # log of nearly 1 over nearly 0: keep every digit
        return torch.log1p((p * torch.expm1((order - 1) * log_p)).sum()) / (1 - order)
    return torch.logsumexp(order * log_p, dim=0) / (1 - order)


@dataclass(frozen=True)
class Entropy:
    """An order (see `renyi_entropy`) and a truncation (see `truncate`), with the same errors."""

    order: float = 1.0
    truncation: int | None = None

    def __post_init__(self) -> None:
        _check_order(self.order)
        if self.truncation is not None:
            check_count("truncation", self.truncation)

    def of(self, spectrum: Tensor) -> Tensor:
        """The entropy in nats, 0-d, of (n,) eigenvalues that sum to 1."""
        return renyi_entropy(truncate(spectrum, self.truncation), self.order)

    @property
    def is_collision(self) -> bool:
        """Whether it is the collision entropy, -log |A|_F^2, which needs no eigenvalues."""
        return self.order == 2 and self.truncation is None


def entropy_gradient(
    eigenvalues: Tensor, eigenvectors: Tensor, rank: int | None = None, last: int | None = None
) -> Tensor:
    """grad_A of the truncated Shannon entropy of A = V diag(lambda) V^T, over A of trace 1.

    With V_t the `rank` leading eigenvectors and c the mass that truncation adds to each:
    -V_t diag(log(lambda + c)) V_t^T + mean(log(lambda + c)) V_t V_t^T: (n, n), symmetric. Always
    finite; where lambda_rank = lambda_(rank + 1), one of several one-sided gradients.

    Args:
        eigenvalues: (n,) in any order, summing to 1.
        eigenvectors: (n, n), one per column, as `torch.linalg.eigh` gives them.
        rank: as in `truncate`, with the same errors.
        last: compute only so many of the last rows, at a cost of n^2 each; None is all.
    """
    n = len(eigenvalues)
    kept = _kept(n, rank)
    top = eigenvalues.argsort(descending=True)[:kept]
    p = eigenvalues[top] if kept == n else fill_up(eigenvalues[top])
    # A null direction of a positive semi-definite A changes the score at second order only.
    is_mass = p > n * torch.finfo(p.dtype).eps
    log_p = torch.where(is_mass, p, 1).log()
    leading = eigenvectors[:, top]
    wanted = leading if last is None else leading[n - last :]
    return (wanted * (log_p.mean() - log_p)) @ leading.T


def _check_order(order: float) -> None:
    if not order > 0:
        raise ValueError(f"order must be greater than 0 (infinity included), got {order}")


def _kept(size: int, rank: int | None) -> int:
    """How many of `size` eigenvalues truncation at `rank` keeps."""
    if rank is None:
        return size
    check_count("truncation", rank)
    return min(rank, size)
