"""Ways to get a spectrum: the eigenvalues of K/n, which a diversity score is an entropy of.

K_X∘K_T needs no method of its own: `kernels.join` makes it the Gram matrix of one kernel.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vendi_guidance.kernels import Cosine, Kernel

FLOAT64_UP_TO = 4096
"""Up to this many rows a matrix is decomposed in float64, beyond in the features' precision."""


class Spectrum(Protocol):
    """A way to get a spectrum."""

    def eigenvalues(self, x: Tensor, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
        """Eigenvalues of K/n, or of diag(sqrt p) K diag(sqrt p).

        Args:
            x: (n, d) features, as `as_features` returns them.
            kernel: what K is made with.
            weights: (n,) probabilities p of the items; None is 1/n each.

        Returns:
            (r,) float64, r <= n, largest first, non-negative, summing to 1. Zeros may be left out.
        """
        ...


@dataclass(frozen=True)
class Exact:
    """All eigenvalues by a dense decomposition: O(n^3) time, O(n^2) memory.

    With a cosine kernel and d < n the (d, d) matrix of the same non-zero eigenvalues is decomposed
    instead: O(n d^2 + d^3) time, O(n d) memory.
    """

    def eigenvalues(self, x: Tensor, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
        n, d = x.shape
        p = x.new_full((n,), 1 / n) if weights is None else weights.to(x)
        root = p.sqrt()[:, None]
        if isinstance(kernel, Cosine) and d < n:
            z = kernel.unit(x) * root
            matrix = z.T @ z
        else:
            matrix = kernel.gram(x).mul_(root).mul_(root.T)
        if len(matrix) <= FLOAT64_UP_TO:
            matrix = matrix.double()
        found: Tensor = torch.linalg.eigvalsh(matrix).double().flip(0).clamp_(min=0)
        return found / found.sum()
