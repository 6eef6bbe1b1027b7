"""Algorithms for the entropy of K/n, whose exponential is a diversity score.

`Exact` decomposes the matrix itself, `RandomFourier` a low-rank approximation. Conditional scores
need no special case: K_X∘K_T is the kernel matrix of one kernel, `kernels.standard.Product`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel, check_count
from vendi_guidance.kernels.parts import Part, squared_norms
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.linalg import Map, eigenvalues, matrix_entropy, second_moments


@dataclass(frozen=True)
class Exact:
    """Dense eigendecomposition of K/n: O(n^3) time, O(n^2) memory.

    Three cases are cheaper. Order 2 without weights needs no eigenvalues: O(n^2 d) time, O(n d)
    memory. If K = Z Z^T and Z has w < n columns (cosine kernels: w = d; two of them jointly:
    w = d m), the (w, w) matrix Z^T Z has the same nonzero eigenvalues: O(n w^2 + w^3) time, O(w^2)
    memory beside x. A truncation t far below n needs only the t leading
    eigenvalues: O(n^2 t) time, with a relative error of about 1e-5 in the score.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian
        >>> from vendi_guidance.scores import Exact
        >>> Exact().eigenvalues(torch.tensor([[0.0], [0.0], [9.0]]), Gaussian(1.0))[:2]
        tensor([0.6667, 0.3333], dtype=torch.float64)
    """

    @isolated()
    def eigenvalues(self, x: Features, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
        """(min(n, w),) float64, largest first, non-negative, summing to 1."""
        return eigenvalues(_matrix(kernel.read(x), kernel, weights))

    def entropies(
        self, x: Tensor, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        """The entropy in nats of each part's K/n, or of diag(sqrt p) K diag(sqrt p), as 0-d float64
        tensors.

        x are (n, d) features as the kernels' `read` returns them, weights the (n,) probabilities p
        of the items, None for 1/n each.
        """
        use_norms = entropy.is_collision and weights is None
        if use_norms and not all(has_small_factor(part.kernel, part.of(x)) for part in parts):
            return [-norm.log() for norm in squared_norms(x, parts)]
        matrices = (_matrix(part.of(x), part.kernel, weights) for part in parts)
        return [matrix_entropy(matrix, entropy) for matrix in matrices]


@dataclass(frozen=True)
class RandomFourier:
    """Random Fourier features (FKEA): K ~ Z Z^T for Gaussian kernels and their products.

        z(x) = [cos(w_1^T x), ..., cos(w_r^T x), sin(w_1^T x), ..., sin(w_r^T x)] / sqrt(r)

    with random frequencies w_1, ..., w_r ~ N(0, I / sigma^2). O(n r (d + r) + r^3) time, O(r^2)
    memory beside x. The matrix that is decomposed, Z^T Z / n, is a mean over
    items and can be accumulated over batches and machines (Rahimi & Recht, 2007; Ospanov et al.,
    NeurIPS 2024, Algorithm 1).

    Args:
        features, seed: 2r, the number of columns of Z, and the seed of the frequencies.

    Raises:
        ValueError: features is odd or < 2; on use, the kernel is not a function of a - b.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, vendi
        >>> from vendi_guidance.scores import RandomFourier
        >>> round(float(vendi(torch.zeros(5, 3), Gaussian(1.0), spectrum=RandomFourier(64))), 3)
        1.0
    """

    features: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("features", self.features)
        if self.features % 2:
            raise ValueError(f"features must be even, cosine-sine pairs, got {self.features}")

    def map(self, kernel: Kernel, d: int) -> Map:
        """The feature map z of this kernel, (b, d) -> (b, 2r); its rows have length 1."""
        count, generator = self.features // 2, torch.Generator().manual_seed(self.seed)
        frequencies = kernel.frequencies(d, count, generator)
        if frequencies is None:
            raise ValueError(
                "random Fourier features need a Gaussian kernel or a product of Gaussian kernels, "
                f"got {kernel}: use Exact()"
            )

        def features(x: Tensor) -> Tensor:
            phases = x @ frequencies.to(x)
            largest = torch.linalg.vector_norm(phases, torch.inf)  # also NaN, and without a copy
            if phases.dtype == torch.float32 and not float(largest) < 1e3:
                phases = x.double() @ frequencies.to(x.device, torch.float64)
            return torch.cat([phases.cos(), phases.sin_()], dim=1).div_(count**0.5)

        return features

    def entropies(
        self, x: Tensor, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        """As in `Exact`, approximately."""
        moments = second_moments(x, self.maps(parts, x.shape[1]), weights)
        return [matrix_entropy(moment, entropy) for moment in moments]

    def maps(self, parts: Sequence[Part], d: int) -> list[tuple[Part, Map]]:
        """Each part of features of width d, with its `map`."""
        return [(part, self.map(part.kernel, part.width(d))) for part in parts]


Spectrum: TypeAlias = Exact | RandomFourier


def _matrix(x: Tensor, kernel: Kernel, weights: Tensor | None) -> Tensor:
    """A symmetric matrix with the nonzero eigenvalues of K/n: K/n itself, or Z^T Z/n if smaller."""
    if has_small_factor(kernel, x):
        return second_moments(x, [(Part(kernel), kernel.factor)], weights)[0]
    p = x.new_full((len(x),), 1 / len(x)) if weights is None else weights.to(x)
    root = p.sqrt()[:, None]
    return kernel.gram(x).to(x.device).mul_(root).mul_(root.T)


def has_small_factor(kernel: Kernel, x: Tensor) -> bool:
    """True if K = Z Z^T with fewer columns in Z than there are items."""
    return (kernel.rank(x.shape[1]) or len(x)) < len(x)
