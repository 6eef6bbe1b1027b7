"""Rounds: guidance at one noise level, where the network predicts again after each move.

What a prompt leaves open is decided at high noise. At one level there, with signal a and noise s,
the same denoising step is repeated. Each round adds fresh noise to the predicted clean latents x0,
moves along the gradient of the diversity score, and predicts again:

    z = a x0 + s eps,    z <- z + a eta (1 - r/R) d grad Score / |grad Score|,    x0 = predict(z)

for r = 0 ... R-1, where eta is proportional to `diversity`; the move keeps |z|. The unit of length,
d, is 0.6 times the largest distance between a sample's first prediction and another's for the same
prompt: it is small where the prompt says much, and large where it leaves much open. Each round
draws several eps per sample and keeps the one whose prediction differs most from those of the other
samples. The network undoes moves that contradict the prompt and keeps the others. Moves fade, so
that the last rounds end on images that the network itself would generate.
"""

from dataclasses import replace

import torch

from vendi_guidance.guidance.budget import affordable, asked_for
from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.score import Score, between, spread
from vendi_guidance.guidance.settings import DIVERSITY, Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.timing import level_of_rounds, network_of, shortening

FIRST_MOVE = 2.65
"""eta at the default diversity."""

ALONE = 2.0
"""Fallback when a prompt has one sample: the typical sample-to-sample distance, in units of how far
a prediction moves under fresh noise (measured: about 2)."""

LONGER = 2.0
"""Upper bound on the step length of short calls, as a multiple of the usual one."""

UNDISTILLED = 1.6
"""Factor of the length where an undistilled network predicts: the distilled one undoes some."""


def repeat(step: Step, score: Score, settings: Rounds) -> Step:
    """Repeat a denoising step, with a move in each round.

    Returns the step with latents at the level where it ended, from the last round's prediction;
    samples for which these are not finite keep theirs.
    """
    network = network_of(step)
    end, start = network.levels[1], level_of_rounds(step, settings)
    clean, noise = network.denoised, Noise(step.first_latents, step.prompts)
    distance = spread(between(clean, score.objective.similarity(step.prompts, clean)))
    rounds, candidates = affordable(step, settings)
    longer = min(max(asked_for(settings) / (rounds * candidates), 1.0), LONGER)
    scale = FIRST_MOVE * settings.diversity / DIVERSITY * longer * shortening(step, start, settings)
    scale *= UNDISTILLED if network.is_undistilled else 1.0

    for done in range(rounds):
        at = replace(step, latents=start.signal * clean, prediction=Prediction(clean, *start))
        direction = score.gradient(at)
        fading = scale * (1 - done / rounds)
        moved = []
        for _ in range(candidates):
            z = start.mix(clean, noise.like(clean))
            # a share of |z|; NaN, so no move, while a sample alone has no distance yet
            length = fading * start.signal * distance / lengths(z)
            moved.append(score.move(z, direction, length.nan_to_num(0)))
        before, tried = clean, torch.stack(moved)
        predicted = network.denoise(tried.flatten(0, 1), start).view(tried.shape)
        noisy, clean = score.choose(step, tried, predicted)
        distance = distance.where(distance.isfinite(), ALONE * lengths(before - clean))

    remaining = (noisy - start.signal * clean) / start.noise
    network.restart(clean, remaining)
    return step.with_finite_latents(end.mix(clean, remaining))


def evaluations(step: Step, settings: Rounds) -> int:
    """How many evaluations of the network `repeat` takes for each sample."""
    rounds, candidates = affordable(step, settings)
    return rounds * candidates
