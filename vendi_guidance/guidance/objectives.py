"""The objectives of guidance: diversity scores of remembered and in-flight samples, and gradients.

Features z (latents, or what another space compares) are flattened and scaled to unit length, u.
There a kernel is a function of the cosine distance g = 1 - <u, u_i>. With K_Z and K_T the kernel
matrices of features and prompts, and A = K_Z∘K_T/n, the gradient of a score in z is

    (I - u u^T) sum_i w_i u_i / |z|,    w_i = -(dScore/dk_i + its mirror image) dk/dg,

so it costs two passes over the window. Its direction needs w up to a factor only, without the
score. All gradients are closed forms: Jalali et al. (AISTATS 2026), appendix C, equations (24)-(27)
for the Vendi pair, and the one after (27) for the RKE pair. Derivatives of eigenvectors, which
diverge for repeated eigenvalues, are not needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import Samples, as_rows, lengths, unit_rows
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.base import Blocks, SphereKernel
from vendi_guidance.kernels.parts import squared_norm
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.rounding import coarser, cosine_distances, rounding
from vendi_guidance.scores.entropy import entropy_gradient, renyi_entropy, truncate
from vendi_guidance.scores.linalg import FLOAT64_UP_TO


class Gradient(NamedTuple):
    """A score, and its gradient in the features in flight."""

    score: Tensor  # 0-d float64, of window and in-flight samples together
    gradient: Tensor  # shaped like the features, float32 or float64


class _Prompts(NamedTuple):
    """What objectives need of (b, N + b) similarities of prompts: computed once a call."""

    similarity: Tensor
    weights: Tensor  # squares, see `_without_own`
    similar: Tensor  # whether beyond 0.5, without the diagonal


Slope = Callable[[], tuple[Tensor, Tensor]]
"""Computes a score, 0-d float64, and a factor of its slope."""


class _Fitted(SphereKernel):
    """A Gaussian kernel whose bandwidth is not read: that waits for the device. It is given as
    -sigma^2, 0-d."""

    def __init__(self, divisor: Tensor) -> None:
        self.divisor = divisor

    def blocks(self, x: Tensor) -> Blocks:
        raise TypeError("the bandwidth was fitted to features of unit length")

    def on_sphere(self, distances: Tensor) -> Tensor:
        return (distances / self.divisor.to(distances.device)).exp_()

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return values / self.divisor


@dataclass(frozen=True)
class MedianGaussian:
    """A Gaussian kernel whose bandwidth is a share of the median distance between samples of
    similar prompts."""

    share: float

    def fit(self, distances: Tensor, similar: Tensor) -> SphereKernel:
        """The kernel, from (b, N + b) cosine distances, half the squared distances, and whether
        prompts are similar."""
        median, twice = distances.where(similar, torch.nan).nanmedian(), 2 * self.share**2
        # duplicates give no bandwidth: it is 1
        return _Fitted(median.where(median > 0, 1 / twice).mul_(-twice))


@dataclass(frozen=True)
class Objective(ABC):
    """A score of all samples so far, as a function of the features in flight.

    The gradient treats an automatic bandwidth as constant. Without a prompt kernel prompts are not
    compared: all entries of K_T are 1.
    """

    kernel_latent: SphereKernel | MedianGaussian
    kernel_prompt: SphereKernel | None = None

    @isolated()
    def gradient(self, features: Tensor, prompts: Tensor | None, window: SlidingWindow) -> Gradient:
        """The score of window and in-flight samples together, and its gradient in the features.

        Args:
            features: (b, ...) of the samples in flight, of any length, b >= 1.
            prompts: (b, m) their prompt embeddings; None for an unconditional objective.
            window: the N >= 0 samples remembered.

        Returns:
            Finite values for finite input; float64 for float64 features and float32 otherwise.

        Raises:
            ValueError: the samples do not fit one another or the window.
        """
        direction, slope = self._ascent(features, prompts, window)
        norm, (score, along) = lengths(features, direction.dtype), slope()
        along = torch.where(norm == 0, 0, along / norm).to(direction)
        return Gradient(score, direction.mul_(along).view_as(features))

    @isolated()
    def direction(self, features: Tensor, prompts: Tensor | None, window: SlidingWindow) -> Tensor:
        """(b, D) unit rows: the direction of `gradient` in the flattened features, 0 where only
        rounding errors are left. Takes half as many operations."""
        return self._ascent(features, prompts, window)[0]

    def _ascent(
        self, features: Tensor, prompts: Tensor | None, window: SlidingWindow
    ) -> tuple[Tensor, Slope]:
        """The direction of the gradient, and what computes the score and its slopes, (b, 1), along
        the direction in unit-length features."""
        samples = window.of_shape(features.shape[1:])
        self._check(features, prompts, samples)
        unit, n = unit_rows(as_rows(features)), len(samples)
        weights, scale = self._weights(*self._similarities(unit, prompts, samples), samples)
        total = torch.linalg.vector_norm(weights, 1, dim=1, keepdim=True)
        weights = weights.div_(total).to(unit)
        pull = samples.add_weighted(weights[:, n:] @ unit, weights[:, :n])
        tangent = pull.addcmul_(torch.einsum("bd,bd->b", pull, unit)[:, None], unit, value=-1)
        length = torch.linalg.vector_norm(tangent, dim=1, keepdim=True)

        def slope() -> tuple[Tensor, Tensor]:
            score, factor = scale()
            return score, factor * total * length

        least = _rounding_of(tangent, samples)
        return tangent.div_(torch.threshold(length, least, torch.inf)), slope

    @isolated()
    def similarity(self, prompts: Tensor | None, like: Tensor) -> Tensor:
        """(b, b) similarity of the prompts of samples in flight, in the dtype of `like`."""
        empty = Samples(1)
        self._check(like, prompts, empty)
        shape = like.new_empty(len(like), len(like))
        return self._of_prompts(prompts, empty, shape).similarity

    def _check(self, features: Tensor, prompts: Tensor | None, samples: Samples) -> None:
        """Raise ValueError if these cannot be compared with those remembered."""
        if self.kernel_prompt is not None:
            if prompts is None:
                raise ValueError("a conditional objective needs prompt embeddings, got none")
            samples.check(features, prompts)

    def _similarities(
        self, unit: Tensor, prompts: Tensor | None, samples: Samples
    ) -> tuple[Tensor, _Prompts, SphereKernel]:
        """(b, N + b) similarities of unit-length features with the window's and themselves; what is
        needed of the prompts; and the features' kernel."""
        stored = samples.features.dtype if len(samples) else unit.dtype
        distances = cosine_distances(samples.products(unit), unit.shape[1], stored)
        of_prompts = self._of_prompts(prompts, samples, distances)
        kernel = self.kernel_latent
        if isinstance(kernel, MedianGaussian):
            kernel = kernel.fit(distances, of_prompts.similar)
        return kernel.on_sphere(distances), of_prompts, kernel

    def _of_prompts(self, prompts: Tensor | None, samples: Samples, like: Tensor) -> _Prompts:
        """What is needed of b prompts, in the dtype and shape of `like`."""
        kernel, prompts = self.kernel_prompt, prompts if self.kernel_prompt else None

        def similarity() -> Tensor:
            if kernel is None or prompts is None:
                return torch.ones_like(like)
            rows = unit_rows(as_rows(prompts))
            unit, known = rows.to(like), rows[:0] if samples.prompts is None else samples.prompts
            products = torch.cat([unit @ known.to(unit).T, unit @ unit.T], dim=1)
            stored = coarser(rows.dtype, known.dtype)
            found = kernel.on_sphere(cosine_distances(products, unit.shape[1], stored))
            return _with_diagonal(found, 1)

        def compute() -> _Prompts:
            found = similarity()
            similar = _with_diagonal(found > 0.5, False)
            return _Prompts(found, _without_own(found.square()), similar)

        key = kernel, len(like), like.dtype, like.device
        found: _Prompts = samples.cached("prompts", key, compute, prompts)
        return found

    @abstractmethod
    def _weights(
        self, latent: Tensor, of_prompts: _Prompts, kernel: SphereKernel, samples: Samples
    ) -> tuple[Tensor, Slope]:
        """(b, N + b) weights w of the module's formula, up to a positive factor; and what computes
        the score and this factor."""


