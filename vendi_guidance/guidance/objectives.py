"""What guidance ascends: a diversity score of remembered and in-flight samples, and its gradient.

Features z (latents, or what another space compares) are flattened and scaled to unit length, u,
where a kernel is a function of the inner product g = <u, u_i>. With K_Z and K_T the kernel matrices
of features and prompts and A = K_Z∘K_T/n, the gradient of a score in z is

    (I - u u^T) sum_i w_i u_i / |z|,    w_i = (dScore/dk_i + its mirror image) dk/dg,

so it costs two passes over the window. All gradients are closed forms: Jalali et al. (AISTATS
2026), appendix C, equations (24)-(27) for the Vendi pair, and the one after (27) for the RKE pair.
Derivatives of eigenvectors, which diverge for repeated eigenvalues, never occur.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance.centering import beyond_rounding, mean_removal, subtract_means
from vendi_guidance.guidance.window import SlidingWindow, as_rows, squared_norm, unit_rows
from vendi_guidance.kernels.base import SphereKernel
from vendi_guidance.scores.entropy import entropy_gradient, renyi_entropy, truncate
from vendi_guidance.scores.linalg import FLOAT64_UP_TO


class Gradient(NamedTuple):
    """A score, its gradient, and how crowded each sample's neighbourhood is.

    Attributes:
        score: 0-d float64, of window and in-flight samples together.
        gradient: of the score in the features in flight, shaped like them, float32 or float64.
        crowding: (b,) in [0, 1]: the largest similarity to another sample of a similar prompt; 0
            where no other sample is more similar than at a right angle, 1 for a duplicate.
    """

    score: Tensor
    gradient: Tensor
    crowding: Tensor


class _Similarities(NamedTuple):
    """Kernel values of the b samples in flight with all N + b samples, themselves last."""

    latent: Tensor  # (b, N + b)
    prompt: Tensor  # (b, N + b)
    prompts: Tensor | None  # (b, m) unit length


class Objective(ABC):
    """A score of all samples so far, as a function of the features in flight."""

    kernel_latent: SphereKernel
    kernel_prompt: SphereKernel | None = None
    """None if the objective does not compare prompts."""

    def of_latents_alone(self) -> "Objective":
        """The same whatever the prompts."""
        return self

    def value_and_gradient(
        self, features: Tensor, prompts: Tensor | None, window: SlidingWindow
    ) -> tuple[Tensor, Tensor]:
        """The first two of `gradient`."""
        return self.gradient(features, prompts, window)[:2]

    @torch.no_grad()
    def gradient(
        self,
        features: Tensor,
        prompts: Tensor | None,
        window: SlidingWindow,
        center: str | None = None,
    ) -> Gradient:
        """The score of window and in-flight samples together, and its gradient in the features.

        Args:
            features: (b, ...) of the samples in flight, of any length, b >= 1.
            prompts: (b, m) their prompt embeddings; None for an unconditional objective.
            window: the N >= 0 samples remembered.
            center: the mean to subtract before features are scaled to unit length again: "prompt",
                over window and batch, weighted by the prompt kernel with the sample's own prompt;
                "global", the plain mean; or None. Without a prompt kernel the two are one.

        Returns:
            Finite values for finite input; float64 for float64 features and float32 otherwise.

        Raises:
            ValueError: samples that do not fit one another or the window.
        """
        self._check(features, prompts, window)
        z, n = as_rows(features), len(window)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        unit = unit_rows(z)
        inner = torch.cat([window.products(unit), unit @ unit.T], dim=1)
        unit_prompts, prompt = self._prompt_similarities(prompts, window, inner)
        if center is None:
            latent = _with_diagonal(self.kernel_latent.on_sphere(inner), 1)
            similar = _Similarities(latent, prompt, unit_prompts)
            score, weights = self._score_and_weights(similar, window, window.cache)
            _with_diagonal(weights, 0)  # k(z, z) is 1 wherever z goes
            crowding = self._crowding(similar)
        else:
            score, weights, crowding = self._centered(inner, prompt, unit_prompts, window, center)
        weights = weights.to(unit)
        pull = window.add_weighted(weights[:, n:] @ unit, weights[:, :n])
        tangent = pull - (pull * unit).sum(dim=1, keepdim=True) * unit
        gradient = (beyond_rounding(tangent, weights) / norm).where(norm != 0, 0)
        return Gradient(score, gradient.view_as(features), crowding)

    @torch.no_grad()
    def mean_of_similar(
        self, features: Tensor, prompts: Tensor | None, window: SlidingWindow | None
    ) -> Tensor:
        """The mean of the unit-length features in flight, and of the window's if given, weighted by
        the similarity of prompts: one for each sample, scaled by its norm, shaped like features.

        Raises:
            ValueError: samples that do not fit one another or the window.
        """
        self._check(features, prompts, window)
        z, n = as_rows(features), 0 if window is None else len(window)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        unit = unit_rows(z)
        like = unit.new_empty(len(unit), n + len(unit))
        _, weights = self._prompt_similarities(prompts, window, like)
        weights = weights / weights.sum(dim=1, keepdim=True)
        mean = weights[:, n:] @ unit
        if window is not None:
            window.add_weighted(mean, weights[:, :n])
        return (mean * norm).view_as(features)

    def _check(
        self, features: Tensor, prompts: Tensor | None, window: SlidingWindow | None
    ) -> None:
        """Raise ValueError if these cannot be compared with the window's samples."""
        if self.kernel_prompt is not None and prompts is None:
            raise ValueError(f"{type(self).__name__} needs prompt embeddings, got none")
        if window is not None and self.kernel_prompt is None:
            window.check_shape(features)
        elif window is not None:
            window.check(features, prompts)

    def _prompt_similarities(
        self, prompts: Tensor | None, window: SlidingWindow | None, like: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """(b, m) unit-length prompts, and (b, N + b) their kernel with all, as `like`."""
        if self.kernel_prompt is None or prompts is None:
            return None, torch.ones_like(like)
        unit = unit_rows(as_rows(prompts)).to(like)
        known = None if window is None else window.prompts
        known = unit[:0] if known is None else known.to(unit)
        products = torch.cat([unit @ known.T, unit @ unit.T], dim=1)
        return unit, _with_diagonal(self.kernel_prompt.on_sphere(products), 1)

    def _centered(
        self,
        inner: Tensor,
        prompt: Tensor,
        prompts: Tensor | None,
        window: SlidingWindow,
        center: str,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score, weights (b, N + b) and crowding with means subtracted."""
        n, b = len(window), len(inner)
        all_prompts, off, fixed = self._fixed_in_batch(prompt, prompts, window, center)
        centered = subtract_means(off, fixed, inner)
        latent = self.kernel_latent.on_sphere(centered.inner).fill_diagonal_(1)
        # every row changes when one sample moves, so all samples count as in flight
        everyone = _Similarities(latent, all_prompts, prompts)
        score, weights = self._score_and_weights(everyone, None, window.cache)
        weights = weights.to(inner).fill_diagonal_(0)
        crowding = self._crowding(_Similarities(latent[n:], prompt, prompts))
        return score, centered.pull_back(weights, b), crowding

    def _fixed_in_batch(
        self, prompt: Tensor, prompts: Tensor | None, window: SlidingWindow, center: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The whole prompt kernel matrix, and `subtract_means`' first two arguments: computed once
        for a batch."""
        key = ("centering", self.kernel_prompt, center, prompt.dtype, prompt.device)
        known, b, result = window.cache.get(key, (None, None, None))
        if b != len(prompt) or not _same(known, prompts):
            whole = _bordered(window.prompt_gram(self.kernel_prompt), prompt)
            off = mean_removal(whole if center == "prompt" else torch.ones_like(whole))
            before = off[:, : len(window)]
            result = whole, off, before @ window.inner_products.to(whole) @ before.T
            window.cache[key] = (prompts, len(prompt), result)
        return result

    def _crowding(self, similar: _Similarities) -> Tensor:
        # measured from the similarity at a right angle, that of samples with nothing in common
        least = self.kernel_latent.on_sphere(similar.latent.new_zeros(()))
        others = ((similar.latent - least) / (1 - least)).clamp(0, 1) * similar.prompt
        return _with_diagonal(others, 0).amax(dim=1)

    @abstractmethod
    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow | None, cache: dict[Hashable, Any]
    ) -> tuple[Tensor, Tensor]:
        """The score, and (b, N + b) weights w of the module's formula.

        `window` holds the N samples not in flight, None for N = 0; `cache` values for later steps.
        """


class _OrderTwo(Objective):
    """|K_T|_F^2 / |K_Z∘K_T|_F^2: no spectrum, O(b N D)."""

    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow | None, cache: dict[Hashable, Any]
    ) -> tuple[Tensor, Tensor]:
        joint = similar.latent * similar.prompt
        of_prompts, of_both = _squared_norm(similar.prompt), _squared_norm(joint)
        if window is not None:
            known = window.squared_norms(self.kernel_latent, self.kernel_prompt)
            of_prompts = of_prompts + known[0].to(joint.device)
            of_both = of_both + known[1].to(joint.device)
        score = of_prompts / of_both
        slope = self.kernel_latent.slope_on_sphere(similar.latent)
        return score, joint.mul_(similar.prompt).mul_(slope).mul_(-4 * score / of_both)


