"""What guidance ascends: a diversity score of remembered and in-flight samples, and its gradient.

Features are latents flattened and scaled to unit length, where a kernel is a function of the inner
product g = <f, f_i>. With K_Z and K_T the kernel matrices of latents and prompts and A = K_Z∘K_T/n,
the gradient of a score in one raw latent z is

    (I - f f^T) sum_i w_i f_i / |z|,    w_i = (dScore/dk_i + its mirror image) dk/dg,

so it costs two passes over the window's features. All gradients are closed forms: Jalali et al.
(AISTATS 2026), appendix C, equations (24)-(27) for the Vendi pair, and the one after (27) for the
RKE pair. Derivatives of eigenvectors, which blow up for repeated eigenvalues, never occur.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance.centering import beyond_rounding, centre, means_off
from vendi_guidance.guidance.window import SlidingWindow, as_rows, square_sum, unit_rows
from vendi_guidance.kernels.base import SphereKernel
from vendi_guidance.scores.entropy import entropy_gradient, renyi_entropy, truncate
from vendi_guidance.scores.linalg import FLOAT64_UP_TO


class Ascent(NamedTuple):
    """A score, where it grows, and how crowded each sample's place is.

    Attributes:
        score: 0-d float64, of window and in-flight samples together.
        gradient: of the score in the raw latents in flight, shaped like them, float32 or float64.
        crowding: (b,) in [0, 1]: the largest similarity to another sample with a like prompt; 0
            where no other latent points to the same side for such a prompt, 1 for a duplicate.
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
    """A score of all samples so far, as a function of the latents in flight."""

    kernel_latent: SphereKernel

    @property
    def prompt_kernel(self) -> SphereKernel | None:
        """How alike two prompts are; None if the objective does not look at prompts."""
        return None

    def of_latents_alone(self) -> "Objective":
        """The same whatever the prompts."""
        return self

    def value_and_gradient(
        self, latents: Tensor, prompts: Tensor | None, window: SlidingWindow
    ) -> tuple[Tensor, Tensor]:
        """The score of window and in-flight samples together, and its gradient in the latents.

        Args:
            latents: (b, ...) raw latents in flight, b >= 1.
            prompts: (b, m) their prompt embeddings; None will do for an unconditional objective.
            window: the N >= 0 samples remembered.

        Returns:
            The score, 0-d float64; the gradient, shaped like latents, in float64 for float64
            latents and float32 otherwise. Both are finite for finite input.

        Raises:
            ValueError: samples that do not fit one another or the window.
        """
        ascent = self.ascend(latents, prompts, window)
        return ascent.score, ascent.gradient

    @torch.no_grad()
    def ascend(
        self,
        latents: Tensor,
        prompts: Tensor | None,
        window: SlidingWindow,
        center: str | None = None,
    ) -> Ascent:
        """`value_and_gradient`, and how crowded each sample's neighbourhood is.

        Args:
            center: a mean to take off the features before they are scaled to unit length again:
                "prompt", that over window and batch weighted by the prompt kernel with the sample's
                own prompt; "global", the plain one; or None. Without a prompt kernel they are one.
        """
        self._check(latents, prompts, window)
        z, n = as_rows(latents), len(window)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        f = unit_rows(z)
        inner = torch.cat([window.products(f), f @ f.T], dim=1)
        t, prompt = self._prompt_similarities(prompts, window, inner)
        if center is None:
            latent = _with_diagonal(self.kernel_latent.on_sphere(inner), 1)
            similar = _Similarities(latent, prompt, t)
            score, weights = self._score_and_weights(similar, window)
            _with_diagonal(weights, 0)  # k(z, z) is 1 wherever z goes
            crowding = self._crowding(similar)
        else:
            score, weights, crowding = self._centred(inner, prompt, t, window, center)
        weights = weights.to(f)
        pull = window.add_weighted(weights[:, n:] @ f, weights[:, :n])
        tangent = pull - (pull * f).sum(dim=1, keepdim=True) * f
        gradient = (beyond_rounding(tangent, weights) / norm).where(norm != 0, 0)
        return Ascent(score, gradient.view_as(latents), crowding)

    @torch.no_grad()
    def mean_of_alike(
        self, latents: Tensor, prompts: Tensor | None, window: SlidingWindow
    ) -> Tensor:
        """The mean of all samples' features, weighted by how alike prompts are.

        Args:
            latents, prompts, window: as `value_and_gradient` takes them.

        Returns:
            One mean for each sample, scaled as its latent is to its feature: shaped like latents,
            float32 or float64.

        Raises:
            ValueError: samples that do not fit one another or the window.
        """
        self._check(latents, prompts, window)
        z, n = as_rows(latents), len(window)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        f = unit_rows(z)
        _, weights = self._prompt_similarities(prompts, window, f.new_empty(len(f), n + len(f)))
        weights = weights / weights.sum(dim=1, keepdim=True)
        mean = window.add_weighted(weights[:, n:] @ f, weights[:, :n])
        return (mean * norm).view_as(latents)

    def _check(self, latents: Tensor, prompts: Tensor | None, window: SlidingWindow) -> None:
        """Raise ValueError if these cannot be compared with the window's samples."""
        if self.prompt_kernel is None:
            window.check_shape(latents)
        elif prompts is None:
            raise ValueError(f"{type(self).__name__} needs prompt embeddings, got none")
        else:
            window.check(latents, prompts)

    def _prompt_similarities(
        self, prompts: Tensor | None, window: SlidingWindow, like: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """(b, m) unit-length prompts, and (b, N + b) their kernel with all, as `like`."""
        if self.prompt_kernel is None or prompts is None:
            return None, torch.ones_like(like)
        t = unit_rows(as_rows(prompts)).to(like)
        known = t[:0] if window.prompts is None else window.prompts.to(t)
        products = torch.cat([t @ known.T, t @ t.T], dim=1)
        return t, _with_diagonal(self.prompt_kernel.on_sphere(products), 1)

    def _centred(
        self,
        inner: Tensor,
        prompt: Tensor,
        prompts: Tensor | None,
        window: SlidingWindow,
        center: str,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score, weights (b, N + b) and crowding where means are taken off."""
        n, b = len(window), len(inner)
        everyones_prompt, off, settled = self._settled(prompt, prompts, window, center)
        centred = centre(off, settled, inner)
        latent = self.kernel_latent.on_sphere(centred.inner).fill_diagonal_(1)
        # every row changes when one sample moves, so all stand where those in flight do
        everyone = _Similarities(latent, everyones_prompt, prompts)
        score, weights = self._score_and_weights(everyone, SlidingWindow(1), memo=window)
        weights = weights.to(inner).fill_diagonal_(0)
        crowding = self._crowding(_Similarities(latent[n:], prompt, prompts))
        return score, centred.pull_back(weights, b), crowding

    def _settled(
        self, prompt: Tensor, prompts: Tensor | None, window: SlidingWindow, center: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The whole prompt kernel matrix, and `centre`'s first two arguments: the same at every
        step of a batch, so computed once for it."""
        key = ("centring", self.prompt_kernel, center, prompt.dtype, prompt.device)
        known, b, result = window.remember(key, lambda: (None, None, None))
        if b != len(prompt) or not _same(known, prompts):
            whole = _bordered(window.prompt_gram(self.prompt_kernel), prompt)
            off = means_off(whole if center == "prompt" else torch.ones_like(whole))
            before = off[:, : len(window)]
            result = whole, off, before @ window.latent_products.to(whole) @ before.T
            window.remember(key, lambda: (prompts, len(prompt), result), anew=True)
        return result

    def _crowding(self, similar: _Similarities) -> Tensor:
        # Measured from the similarity of latents at right angles: those have nothing in common.
        strange = self.kernel_latent.on_sphere(similar.latent.new_zeros(()))
        others = ((similar.latent - strange) / (1 - strange)).clamp(0, 1) * similar.prompt
        return _with_diagonal(others, 0).amax(dim=1)

    @abstractmethod
    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow, memo: SlidingWindow | None = None
    ) -> tuple[Tensor, Tensor]:
        """The score, and (b, N + b) weights w of the module's formula.

        Args:
            similar: of the b samples in flight.
            window: the other N.
            memo: what remembers values for the next step; None is the window.
        """


class _OrderTwo(Objective):
    """|K_T|_F^2 / |K_Z∘K_T|_F^2: no spectrum, O(b N D)."""

    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow, memo: SlidingWindow | None = None
    ) -> tuple[Tensor, Tensor]:
        of_prompts, of_both = window.square_sums(self.kernel_latent, self.prompt_kernel)
        joint = similar.latent * similar.prompt
        denominator = of_both.to(joint.device) + _border_square_sum(joint)
        score = (of_prompts.to(joint.device) + _border_square_sum(similar.prompt)) / denominator
        slope = self.kernel_latent.slope_on_sphere(similar.latent)
        return score, joint.mul_(similar.prompt).mul_(slope).mul_(-4 * score / denominator)


