"""Rounds: guidance at one noise level, where the network predicts again after each move.

What a prompt leaves open is decided at high noise. There the same denoising step is repeated: each
round adds fresh noise of the same level to the predicted clean latents x0, ascends the score, and
predicts again,

    z = a x0 + s eps,    z <- z + a eta (1 - r/R) d grad Score / |grad Score|,    x0 = predict(z),

in round r of R, at the level with signal a and noise s, eta being the scale. d is the typical
distance between the samples' first predictions for the same prompt: small where a prompt says much,
and large where it leaves much open. Of several draws of eps, each sample keeps the one whose
prediction differs most from the other samples'. The network undoes moves that contradict the prompt
and keeps the others. Moves fade, so that the last rounds end on what the network itself would
generate.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.guidance.noise import fresh_noise
from vendi_guidance.guidance.proposals import gradient, move
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Denoiser, Level, Prediction, Step
from vendi_guidance.guidance.window import as_rows

ALONE = 2.0
"""Fallback when a prompt has one sample: the typical sample-to-sample distance, in units of how far
a prediction moves under fresh noise (measured: about 2)."""

USUAL = 8, 2
"""Rounds, and candidates of each, at most with a budget of 1."""

LEAST = 8
"""Evaluations of the network that rounds take even if the budget leaves less. With fewer, in calls
that have no more themselves, moves are longer."""

CFG_STOP = 0.75
"""The noise-to-signal ratio below which CFG is off after rounds: it only makes images more alike
there (Kynkäänniemi et al., NeurIPS 2024)."""

CFG_EVERY = 2
"""Every so many steps with CFG predict without the prompt too; those between take the difference
from the step before, where it changes little."""

LONGER = 2.0
"""Upper bound on the step length of short calls, as a multiple of the usual one. With longer ones
images show less of what prompts say."""

DUE_BELOW = 0.5
"""Calls of few steps wait for a step that ends below this share of the wanted level: a distilled
network's step nearer to it would take much of the rounds back."""

FEW = 9
"""Steps of a call without CFG up to which its network is taken for one distilled to few steps;
Z-Image Turbo is called with so many."""


def repeat(step: Step, score: Score, settings: Rounds) -> Step:
    """Repeat a denoising step, with a move in each round.

    Args:
        step: with the network; its first prediction is where the rounds begin.

    Returns:
        The step with latents at the level where it ended, from the last round's prediction; a
        sample where that is not finite keeps its latents.

    Raises:
        RuntimeError: the step has no network.
    """
    network = network_of(step)
    end, start = network.levels[1], level_of(step, settings)
    clean = network.denoised
    distance = score.spread(step, clean)
    rounds, candidates = affordable(step, settings)
    scale = settings.scale * _lengthening(rounds * candidates, settings)
    for done in range(rounds):
        at = replace(step, latents=start.signal * clean, prediction=Prediction(clean, *start))
        direction = gradient(at, score)
        fading = scale * (1 - done / rounds)
        tried, predicted = [], []
        for _ in range(candidates):
            z = start.mix(clean, fresh_noise(step.generator, clean))
            # of the latents' norm; a sample alone finds its distance in the first round
            length = fading * start.signal * distance / as_rows(z).norm(dim=1, keepdim=True)
            tried.append(move(z, direction, length.nan_to_num(0), score))
            predicted.append(network.denoise(tried[-1], start))
        before = clean
        noisy, clean = score.choose(step, torch.stack(tried), torch.stack(predicted))
        distance = distance.where(distance.isfinite(), ALONE * _between(before, clean))
    noise = (noisy - start.signal * clean) / start.noise
    network.restart(clean, noise)
    return step.with_finite_latents(end.mix(clean, noise))


def is_due(step: Step, settings: Rounds) -> bool:
    """Due at the first step that begins nearer to the wanted level than it ends, in log, or else at
    the last, but never from pure noise; in calls of few steps, which may skip the wanted level,
    after the first that ends well below. True for later steps too: the caller asks until it has
    made the rounds."""
    if step.network is None:
        return False
    start, end = step.network.levels
    wanted = wanted_ratio(step, settings)
    if is_distilled(step):
        return end.ratio < DUE_BELOW * wanted
    return start.ratio < math.inf and (step.is_last or start.ratio * end.ratio <= wanted**2)


def is_distilled(step: Step) -> bool:
    """Whether the step's network seems to be distilled: few steps, without CFG."""
    return step.network is not None and (
        step.network.evaluations_per_step == 1 and step.count <= FEW
    )


def level_of(step: Step, settings: Rounds) -> Level:
    """The level of the rounds: where the step began, or in calls of few steps the lower of that and
    the wanted level."""
    network = network_of(step)
    start = network.levels[0]
    if not is_distilled(step):
        return start
    return network.at(min(wanted_ratio(step, settings), start.ratio))


def wanted_ratio(step: Step, settings: Rounds) -> float:
    """Noise to signal where looks are decided: sqrt(D) `settings.level` for latents of D numbers,
    since the noise that hides an image grows with its size."""
    return settings.level * step.latents[0].numel() ** 0.5


def share_of_cfg(ratio: float, settings: Rounds) -> float:
    """The share of classifier-free guidance at a step after the rounds that begins at this
    noise-to-signal ratio."""
    return settings.cfg if ratio > CFG_STOP else 0.0


def repeats_cfg(settings: Rounds) -> bool:
    """Whether steps take what CFG adds from the step before: not where the settings say how many
    rounds there are, which leaves nothing to be saved for."""
    return settings.rounds is None


def evaluations(step: Step, settings: Rounds) -> int:
    """How many evaluations of the network `repeat` takes for each sample."""
    return math.prod(affordable(step, settings))


def affordable(step: Step, settings: Rounds) -> tuple[int, int]:
    """How many rounds, and of how many candidates, the budget or the settings allow; never more
    evaluations of the network for each sample than the call has without guidance."""
    network = network_of(step)
    stock = step.count * network.evaluations_per_step
    rounds, candidates = settings.rounds, settings.candidates
    most = stock
    if rounds is None and network.evaluations_per_step > 1:
        left = math.floor(settings.budget * stock) - network.spent - _cost_ahead(network, settings)
        most = min(max(left, LEAST), math.floor(settings.budget * math.prod(USUAL)), stock)
        # rounds of two candidates rather than more rounds of one
        rounds = most // (candidates or USUAL[1])
    rounds = min(rounds or USUAL[0], most)
    return rounds, min(candidates or USUAL[1], most // rounds)


def _cost_ahead(network: Denoiser, settings: Rounds) -> int:
    """How many evaluations for each sample the steps after the rounds take."""
    with_cfg = sum(share_of_cfg(ratio, settings) > 0 for ratio in network.ahead)
    every = CFG_EVERY if network.can_repeat_cfg and settings.cfg < 1 else 1
    return len(network.ahead) + math.ceil(with_cfg / every)


def _lengthening(evaluations: int, settings: Rounds) -> float:
    """With half the evaluations, moves are twice as long; with fewer still, no longer than that."""
    usual = LEAST
    if settings.rounds is not None:  # as many as were asked for
        usual = settings.rounds * (settings.candidates or USUAL[1])
    return min(max(usual / evaluations, 1.0), LONGER)


def network_of(step: Step) -> Denoiser:
    """The step's network; RuntimeError if it has none."""
    if step.network is None:
        raise RuntimeError("rounds need the network")
    return step.network


def _between(one: Tensor, other: Tensor) -> Tensor:
    """(b, 1) distances between the samples of two batches."""
    return as_rows(one - other).norm(dim=1, keepdim=True)