class _OrderOne(Objective):
    """exp(H(K_Z∘K_T / n) - H(K_T / n)): one eigendecomposition of n = N + b rows."""

    truncation: int | None

    def __post_init__(self) -> None:
        truncate(torch.ones(1), self.truncation)  # refuses what is no rank, before any image

    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow | None, cache: dict[Hashable, Any]
    ) -> tuple[Tensor, Tensor]:
        latent, prompt = similar.latent, similar.prompt
        if window is not None:
            prompt = _bordered(window.prompt_gram(self.kernel_prompt), prompt)
            latent = _bordered(window.latent_gram(self.kernel_latent), latent)
        joint = prompt * latent
        n, b = len(joint), len(similar.latent)
        if n <= FLOAT64_UP_TO:
            joint = joint.double()
        if not torch.isfinite(joint).all():  # LAPACK would raise; the caller skips the step
            return joint.new_full((), torch.nan), torch.full_like(similar.latent, torch.nan)
        eigenvalues, eigenvectors = torch.linalg.eigh(joint / n)
        entropy = renyi_entropy(truncate(eigenvalues, self.truncation))
        score = (entropy - self._prompt_entropy(prompt, similar, cache)).exp().double()
        slope_in_joint = entropy_gradient(eigenvalues, eigenvectors, self.truncation, last=b)
        slope = self.kernel_latent.slope_on_sphere(similar.latent)
        return score, 2 / n * score * slope_in_joint * similar.prompt * slope

    def _prompt_entropy(
        self, prompt: Tensor, similar: _Similarities, cache: dict[Hashable, Any]
    ) -> Tensor | float:
        """H(K_T / n), computed once for a batch."""
        if similar.prompts is None:
            return 0.0
        key = ("prompt entropy", self.kernel_prompt, self.truncation, prompt.dtype, prompt.device)
        prompts, entropy = cache.get(key, (None, None))
        if not _same(prompts, similar.prompts):
            matrix = prompt.double() if len(prompt) <= FLOAT64_UP_TO else prompt
            eigenvalues = torch.linalg.eigvalsh(matrix / len(prompt))
            entropy = renyi_entropy(truncate(eigenvalues, self.truncation))
            cache[key] = (similar.prompts, entropy)
        return entropy


