"""Methods that add noise to the prompts' embeddings.

Sources: Sadat et al. (ICLR 2024), and the ComfyUI node SeedVarianceEnhancer
(github.com/ChangeTheConstants).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.comparison.methods import PipelineCall, check_not_negative, check_shares
from vendi_guidance.comparison.network import Evaluation, PerStep


@dataclass(frozen=True)
class CADS(PerStep):
    """Condition-annealed sampling: decreasing noise on the prompt's embeddings.

    Time t falls from 1 at the first step, linearly in the steps, towards 0. The tokens and the
    pooled embedding y of each sample become sqrt(gamma) y + scale sqrt(1 - gamma) n, with n drawn
    from N(0, 1) at each step, rescaled to the mean and standard deviation of y; the negative ones
    are unchanged. At t >= tau2 nothing is left of the prompt, for any scale above 0.

    Args:
        scale: of the noise, beside entries of the embeddings; 0 is no noise and no annealing.
        tau1: the time from which on gamma is 1 and y is left alone.
        tau2: the time until which gamma is 0; linear between the two.

    Raises:
        ValueError: scale < 0 or not finite; not 0 <= tau1 <= tau2 <= 1.
    """

    scale: float = 0.25
    tau1: float = 0.6
    tau2: float = 0.9

    def __post_init__(self) -> None:
        check_not_negative("scale", self.scale)
        check_shares(tau1=self.tau1, tau2=self.tau2)

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
        return (noised - noised_mean) / noised_std * std + mean

    def evaluate(self, evaluation: Evaluation) -> Any:
        if self.scale == 0:
            return evaluation.output()
        gamma = self.gamma(1 - evaluation.done)
        own = _own(evaluation.call, evaluation.step)
        return evaluation.output_for(
            lambda y, sample: self.anneal(y, _random(torch.randn, y, own[sample]), gamma)
        )


@dataclass(frozen=True)
class SeedVariance(PerStep):
    """The same noise on the prompt's embeddings at each of the first steps, then none.

    What users of Z-Image do. In the node, `strength` is in the units of the embeddings, 15 to 30
    for Z-Image; here in their standard deviations, of the tokens and of the pooled embedding each.

    Args:
        strength: noise is uniform between -strength and strength standard deviations.
        share: of the entries that get noise, chosen at random; the node's randomize_percent.
        stop: the share of the steps after which there is none; its steps_switchover_percent.
            Steps count by their beginning: of 4, 0.2 is the first and 0.5 the first two.
        tokens_from, tokens_to: shares of the tokens, with those that pad the prompt, between which
            there is noise; the rest is what the node calls masked.
        pooled: noise on the pooled embedding too, which the node leaves as it is.

    Raises:
        ValueError: strength < 0 or not finite; a share outside [0, 1]; tokens_from > tokens_to.
    """

    strength: float = 8.0
    share: float = 0.5
    stop: float = 0.2
    tokens_from: float = 0.0
    tokens_to: float = 1.0
    pooled: bool = True

    def __post_init__(self) -> None:
        check_not_negative("strength", self.strength)
        check_shares(share=self.share)
        check_shares(stop=self.stop)
        check_shares(tokens_from=self.tokens_from, tokens_to=self.tokens_to)

    def evaluate(self, evaluation: Evaluation) -> Any:
        if evaluation.done >= self.stop:
            return evaluation.output()
        own = _own(evaluation.call)
        return evaluation.output_for(lambda y, sample: y + self._noise(y, own[sample]))

    def _noise(self, y: Tensor, own: torch.Generator) -> Tensor:
        uniform = 2 * _random(torch.rand, y, own) - 1
        chosen = _random(torch.rand, y, own) < self.share
        if y.ndim == 2:
            chosen &= bool(self.pooled)
        else:
            first, end = (round(share * y.shape[1]) for share in (self.tokens_from, self.tokens_to))
            chosen[:, :first] = chosen[:, end:] = False
        return self.strength * _moments(y)[1] * uniform * chosen


def _own(call: PipelineCall, *key: int) -> list[torch.Generator]:
    """A generator for each sample, seeded by its seed and the key, independent of the one given."""
    states = [
        np.random.SeedSequence(one.initial_seed(), spawn_key=key).generate_state(1, np.uint64)
        for one in call.generators
    ]
    return [torch.Generator().manual_seed(int(state[0])) for state in states]


def _random(distribution: Callable[..., Tensor], y: Tensor, own: torch.Generator) -> Tensor:
    """Random numbers in the shape of a row of y, from a sample's own generator, float32."""
    return distribution((1, *y.shape[1:]), generator=own).to(y.device)


def _moments(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each sample, in shapes that broadcast with y."""
    dims = tuple(range(1, y.ndim))
    return y.mean(dim=dims, keepdim=True), y.std(dim=dims, keepdim=True)