class RKE(Objective):
    """|K_T|_F^2 / |K_Z∘K_T|_F^2: no spectrum, O(b N D)."""

    def _weights(
        self, latent: Tensor, of_prompts: _Prompts, kernel: SphereKernel, samples: Samples
    ) -> tuple[Tensor, Slope]:
        prompt = of_prompts.similarity

        def scale() -> tuple[Tensor, Tensor]:
            known = samples.prompt_gram(self.kernel_prompt)
            known_of_both = samples.latent_gram(kernel) * known
            joint = _with_diagonal(latent, 1) * prompt
            of_both = _squared_norm(joint, squared_norm(known_of_both))
            score = _squared_norm(prompt, squared_norm(known)) / of_both
            return score, 4 * score / of_both

        return kernel.slope_on_sphere(latent).mul_(latent).mul_(of_prompts.weights), scale


@dataclass(frozen=True)
class Vendi(Objective):
    """exp(H(K_Z∘K_T / n) - H(K_T / n)): one eigendecomposition of n = N + b rows.

    The truncation is the number of largest eigenvalues kept of both matrices; None keeps all.
    """

    truncation: int | None = None

    def __post_init__(self) -> None:
        truncate(torch.ones(1), self.truncation)  # raises for an invalid rank, before any image

    def _weights(
        self, latent: Tensor, of_prompts: _Prompts, kernel: SphereKernel, samples: Samples
    ) -> tuple[Tensor, Slope]:
        prompt = of_prompts.similarity
        prompts = _bordered(samples.prompt_gram(self.kernel_prompt), prompt)
        joint = prompts * _bordered(samples.latent_gram(kernel), _with_diagonal(latent, 1))
        n, b = len(joint), len(latent)
        if n <= FLOAT64_UP_TO:
            joint = joint.double()

        # LAPACK would raise for NaN and infinity, which the slope keeps
        eigenvalues, eigenvectors = torch.linalg.eigh(joint.nan_to_num(0, 0, 0).div_(n))

        def scale() -> tuple[Tensor, Tensor]:
            entropy = renyi_entropy(truncate(eigenvalues.double(), self.truncation))
            if self.kernel_prompt is not None:
                known = torch.linalg.eigvalsh(prompts.to(joint).nan_to_num(0, 0, 0).div_(n))
                entropy = entropy - renyi_entropy(truncate(known.double(), self.truncation))
            score = (entropy + (0 * joint).sum()).exp().double()
            return score, 2 / n * score

        slope_in_joint = entropy_gradient(eigenvalues, eigenvectors, self.truncation, last=b)
        weights = -slope_in_joint * prompt * kernel.slope_on_sphere(latent)
        return _without_own(weights), scale


