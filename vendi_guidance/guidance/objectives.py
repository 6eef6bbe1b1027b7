"""The objectives of guidance: diversity scores of remembered and in-flight samples, and gradients.

Features z (latents, or what another space compares) are flattened and scaled to unit length, u.
There a kernel is a function of the inner product g = <u, u_i>. With K_Z and K_T the kernel matrices
of features and prompts, and A = K_Z∘K_T/n, the gradient of a score in z is

    (I - u u^T) sum_i w_i u_i / |z|,    w_i = (dScore/dk_i + its mirror image) dk/dg,

so it costs two passes over the window. All gradients are closed forms: Jalali et al. (AISTATS
2026), appendix C, equations (24)-(27) for the Vendi pair, and the one after (27) for the RKE pair.
Derivatives of eigenvectors, which diverge for repeated eigenvalues, are not needed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, unit_rows
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.base import SphereKernel
from vendi_guidance.kernels.parts import squared_norm
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.rounding import coarser, exact_ones, rounding
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.kernels.subsets import greedy_subset
from vendi_guidance.scores.entropy import entropy_gradient, renyi_entropy, truncate
from vendi_guidance.scores.linalg import FLOAT64_UP_TO


class Gradient(NamedTuple):
    """A score, and its gradient in the features in flight."""

    score: Tensor  # 0-d float64, of window and in-flight samples together
    gradient: Tensor  # shaped like the features, float32 or float64


class _Fitted(Gaussian):
    """A Gaussian kernel whose bandwidth, a 0-d tensor, is not read: that waits for the device."""

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(self, sigma: Tensor) -> None:
        object.__setattr__(self, "sigma", sigma)

    def on_sphere(self, inner: Tensor) -> Tensor:
        return Gaussian.on_sphere(_Fitted(torch.as_tensor(self.sigma, device=inner.device)), inner)


@dataclass(frozen=True)
class MedianGaussian:
    """A Gaussian kernel whose bandwidth is a share of the median distance between samples of
    similar prompts."""

    share: float

    def fit(self, inner: Tensor, similarity: Tensor) -> Gaussian:
        """The kernel, from (b, N + b) inner products of features and similarities of prompts."""
        others = _with_diagonal(similarity > 0.5, False)
        squared = (2 - 2 * inner.where(others, torch.nan)).clamp_(min=0)  # 0 for duplicates
        sigma = self.share * squared.nanmedian().sqrt()
        return _Fitted(sigma.where(sigma > 0, 1))  # duplicates give no bandwidth


NEAREST = 256
"""`choose` compares candidates with this many samples of the window, the most similar ones."""

RIDGE = 1e-4
"""Added to a kernel's diagonal, since a window may hold duplicates."""


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
        self._check(features, prompts, window)
        z, n = as_rows(features), len(window)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        unit = unit_rows(z)
        score, weights = self._score_and_weights(*self._similarities(unit, prompts, window), window)
        _with_diagonal(weights, 0)  # k(z, z) is 1 wherever z goes
        weights = weights.to(unit)
        pull = window.add_weighted(weights[:, n:] @ unit, weights[:, :n])
        tangent = pull.addcmul_(torch.einsum("bd,bd->b", pull, unit)[:, None], unit, value=-1)
        stored = window.features.dtype if n else unit.dtype
        beyond = _beyond_rounding(tangent, weights, stored)
        gradient = tangent.div_(norm).masked_fill_(beyond * norm <= 0, 0)  # NaN stays
        return Gradient(score, gradient.view_as(features))

    @isolated()
    def choose(self, candidates: Tensor, prompts: Tensor | None, window: SlidingWindow) -> Tensor:
        """Choose a candidate for each sample, so that they differ from one another and from the
        window's nearest samples: greedily, by the largest determinant of the joint kernel matrix.

        Args:
            candidates: (c, b, ...) features, c for each sample in flight.
            prompts: (b, m) embeddings of the samples' prompts, or None.

        Returns:
            (b,) indices of candidates, each below c.
        """
        count, b = candidates.shape[:2]
        self._check(candidates[0], prompts, window)
        unit = unit_rows(as_rows(candidates.flatten(0, 1)))
        finite = unit.isfinite().all(dim=1, keepdim=True)
        unit = unit.where(finite, 0)
        latent, prompt, kernel = self._similarities(unit, prompts, window)
        # candidates with NaN get similarity 0, also to themselves, so that they are taken last
        joint = latent * prompt * finite
        border, among = joint.split([len(window), count * b], dim=1)
        among = among * finite.T
        if len(window):
            known = window.latent_gram(kernel) * window.prompt_gram(self.kernel_prompt)
            nearest = border.amax(dim=0).topk(min(NEAREST, len(window))).indices.to(known.device)
            known = known[nearest][:, nearest].to(border)
            known.diagonal().add_(RIDGE)
            border = border[:, nearest]  # `solve` would wait for the device to report errors
            among = among - border @ torch.linalg.solve_ex(known, border.T).result
        places = torch.arange(b, device="cpu").repeat(count)
        taken = torch.tensor(greedy_subset(among.double(), places, b), device="cpu")
        return taken[places[taken].argsort()].to(unit.device) // b

    @isolated()
    def similarity(self, prompts: Tensor | None, like: Tensor) -> Tensor:
        """(b, b) similarity of the prompts of samples in flight, in the dtype of `like`."""
        empty = SlidingWindow(1)
        self._check(like, prompts, empty)
        return self._prompt_similarities(prompts, empty, like.new_empty(len(like), len(like)))

    def _check(self, features: Tensor, prompts: Tensor | None, window: SlidingWindow) -> None:
        """Raise ValueError if these cannot be compared with the window's samples."""
        if self.kernel_prompt is None:
            return window.check_shape(features)
        if prompts is None:
            raise ValueError("a conditional objective needs prompt embeddings, got none")
        return window.check(features, prompts)

    def _similarities(
        self, unit: Tensor, prompts: Tensor | None, window: SlidingWindow
    ) -> tuple[Tensor, Tensor, SphereKernel]:
        """(c b, N + c b) similarities of unit-length features, c for each prompt, with the window's
        and themselves; those of the prompts; and the features' kernel."""
        inner = torch.cat([window.products(unit), unit @ unit.T], dim=1)
        exact_ones(inner, unit.shape[1], window.features.dtype if len(window) else unit.dtype)
        prompt = self._prompt_similarities(prompts, window, inner)
        kernel = self.kernel_latent
        if isinstance(kernel, MedianGaussian):
            kernel = kernel.fit(inner, prompt)
        return _with_diagonal(kernel.on_sphere(inner), 1), prompt, kernel

    def _prompt_similarities(
        self, prompts: Tensor | None, window: SlidingWindow, like: Tensor
    ) -> Tensor:
        """(c b, N + c b) kernel of b prompts, each c times, in the dtype and shape of `like`."""
        kernel, prompts = self.kernel_prompt, prompts if self.kernel_prompt else None

        def compute() -> Tensor:
            if kernel is None or prompts is None:
                return torch.ones_like(like)
            rows = unit_rows(as_rows(prompts))
            unit, known = rows.to(like), rows[:0] if window.prompts is None else window.prompts
            products = torch.cat([unit @ known.to(unit).T, unit @ unit.T], dim=1)
            products = exact_ones(products, unit.shape[1], coarser(rows.dtype, known.dtype))
            return _with_diagonal(kernel.on_sphere(products), 1)

        b = len(like) if prompts is None else len(prompts)
        key, times = (kernel, b, like.dtype, like.device), len(like) // b
        found: Tensor = window.cached("prompts", key, compute, prompts)
        if times == 1:
            return found
        known, own = found.split([len(window), b], dim=1)
        return torch.cat([known.repeat(times, 1), own.repeat(times, times)], dim=1)

    @abstractmethod
    def _score_and_weights(
        self, latent: Tensor, prompt: Tensor, kernel: SphereKernel, window: SlidingWindow
    ) -> tuple[Tensor, Tensor]:
        """The score, and (b, N + b) weights w of the module's formula."""


