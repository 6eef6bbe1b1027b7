"""Methods that add noise to prompt embeddings."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from scripts.comparison.call import Call, Step

SHARE, STOP = 0.5, 0.2  # the node's randomize_percent and steps_switchover_percent
GAMMA = 2.4  # of PromptMoG, in units of its sigma: 0.6 / 0.25


def cads(call: Call, scale: float, tau1: float = 0.6, tau2: float = 0.9) -> list[Image]:
    """Condition-annealed diffusion sampling: decreasing noise on the prompt's embeddings.

    Sadat et al. (ICLR 2024). Time t decreases linearly in the steps, from 1 at the first step
    towards 0. Tokens and the pooled embedding are annealed (see `annealed`), with new noise at each
    step. Embeddings of negative prompts are unchanged.

    Args:
        scale: standard deviation of the noise at gamma = 0.
        tau1: at t <= tau1, gamma is 1 and embeddings are unchanged.
        tau2: at t >= tau2, gamma is 0 and nothing is left of the prompt; it is linear in between.
    """

    def evaluate(step: Step) -> Any:
        gamma = min(1.0, max(0.0, (tau2 - 1 + step.done) / (tau2 - tau1)))
        generators = noise_generators(call.seeds, step.number)
        return step.output_for(
            lambda y, i: annealed(y, _random(torch.randn, y, generators[i]), gamma, scale)
        )

    return call.images_by(evaluate)


def annealed(y: Tensor, noise: Tensor, gamma: float, scale: float) -> Tensor:
    """sqrt(gamma) y + scale sqrt(1 - gamma) noise for (n, ...) embeddings y and noise, rescaled to
    each sample's mean and deviation."""
    if gamma == 1:
        return y
    noised = math.sqrt(gamma) * y + scale * math.sqrt(1 - gamma) * noise
    mean, std = _moments(y)
    noised_mean, noised_std = _moments(noised)
    return (noised - noised_mean) / noised_std * std + mean


def seed_variance(call: Call, strength: float) -> list[Image]:
    """Constant noise on half of the entries of the prompt's embeddings at the first fifth of steps.

    The ComfyUI node SeedVarianceEnhancer (github.com/ChangeTheConstants), popular among users of
    Z-Image. The node's `strength` is in units of the embeddings (15 to 30 for Z-Image); here it is
    in standard deviations: noise is uniform between -strength and strength of them, of the tokens
    and of the pooled embedding each, which the node leaves unchanged.
    """

    def noised(y: Tensor, generator: torch.Generator) -> Tensor:
        uniform = 2 * _random(torch.rand, y, generator) - 1
        mask = _random(torch.rand, y, generator) < SHARE
        return y + strength * _moments(y)[1] * uniform * mask

    def evaluate(step: Step) -> Any:
        if step.done >= STOP:
            return step.output()
        generators = noise_generators(call.seeds)
        return step.output_for(lambda y, sample: noised(y, generators[sample]))

    return call.images_by(evaluate)


def prompt_mixture(call: Call, strength: float) -> list[Image]:
    """PromptMoG: the prompt's tokens are drawn once from mixtures of Gaussians around them.

    Ruan et al. (arXiv:2511.20251). The means of a token's mixture are the corners of a simplex,
    which in the authors' code is rotated at random for each token and image: a mean is gamma in a
    random direction. Sigma is 0.25 and gamma 0.6 there (FLUX; 0.85 for Qwen-Image), in units of the
    embeddings; here sigma is `strength` standard deviations of the tokens, and gamma 2.4 sigma. The
    first and last token, which are no words, and the pooled embedding stay.
    """

    def drawn(y: Tensor, generator: torch.Generator) -> Tensor:
        if y.ndim < 3:
            return y
        direction, noise = (_random(torch.randn, y, generator) for _ in range(2))
        direction = direction / direction.norm(dim=-1, keepdim=True)
        moved = y + strength * _moments(y)[1] * (GAMMA * direction + noise)
        moved[:, [0, -1]] = y[:, [0, -1]].to(moved.dtype)
        return moved

    def evaluate(step: Step) -> Any:
        generators = noise_generators(call.seeds)
        return step.output_for(lambda y, sample: drawn(y, generators[sample]))

    return call.images_by(evaluate)


def noise_generators(seeds: list[int], *key: int) -> list[torch.Generator]:
    """A new generator for each sample, seeded by the sample's seed and `key`, so that its noise is
    neither that of its latents nor dependent on its batch."""
    sequences = (np.random.SeedSequence(seed, spawn_key=key) for seed in seeds)
    own = (int(sequence.generate_state(1, np.uint64)[0]) for sequence in sequences)
    return [torch.Generator().manual_seed(seed) for seed in own]


def _random(distribution: Callable[..., Tensor], y: Tensor, generator: torch.Generator) -> Tensor:
    """float32 random numbers in the shape of one row of y."""
    return distribution((1, *y.shape[1:]), generator=generator).to(y.device)


def _moments(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each sample, broadcastable with y."""
    dims = tuple(range(1, y.ndim))
    return y.mean(dim=dims, keepdim=True), y.std(dim=dims, keepdim=True)
