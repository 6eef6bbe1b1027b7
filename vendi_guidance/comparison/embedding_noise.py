"""Methods that add noise to the prompts' embeddings.

Sources: Sadat et al. (ICLR 2024), and the ComfyUI node SeedVarianceEnhancer
(github.com/ChangeTheConstants).
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.comparison.methods import Call, Method, check_not_negative, check_share
from vendi_guidance.comparison.network import Condition, Evaluation, conditioned, evaluated_by


@dataclass(frozen=True)
class CADS(Method):
    """Condition-annealed sampling: decreasing noise on the prompt's embeddings.

    Time t falls from 1 at the first step, linearly in the steps, towards 0. The tokens and the
    pooled embedding y of each sample become sqrt(gamma) y + scale sqrt(1 - gamma) n, with n drawn
    from N(0, 1) at each step, rescaled to the mean and standard deviation of y; the negative ones
    are unchanged. At t >= tau2 nothing is left of the prompt, for any scale above 0.

    Args:
        scale: of the noise, beside entries of the embeddings; 0 is no noise and no annealing.
        tau1: the time from which on gamma is 1 and y is left alone.
        tau2: the time until which gamma is 0; linear between the two.
        psi: the weight of the rescaled embeddings in the result, 0 to 1.

    Raises:
        ValueError: scale < 0 or not finite; not 0 <= tau1 <= tau2 <= 1; psi outside [0, 1].
    """

    scale: float = 0.25
    tau1: float = 0.6
    tau2: float = 0.9
    psi: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative("scale", self.scale)
        if not 0 <= self.tau1 <= self.tau2 <= 1:
            raise ValueError(
                f"tau1 and tau2 are times, 0 <= tau1 <= tau2 <= 1, got {self.tau1} and {self.tau2}"
            )
        check_share("psi", self.psi)

    def gamma(self, t: float) -> float:
        """How much of the condition is left at time t, 0 to 1."""
        if t <= self.tau1:
            return 1.0
        if t >= self.tau2:
            return 0.0
        return (self.tau2 - t) / (self.tau2 - self.tau1)

    def anneal(self, y: Tensor, noise: Tensor, gamma: float) -> Tensor:
        """The annealed embeddings y: (n, ...), each sample rescaled by its own statistics."""
        if gamma == 1:
            return y
        noised = math.sqrt(gamma) * y + self.scale * math.sqrt(1 - gamma) * noise
        mean, std = _moments(y)
        noised_mean, noised_std = _moments(noised)
        rescaled = (noised - noised_mean) / noised_std * std + mean
        return self.psi * rescaled + (1 - self.psi) * noised

    @contextmanager
    def attached(self, call: Call) -> Iterator[dict[str, Any]]:
        def anneal(evaluation: Evaluation) -> Any:
            gamma = self.gamma(1 - evaluation.done)
            own = _own(call, evaluation.step)

            def annealed(y: Tensor) -> Tensor:
                return self.anneal(y, _draw(torch.randn, y, own), gamma)

            def change(plain: Condition) -> Condition:
                tokens = annealed(plain.tokens)
                return Condition(tokens, None if plain.pooled is None else annealed(plain.pooled))

            return conditioned(evaluation, len(call.prompts), change)

        with nullcontext() if self.scale == 0 else evaluated_by(call.pipe, anneal):
            yield {}


@dataclass(frozen=True)
class SeedVariance(Method):
    """The same noise on the prompt's embeddings at each of the first steps, then none.

    What users of Z-Image do. In the node, `strength` is in the units of the embeddings, 15 to 30
    for Z-Image; here in their standard deviations, of the tokens and of the pooled embedding each.

    Args:
        strength: noise is uniform between -strength and strength standard deviations.
        share: of the entries that get noise, chosen at random.
        stop: the share of the steps after which there is none.
        pooled: whether the pooled embedding gets noise too, or the tokens alone.

    Raises:
        ValueError: strength < 0 or not finite; share or stop outside [0, 1].
    """

    strength: float = 8.0
    share: float = 0.5
    stop: float = 0.2
    pooled: bool = True

    def __post_init__(self) -> None:
        check_not_negative("strength", self.strength)
        check_share("share", self.share)
        check_share("stop", self.stop)

    @contextmanager
    def attached(self, call: Call) -> Iterator[dict[str, Any]]:
        def vary(evaluation: Evaluation) -> Any:
            if evaluation.done >= self.stop:
                return evaluation.made()
            own = _own(call)

            def change(plain: Condition) -> Condition:
                tokens, pooled = plain.tokens + self._noise(plain.tokens, own), plain.pooled
                if pooled is not None and self.pooled:
                    pooled = pooled + self._noise(pooled, own)
                return Condition(tokens, pooled)

            return conditioned(evaluation, len(call.prompts), change)

        with evaluated_by(call.pipe, vary):
            yield {}

    def _noise(self, y: Tensor, own: list[torch.Generator]) -> Tensor:
        uniform = 2 * _draw(torch.rand, y, own) - 1
        chosen = _draw(torch.rand, y, own) < self.share
        return self.strength * _moments(y)[1] * uniform * chosen


def _own(call: Call, *key: int) -> list[torch.Generator]:
    """A generator for each sample, seeded by its seed and the key, independent of the one given."""
    states = [
        np.random.SeedSequence(one.initial_seed(), spawn_key=key).generate_state(1, np.uint64)
        for one in call.generators
    ]
    return [torch.Generator().manual_seed(int(state[0])) for state in states]


def _draw(distribution: Callable[..., Tensor], y: Tensor, own: list[torch.Generator]) -> Tensor:
    """Random numbers in the shape of y, each sample's from its own generator, float32."""
    return torch.stack([distribution(y.shape[1:], generator=one) for one in own]).to(y.device)


def _moments(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each sample, in shapes that broadcast with y."""
    dims = tuple(range(1, y.ndim))
    return y.mean(dim=dims, keepdim=True), y.std(dim=dims, keepdim=True)
