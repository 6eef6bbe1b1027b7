"""The objectives of guidance: diversity scores of remembered and in-flight samples, and gradients.

Features z (latents, or what another space compares) are flattened and scaled to unit length, u.
There a kernel is a function of the inner product g = <u, u_i>. With K_Z and K_T the kernel matrices
of features and prompts, and A = K_Z∘K_T/n, the gradient of a score in z is

    (I - u u^T) sum_i w_i u_i / |z|,    w_i = (dScore/dk_i + its mirror image) dk/dg,

so it costs two passes over the window. All gradients are closed forms: Jalali et al. (AISTATS
2026), appendix C, equations (24)-(27) for the Vendi pair, and the one after (27) for the RKE pair.
Derivatives of eigenvectors, which diverge for repeated eigenvalues, are not needed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, squared_norm, unit_rows
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.base import SphereKernel
from vendi_guidance.kernels.rounding import coarser, exact_ones, rounding
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.kernels.subsets import greedy_subset
from vendi_guidance.scores.entropy import entropy_gradient, renyi_entropy, truncate
from vendi_guidance.scores.linalg import FLOAT64_UP_TO


class Gradient(NamedTuple):
    """A score, and its gradient in the features in flight."""

    score: Tensor  # 0-d float64, of window and in-flight samples together
    gradient: Tensor  # shaped like the features, float32 or float64


class _Similarities(NamedTuple):
    """Kernel values between the b samples in flight and all N + b samples, themselves last."""

    inner: Tensor  # (b, N + b) inner products of the features
    latent: Tensor  # (b, N + b)
    prompt: Tensor  # (b, N + b)
    prompts: Tensor | None  # (b, m) unit length


@dataclass(frozen=True)
class MedianGaussian:
    """A Gaussian kernel whose bandwidth is a share of the median distance between samples of
    similar prompts."""

    share: float

    def fit(self, inner: Tensor, similarity: Tensor) -> Gaussian:
        """The kernel, from (b, N + b) inner products of features and similarities of prompts."""
        others = _with_diagonal(similarity.clone(), 0) > 0.5
        squared = (2 - 2 * inner[others]).clamp(min=0)  # exactly 0 for duplicates
        median = float(squared.median().sqrt()) if len(squared) else 1.0
        # duplicates give no bandwidth
        return Gaussian(self.share * median if math.isfinite(median) and median > 0 else 1.0)


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

    @torch.no_grad()
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
        similar, kernel = self._similarities(unit, prompts, window)
        score, weights = self._score_and_weights(similar, window, kernel)
        _with_diagonal(weights, 0)  # k(z, z) is 1 wherever z goes
        weights = weights.to(unit)
        pull = window.add_weighted(weights[:, n:] @ unit, weights[:, :n])
        tangent = pull - (pull * unit).sum(dim=1, keepdim=True) * unit
        stored = window.dtype if n else unit.dtype
        tangent = _beyond_rounding(tangent, weights, stored)
        gradient = (tangent / norm).where(norm != 0, 0)
        return Gradient(score, gradient.view_as(features))

    @torch.no_grad()
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
        repeated = None if prompts is None else prompts.repeat(count, 1)
        unit = unit_rows(as_rows(candidates.flatten(0, 1)))
        finite = unit.isfinite().all(dim=1, keepdim=True)
        unit = unit.where(finite, 0)
        similar, kernel = self._similarities(unit, repeated, window)
        # candidates with NaN get similarity 0, also to themselves, so that they are taken last
        joint = similar.latent * similar.prompt * finite
        border, among = joint.split([len(window), count * b], dim=1)
        among = among * finite.T
        if len(window):
            nearest = border.amax(dim=0).topk(min(NEAREST, len(window))).indices
            known = window.latent_gram(kernel) * window.prompt_gram(self.kernel_prompt)
            known = known[nearest][:, nearest].to(border)
            known.diagonal().add_(RIDGE)
            among = among - border[:, nearest] @ torch.linalg.solve(known, border[:, nearest].T)
        # on the CPU, where the many operations on a few numbers need no launches
        places = torch.arange(count * b, device="cpu") % b
        taken = torch.tensor(greedy_subset(among.double().cpu(), places, b), device="cpu")
        rows = taken[places[taken].argsort()].to(unit.device)
        # the next gradient is at these samples: saves a pass over the window
        window.cache["taken"] = unit[rows], similar.inner[rows, : len(window)]
        return rows // b

    @torch.no_grad()
    def similarity(self, prompts: Tensor | None, like: Tensor) -> Tensor:
        """(b, b) similarity of the prompts of samples in flight, in the dtype of `like`."""
        empty = SlidingWindow(1)
        self._check(like, prompts, empty)
        return self._prompt_similarities(prompts, empty, like.new_empty(len(like), len(like)))[1]

    def _check(self, features: Tensor, prompts: Tensor | None, window: SlidingWindow) -> None:
        """Raise ValueError if these cannot be compared with the window's samples."""
        if self.kernel_prompt is not None and prompts is None:
            raise ValueError("a conditional objective needs prompt embeddings, got none")
        if self.kernel_prompt is None:
            window.check_shape(features)
        else:
            window.check(features, prompts)

    def _similarities(
        self, unit: Tensor, prompts: Tensor | None, window: SlidingWindow
    ) -> tuple[_Similarities, SphereKernel]:
        """The similarities of (b, D) unit-length features, and their kernel."""
        rows, products = window.cache.get("taken", (None, None))
        if not _same(rows, unit):
            products = exact_ones(window.products(unit), unit.shape[1], window.dtype)
        inner = torch.cat([products, exact_ones(unit @ unit.T, unit.shape[1])], dim=1)
        unit_prompts, prompt = self._prompt_similarities(prompts, window, inner)
        kernel = self.kernel_latent
        if isinstance(kernel, MedianGaussian):
            kernel = kernel.fit(inner, prompt)
        latent = _with_diagonal(kernel.on_sphere(inner), 1)
        return _Similarities(inner, latent, prompt, unit_prompts), kernel

    def _prompt_similarities(
        self, prompts: Tensor | None, window: SlidingWindow, like: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """(b, m) unit-length prompts, and (b, N + b) their kernel, in the dtype of `like`."""
        if self.kernel_prompt is None or prompts is None:
            return None, torch.ones_like(like)
        rows = unit_rows(as_rows(prompts))
        unit, known = rows.to(like), rows[:0] if window.prompts is None else window.prompts
        products = torch.cat([unit @ known.to(unit).T, unit @ unit.T], dim=1)
        products = exact_ones(products, unit.shape[1], coarser(rows.dtype, known.dtype))
        return unit, _with_diagonal(self.kernel_prompt.on_sphere(products), 1)

    @abstractmethod
    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow, kernel: SphereKernel
    ) -> tuple[Tensor, Tensor]:
        """The score, and (b, N + b) weights w of the module's formula."""


