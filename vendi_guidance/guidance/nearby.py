"""Prompts nearby: guidance of networks distilled to few steps, where a noised prompt proposes.

Such a network predicts much the same whatever the noise of its latents, and takes a move along the
score's gradient back. It does follow a move towards what it would generate for a prompt nearby,
the prompt with noise on its embeddings, unless that contradicts the prompt. So from the prediction
x for the prompt,

    v <- x + |x| u,  u the direction of predict(a x + s eps, prompt + noise) - x,   once, then
    v <- predict(a' (x + b (v - x) + p |v - x| grad Score / |grad Score|) + s' eps', prompt)  twice,

where a, s is the level at which the step began and a', s' the level of the rounds, which the
schedule need not have; b is 1 + `scale` / `FIRST_MOVE`, and p is 0 the first time. Proposals go as
far as images differ, whatever noise on a prompt does to a network. Deviations that the prompt
leaves open grow with each prediction, and others fade. The sampler's next step answers a last
extension, which is shorter where its level is lower.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.guidance.noise import fresh_noise
from vendi_guidance.guidance.rounds import level_of, network_of, wanted_ratio
from vendi_guidance.guidance.samples import as_rows, unit_rows
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import FIRST_MOVE, Rounds
from vendi_guidance.guidance.step import Prediction, Step

PROMPT_NOISE = 12.0
"""The sigma of `guidance.noise.prompt_nearby`: noise twelve times as long as the embedding of a
token. What it proposes need not resemble the prompt, since the prompt itself answers."""

ANSWERS = 2
"""How many predictions for the prompt itself follow the one for the prompt nearby."""

PUSH = 0.3
"""p, of every extension but the first, where what contradicts the prompt has not faded yet."""


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
    extension = settings.scale / FIRST_MOVE

    def fresh() -> Tensor:
        return fresh_noise(step.generator, original)

    def extended(clean: Tensor, share: float, push: float) -> Tensor:
        """x + (1 + share (b - 1)) (v - x), for v = `clean`, and then the push of length share p."""
        deviation = clean - original
        target = clean + share * extension * deviation
        if not push:
            return target
        at = replace(step, latents=level.signal * target, prediction=Prediction(target, *level))
        direction = score.gradient(at)
        finite = direction.isfinite().all(dim=1, keepdim=True)
        score.count_skipped(finite)
        length = share * push * torch.linalg.vector_norm(as_rows(deviation), dim=1, keepdim=True)
        return target + (length * direction.where(finite, 0)).view_as(target)

    proposed = start.mix(original, fresh())
    nearby = network.denoise(proposed, prompt_noise=PROMPT_NOISE, generator=step.generator)
    towards = unit_rows(as_rows(nearby - original)) * as_rows(original).norm(dim=1, keepdim=True)
    clean = original + towards.view_as(original)
    for done in range(ANSWERS):
        target = extended(clean, 1.0, PUSH if done else 0.0)
        clean = network.denoise(level.mix(target, fresh()), level)
    if end.noise:  # else no step follows to answer
        clean = extended(clean, min(1.0, end.ratio / level.ratio), PUSH)
    noise = fresh()
    network.restart(clean, noise)
    return step.with_finite_latents(end.mix(clean, noise))


def is_due(step: Step, settings: Rounds) -> bool:
    """Due after the first step that ends below the wanted level; the next one answers too."""
    return step.network is not None and step.network.levels[1].ratio < wanted_ratio(step, settings)


def evaluations(step: Step, settings: Rounds) -> int:
    """How many evaluations of the network `repeat` takes for each sample, whatever the settings."""
    return 1 + ANSWERS
