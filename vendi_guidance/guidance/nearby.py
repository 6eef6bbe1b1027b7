"""Prompts nearby: guidance of networks distilled to few steps, where a noised prompt proposes.

Such a network predicts much the same whatever the noise of its latents, and takes a move along the
score's gradient back. It does follow a move towards what it would generate for a prompt nearby,
the prompt with noise on its embeddings, unless that contradicts the prompt. So from the prediction
x for the prompt, and with the noise eps that the sampler's latents have,

    v <- predict(a x + s eps, prompt + noise),
    v <- predict(a' (x + b (v - x)) + s' eps, prompt),
    v <- x + b' (v - x) + p |v - x| grad Score / |grad Score|,

where a, s is the level at which the step began and a', s' the level of the rounds, which the
schedule need not have. What the prompt leaves open of v - x stays in its answer, and the rest
fades. The sampler's next step answers once more; b' and p are smaller where its level is lower, and
b where the schedule begins below the level of the rounds. With fresh noise for each prediction
fewer samples would leave x.
"""

from dataclasses import replace

import torch

from vendi_guidance.guidance.noise import fresh_noise
from vendi_guidance.guidance.rounds import level_of, network_of, shortening, wanted_ratio
from vendi_guidance.guidance.samples import as_rows
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import FIRST_MOVE, Rounds
from vendi_guidance.guidance.step import Prediction, Step

PROMPT_NOISE = 12.0
"""The sigma of `guidance.noise.prompt_nearby`: noise twelve times as long as the embedding of a
token. What it proposes need not resemble the prompt, since the prompt itself answers."""

EXTENSION = 0.75
"""b - 1 at the default scale, and b' - 1 at most."""

PUSH = 0.3
"""p, at most."""


def repeat(step: Step, score: Score, settings: Rounds) -> Step:
    """Let the prompt answer what a prompt nearby proposes, after a denoising step.

    Args:
        step: with the network; its first prediction is x.

    Returns:
        The step with latents at the level where it ended; a sample where they are not finite keeps
        its own.

    Raises:
        RuntimeError: the step has no network.
        ValueError: the network is given no embeddings of a prompt's tokens.
    """
    network = network_of(step)
    (start, end), level = network.levels, level_of(step, settings)
    original = network.denoised
    if end.noise:
        noise = (step.latents - end.signal * original) / end.noise
    else:
        noise = fresh_noise(step.generator, original)
    further = EXTENSION * settings.scale / FIRST_MOVE  # b - 1
    proposed = start.mix(original, noise)
    nearby = network.denoise(proposed, prompt_noise=PROMPT_NOISE, generator=step.generator)
    shorter = shortening(step, level, settings)
    target = original + shorter * (1 + further) * (nearby - original)
    clean = network.denoise(level.mix(target, noise), level)
    if end.noise:  # else no step follows to answer
        share = min(1.0, end.ratio / level.ratio)
        deviation = clean - original
        clean = original + (1 + share * further) * deviation
        at = replace(step, latents=level.signal * clean, prediction=Prediction(clean, *level))
        direction = score.gradient(at)
        finite = direction.isfinite().all(dim=1, keepdim=True)
        score.count_skipped(finite)
        length = share * PUSH * torch.linalg.vector_norm(as_rows(deviation), dim=1, keepdim=True)
        clean = clean + (length * direction.where(finite, 0)).view_as(clean)
    network.restart(clean, noise)
    return step.with_finite_latents(end.mix(clean, noise))


def is_due(step: Step, settings: Rounds) -> bool:
    """Due after the first step that ends below the wanted level; the next one answers too."""
    return step.network is not None and step.network.levels[1].ratio < wanted_ratio(step, settings)


def evaluations(step: Step, settings: Rounds) -> int:
    """How many evaluations of the network `repeat` takes for each sample, whatever the settings."""
    return 2