@dataclass(frozen=True)
class RKE(_OrderTwo):
    """n^2 / |K_Z|_F^2."""

    kernel_latent: SphereKernel


@dataclass(frozen=True)
class ConditionalRKE(_OrderTwo):
    """|K_T|_F^2 / |K_Z∘K_T|_F^2."""

    kernel_latent: SphereKernel
    kernel_prompt: SphereKernel

    def of_latents_alone(self) -> RKE:
        return RKE(self.kernel_latent)


@dataclass(frozen=True)
class Vendi(_OrderOne):
    """exp H(K_Z / n), truncated to the `truncation` largest eigenvalues if given.

    Raises:
        ValueError: truncation < 1.
    """

    kernel_latent: SphereKernel
    truncation: int | None = None


@dataclass(frozen=True)
class ConditionalVendi(_OrderOne):
    """exp(H(K_Z∘K_T / n) - H(K_T / n)), both truncated as `Vendi` is."""

    kernel_latent: SphereKernel
    kernel_prompt: SphereKernel
    truncation: int | None = None

    def of_latents_alone(self) -> Vendi:
        return Vendi(self.kernel_latent, self.truncation)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _with_diagonal(border: Tensor, value: float) -> Tensor:
    """border: (b, N + b), the diagonal of its last b columns set to a value."""
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
    "conditional-vendi": ConditionalVendi,
    "conditional-rke": ConditionalRKE,
}