class RKE(Objective):
    """|K_T|_F^2 / |K_Z∘K_T|_F^2: no spectrum, O(b N D)."""

    def _score_and_weights(
        self, latent: Tensor, prompt: Tensor, kernel: SphereKernel, window: SlidingWindow
    ) -> tuple[Tensor, Tensor]:
        joint = latent * prompt
        of_both = _squared_norm(joint, window.squared_norm(kernel, self.kernel_prompt))

        def of_prompts() -> Tensor:
            return _squared_norm(prompt, squared_norm(window.prompt_gram(self.kernel_prompt)))

        score = window.cached("prompts squared", None, of_prompts, prompt) / of_both
        slope = kernel.slope_on_sphere(latent)
        return score, joint.mul_(prompt).mul_(slope).mul_(-4 * score / of_both)


@dataclass(frozen=True)
class Vendi(Objective):
    """exp(H(K_Z∘K_T / n) - H(K_T / n)): one eigendecomposition of n = N + b rows.

    The truncation is the number of largest eigenvalues kept of both matrices; None keeps all.
    """

    truncation: int | None = None

    def __post_init__(self) -> None:
        truncate(torch.ones(1), self.truncation)  # raises for an invalid rank, before any image

    def _score_and_weights(
        self, latent: Tensor, prompt: Tensor, kernel: SphereKernel, window: SlidingWindow
    ) -> tuple[Tensor, Tensor]:
        prompts = _bordered(window.prompt_gram(self.kernel_prompt), prompt)
        joint = prompts * _bordered(window.latent_gram(kernel), latent)
        n, b = len(joint), len(latent)
        if n <= FLOAT64_UP_TO:
            joint = joint.double()

        def of_prompts() -> Tensor | float:
            if self.kernel_prompt is None:
                return 0.0
            eigenvalues = torch.linalg.eigvalsh(prompts.to(joint).nan_to_num(0, 0, 0).div_(n))
            return renyi_entropy(truncate(eigenvalues.double(), self.truncation))

        # LAPACK would raise for NaN and infinity; a score of NaN lets the caller skip the step
        broken = (0 * joint).sum()
        eigenvalues, eigenvectors = torch.linalg.eigh(joint.nan_to_num(0, 0, 0).div_(n))
        entropy = renyi_entropy(truncate(eigenvalues.double(), self.truncation)) + broken
        known = window.cached("prompt entropy", self.truncation, of_prompts, prompt)
        score = (entropy - known).exp().double()
        slope_in_joint = entropy_gradient(eigenvalues, eigenvectors, self.truncation, last=b)
        slope = kernel.slope_on_sphere(latent)
        return score, 2 / n * score * slope_in_joint * prompt * slope


def _beyond_rounding(rows: Tensor, terms: Tensor, stored: torch.dtype) -> Tensor:
    """(b, 1) by how much rows, (b, n), are longer than rounding errors, which have no direction.
    The rows are sums of unit rows stored in a dtype, with weights `terms`, (b, m)."""
    scaled = torch.promote_types(stored, torch.float32)
    share = rounding(coarser(rows.dtype, scaled), max(rows.shape[1], terms.shape[1]))
    share += rounding(stored, 1) if stored != scaled else 0.0
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    total = torch.linalg.vector_norm(terms, 1, dim=1, keepdim=True)
    return torch.sub(length, total, alpha=share)


def _with_diagonal(border: Tensor, value: float) -> Tensor:
    """border: (b, N + b), with the diagonal of its last b columns set to a value, in place."""
    border[:, -len(border) :].fill_diagonal_(value)
    return border


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