def _rounding_of(means: Tensor, samples: Samples) -> float:
    """The length of rounding errors of weighted means, (b, D), of rows of the window and in flight:
    what is shorter has no direction."""
    stored = samples.features.dtype if len(samples) else means.dtype
    scaled = torch.promote_types(stored, torch.float32)
    terms = max(means.shape[1], len(samples) + len(means))
    share = rounding(coarser(means.dtype, scaled), terms)
    return share + (rounding(stored, 1) if stored != scaled else 0.0)


def _with_diagonal(border: Tensor, value: float) -> Tensor:
    """border: (b, N + b), with the diagonal of its last b columns set to a value, in place."""
    border[:, -len(border) :].fill_diagonal_(value)
    return border


def _without_own(weights: Tensor) -> Tensor:
    """No weight for a sample in its own gradient, since k(z, z) is 1 wherever z goes: not quite 0,
    so that weights have a sum to divide by."""
    return _with_diagonal(weights, 1e-30)


def _bordered(inner: Tensor, border: Tensor) -> Tensor:
    """The symmetric (N + b, N + b) matrix of a block (N, N) and its last rows (b, N + b)."""
    n = len(inner)
    return torch.cat([torch.cat([inner.to(border), border[:, :n].T], dim=1), border])


def _squared_norm(border: Tensor, inner: Tensor) -> Tensor:
    """The squared Frobenius norm of `_bordered`, from the one of its (N, N) block."""
    columns = torch.linalg.vector_norm(border, dim=0).double()
    columns[-len(border) :].mul_(0.5**0.5)
    return torch.add(inner.to(columns.device), columns.dot(columns), alpha=2)


OBJECTIVES: dict[str, type[Objective]] = {
    "vendi": Vendi,
    "rke": RKE,
    "conditional-vendi": Vendi,  # those two compare prompts
    "conditional-rke": RKE,
}
