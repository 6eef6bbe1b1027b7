"""Methods that add noise to prompt embeddings.

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
    """Condition-annealed diffusion sampling: decreasing noise on the prompt's embeddings.

    Time t decreases linearly in the steps, from 1 at the first step towards 0. Embeddings y (tokens
    and pooled) become sqrt(gamma) y + scale sqrt(1 - gamma) n, with new n ~ N(0, 1) at each step,
    rescaled to the mean and standard deviation that y has in each sample. Embeddings of negative
    prompts are unchanged. At t >= tau2 nothing is left of the prompt, for any scale above 0.

    Args:
        scale: standard deviation of the noise at gamma = 0; 0 turns noise and annealing off.
        tau1: at t <= tau1, gamma is 1 and embeddings are unchanged.
        tau2: at t >= tau2, gamma is 0; it is linear in between.

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
        """The weight of the prompt at time t, from 0 to 1."""
        if t <= self.tau1:
            return 1.0
        if t >= self.tau2:
            return 0.0
        return (self.tau2 - t) / (self.tau2 - self.tau1)

    def anneal(self, y: Tensor, noise: Tensor, gamma: float) -> Tensor:
        """Anneal (n, ...) embeddings y; each sample is rescaled by its own statistics."""
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
        generators = _noise_generators(evaluation.call, evaluation.step)
        return evaluation.output_for(
            lambda y, sample: self.anneal(y, _random(torch.randn, y, generators[sample]), gamma)
        )


@dataclass(frozen=True)
class SeedVariance(PerStep):
    """Constant noise on the prompt's embeddings at the first steps, then none.

    Popular among users of Z-Image. The node's `strength` is in units of the embeddings (15 to 30
    for Z-Image); here it is in standard deviations, of the tokens and the pooled embedding each.
    The node's other names are in parentheses.

    Args:
        strength: noise is uniform between -strength and strength standard deviations.
        share: fraction of the entries that get noise, chosen at random (randomize_percent).
        stop: noise is on in steps that begin before this fraction of the call
            (steps_switchover_percent): of 4 steps, 0.2 is the first and 0.5 the first two.
        tokens_from, tokens_to: the part of the token sequence, including padding, that gets noise,
            as fractions of its length (the rest is masked).
        pooled: also add noise to the pooled embedding, which the node leaves unchanged.

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
        generators = _noise_generators(evaluation.call)
        return evaluation.output_for(lambda y, sample: y + self._noise(y, generators[sample]))

    def _noise(self, y: Tensor, generator: torch.Generator) -> Tensor:
        uniform = 2 * _random(torch.rand, y, generator) - 1
        mask = _random(torch.rand, y, generator) < self.share
        if y.ndim > 2:  # tokens
            count = y.shape[1]
            mask[:, : round(self.tokens_from * count)] = False
            mask[:, round(self.tokens_to * count) :] = False
        elif not self.pooled:
            mask[:] = False
        return self.strength * _moments(y)[1] * uniform * mask


def _noise_generators(call: PipelineCall, *key: int) -> list[torch.Generator]:
    """A new generator for each sample, seeded by the sample's seed and `key`."""
    sequences = (np.random.SeedSequence(g.initial_seed(), spawn_key=key) for g in call.generators)
    seeds = [int(sequence.generate_state(1, np.uint64)[0]) for sequence in sequences]
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def _random(distribution: Callable[..., Tensor], y: Tensor, generator: torch.Generator) -> Tensor:
    """float32 random numbers in the shape of one row of y."""
    return distribution((1, *y.shape[1:]), generator=generator).to(y.device)


def _moments(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each sample, broadcastable with y."""
    dims = tuple(range(1, y.ndim))
    return y.mean(dim=dims, keepdim=True), y.std(dim=dims, keepdim=True)
