"""Renyi entropies of a spectrum, and the gradient with respect to the matrix it belongs to.

A spectrum is a 1-D tensor of non-negative eigenvalues that sum to 1. Order 1 is the Shannon entropy
(of a matrix: von Neumann entropy). Truncation follows Definition 2 of Ospanov & Farnia (UAI 2025),
the gradient equation (24) of Jalali et al. (AISTATS 2026).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.kernels.base import check_count
from vendi_guidance.kernels.rounding import rounding


def truncate(spectrum: Tensor, rank: int | None) -> Tensor:
    """The `rank` largest eigenvalues, each increased by an equal share of the mass of the others.

    The Euclidean projection of a spectrum: (n,), in any order, onto spectra of (min(rank, n),)
    eigenvalues, largest first; None keeps all. ValueError if rank is not a whole number >= 1.
    """
    kept = _kept(len(spectrum), rank)
    top = spectrum.sort(descending=True).values[:kept]
    return top if kept == len(spectrum) else add_missing_mass(top)


def add_missing_mass(top: Tensor) -> Tensor:
    """The (t,) leading eigenvalues of a spectrum, plus equal shares of the mass that they lack."""
    return top + (1 - top.sum()).clamp(min=0) / len(top)


def renyi_entropy(spectrum: Tensor, order: float = 1.0) -> Tensor:
    """Renyi entropy in nats: H_a = log(sum p^a) / (1 - a), with its limits at a = 1 and infinity.

    Returns 0-d, 0 <= H <= log n, non-increasing in a. The spectrum p: (n,) may be in any order;
    0 log 0 is 0, and eigenvalues within rounding of 0 count as 0.
    """
    nonzero = spectrum > rounding(spectrum.dtype, len(spectrum)) * spectrum.max()
    if order == 1:  # in guidance too, where indices from a mask would wait for the device
        return torch.special.entr(spectrum.where(nonzero, 0)).sum()
    p = spectrum[nonzero]
    log_p = p.log()
    if math.isinf(order):
        return -log_p.max()
    if abs(order - 1) < 1e-3:  # log(1 + small) / small: avoid cancellation
        return torch.log1p((p * torch.expm1((order - 1) * log_p)).sum()) / (1 - order)
    return torch.logsumexp(order * log_p, dim=0) / (1 - order)


def normalised_entropy(p: Tensor) -> float:
    """The Shannon entropy of (n,) shares, up to a factor, divided by log n: from 0, where all are
    of one kind, to 1, where all n kinds are equally frequent."""
    return float(renyi_entropy(p / p.sum())) / math.log(len(p))


@dataclass(frozen=True)
class Entropy:
    """An order (see `renyi_entropy`) and a truncation rank (see `truncate`), with their errors."""

    order: float = 1.0
    truncation: int | None = None

    def __post_init__(self) -> None:
        if not self.order > 0:
            raise ValueError(f"order must be greater than 0 (infinity included), got {self.order}")
        if self.truncation is not None:
            check_count("truncation", self.truncation)

    def of(self, spectrum: Tensor) -> Tensor:
        """The entropy of (n,) eigenvalues that sum to 1, in nats, 0-d."""
        return renyi_entropy(truncate(spectrum, self.truncation), self.order)

    @property
    def is_collision(self) -> bool:
        """True for the collision entropy, -log |A|_F^2, which needs no eigenvalues."""
        return self.order == 2 and self.truncation is None


def entropy_gradient(
    eigenvalues: Tensor, eigenvectors: Tensor, rank: int | None = None, last: int | None = None
) -> Tensor:
    """Gradient of the truncated Shannon entropy of A = V diag(lambda) V^T of trace 1.

        grad_A H = -V_t diag(log(lambda + c)) V_t^T + mean(log(lambda + c)) V_t V_t^T

    where V_t holds the t = `rank` leading eigenvectors, lambda their eigenvalues, and c is the mass
    that truncation adds to each. Takes (n,) eigenvalues in any order and (n, n) eigenvectors, one
    per column. Returns (n, n), symmetric, always finite, or only its `last` rows, at a cost of n^2
    each. If lambda_t equals lambda_(t + 1), it is one of several one-sided gradients.
    """
    n = len(eigenvalues)
    kept = _kept(n, rank)
    top = slice(None) if kept == n else eigenvalues.argsort(descending=True)[:kept]
    p = eigenvalues if kept == n else add_missing_mass(eigenvalues[top])
    # A null direction of a positive semi-definite A changes the score at second order only.
    nonzero = p > n * torch.finfo(p.dtype).eps
    log_p = torch.where(nonzero, p, 1).log()
    leading = eigenvectors[:, top]
    rows = leading if last is None else leading[n - last :]
    return (rows * (log_p.mean() - log_p)) @ leading.T


def _kept(size: int, rank: int | None) -> int:
    """Number of eigenvalues that truncation at `rank` keeps, out of `size`."""
    if rank is None:
        return size
    check_count("truncation", rank)
    return min(rank, size)