class _OrderOne(Objective):
    """exp(H(K_Z∘K_T / n) - H(K_T / n)): one eigendecomposition of n = N + b rows."""

    truncation: int | None

    def __post_init__(self) -> None:
        truncate(torch.ones(1), self.truncation)  # refuses what is no rank, before any picture

    def _score_and_weights(
        self, similar: _Similarities, window: SlidingWindow, memo: SlidingWindow | None = None
    ) -> tuple[Tensor, Tensor]:
        prompt = _bordered(window.prompt_gram(self.prompt_kernel), similar.prompt)
        joint = prompt * _bordered(window.latent_gram(self.kernel_latent), similar.latent)
        n, b = len(joint), len(similar.latent)
        if n <= FLOAT64_UP_TO:
            joint = joint.double()
        if not torch.isfinite(joint).all():  # LAPACK would raise; the caller skips the step
            return joint.new_full((), torch.nan), torch.full_like(similar.latent, torch.nan)
        eigenvalues, eigenvectors = torch.linalg.eigh(joint / n)
        entropy = renyi_entropy(truncate(eigenvalues, self.truncation))
        score = (entropy - self._prompt_entropy(prompt, similar, memo or window)).exp().double()
        slope_in_joint = entropy_gradient(eigenvalues, eigenvectors, self.truncation, last=b)
        slope = self.kernel_latent.slope_on_sphere(similar.latent)
        return score, 2 / n * score * slope_in_joint * similar.prompt * slope

    def _prompt_entropy(
        self, prompt: Tensor, similar: _Similarities, window: SlidingWindow
    ) -> Tensor | float:
        """H(K_T / n): the same at every step of a batch, so computed once for it."""
        if similar.prompts is None:
            return 0.0
        key = ("prompt entropy", self.prompt_kernel, self.truncation, prompt.dtype, prompt.device)
        prompts, entropy = window.remember(key, lambda: (None, None))
        if not _same(prompts, similar.prompts):
            matrix = prompt.double() if len(prompt) <= FLOAT64_UP_TO else prompt
            eigenvalues = torch.linalg.eigvalsh(matrix / len(prompt))
            entropy = renyi_entropy(truncate(eigenvalues, self.truncation))
            window.remember(key, lambda: (similar.prompts, entropy), anew=True)
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

    @property
    def prompt_kernel(self) -> SphereKernel:
        return self.kernel_prompt


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
    """exp(H(K_Z∘K_T / n) - H(K_T / n)), both truncated to `truncation` eigenvalues if given.

    Raises:
        ValueError: truncation < 1.
    """

    kernel_latent: SphereKernel
    kernel_prompt: SphereKernel
    truncation: int | None = None

    def of_latents_alone(self) -> Vendi:
        return Vendi(self.kernel_latent, self.truncation)

    @property
    def prompt_kernel(self) -> SphereKernel:
        return self.kernel_prompt


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


def _border_square_sum(border: Tensor) -> Tensor:
    """Sum of squares of `_bordered` without its (N, N) block."""
    return 2 * square_sum(border) - square_sum(border[:, -len(border) :])


OBJECTIVES: dict[str, type[Objective]] = {
    "vendi": Vendi,
    "rke": RKE,
    "conditional-vendi": ConditionalVendi,
    "conditional-rke": ConditionalRKE,
}