class RKE(Objective):
    """|K_T|_F^2 / |K_Z∘K_T|_F^2: no spectrum, O(b N D)."""

    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow, kernel: SphereKernel
    ) -> tuple[Tensor, Tensor]:
        joint = similar.latent * similar.prompt
        known = window.squared_norms(kernel, self.kernel_prompt)
        of_both = _squared_norm(joint) + known[1].to(joint.device)
        score = (_squared_norm(similar.prompt) + known[0].to(joint.device)) / of_both
        slope = kernel.slope_on_sphere(similar.latent)
        return score, joint.mul_(similar.prompt).mul_(slope).mul_(-4 * score / of_both)


@dataclass(frozen=True)
class Vendi(Objective):
    """exp(H(K_Z∘K_T / n) - H(K_T / n)): one eigendecomposition of n = N + b rows.

    The truncation is the number of largest eigenvalues kept of both matrices; None keeps all.
    """

    truncation: int | None = None

    def __post_init__(self) -> None:
        truncate(torch.ones(1), self.truncation)  # raises for an invalid rank, before any image

    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow, kernel: SphereKernel
    ) -> tuple[Tensor, Tensor]:
        prompt = _bordered(window.prompt_gram(self.kernel_prompt), similar.prompt)
        latent = _bordered(window.latent_gram(kernel), similar.latent)
        joint = prompt * latent
        n, b = len(joint), len(similar.latent)
        if n <= FLOAT64_UP_TO:
            joint = joint.double()
        if not torch.isfinite(joint).all():  # LAPACK would raise; the caller skips the step
            return joint.new_full((), torch.nan), torch.full_like(similar.latent, torch.nan)
        eigenvalues, eigenvectors = torch.linalg.eigh(joint / n)
        entropy = renyi_entropy(truncate(eigenvalues.double(), self.truncation))
        score = (entropy - self._prompt_entropy(prompt, similar, window.cache)).exp().double()
        slope_in_joint = entropy_gradient(eigenvalues, eigenvectors, self.truncation, last=b)
        slope = kernel.slope_on_sphere(similar.latent)
        return score, 2 / n * score * slope_in_joint * similar.prompt * slope

    def _prompt_entropy(
        self, prompt: Tensor, similar: _Similarities, cache: dict[Hashable, Any]
    ) -> Tensor | float:
        """H(K_T / n), cached for a batch."""
        if similar.prompts is None:
            return 0.0
        key = ("prompt entropy", self.kernel_prompt, self.truncation, prompt.dtype, prompt.device)
        prompts, entropy = cache.get(key, (None, None))
        if not _same(prompts, similar.prompts):
            matrix = prompt.double() if len(prompt) <= FLOAT64_UP_TO else prompt
            eigenvalues = torch.linalg.eigvalsh(matrix / len(prompt))
            entropy = renyi_entropy(truncate(eigenvalues.double(), self.truncation))
            cache[key] = (similar.prompts, entropy)
        return entropy


def _beyond_rounding(rows: Tensor, terms: Tensor, stored: torch.dtype) -> Tensor:
    """Set to zero the rows, (b, n), that are mere rounding errors, since a guidance step uses their
    direction alone. They are sums of unit rows stored in a dtype, with weights `terms`, (b, m)."""
    scaled = torch.promote_types(stored, torch.float32)
    share = rounding(coarser(rows.dtype, scaled), max(rows.shape[1], terms.shape[1]))
    share += rounding(stored, 1) if stored != scaled else 0.0
    smallest = share * terms.abs().sum(dim=1, keepdim=True)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows.masked_fill(length <= smallest, 0)  # NaN stays


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _with_diagonal(border: Tensor, value: float) -> Tensor:
    """border: (b, N + b), with the diagonal of its last b columns set to a value, in place."""
    border[:, -len(border) :].fill_diagonal_(value)
    return border


def _bordered(inner: Tensor, border: Tensor) -> Tensor:
    """The symmetric (N + b, N + b) matrix of a block (N, N) and its last rows (b, N + b)."""
    n = len(inner)
    return torch.cat([torch.cat([inner.to(border), border[:, :n].T], dim=1), border])


def _squared_norm(border: Tensor) -> Tensor:
    """The squared Frobenius norm of `_bordered` without its (N, N) block."""
    return 2 * squared_norm(border) - squared_norm(border[:, -len(border) :])


OBJECTIVES: dict[str, type[Objective]] = {
    "vendi": Vendi,
    "rke": RKE,
    "conditional-vendi": Vendi,  # those two compare prompts
    "conditional-rke": RKE,
}
