"""Guidance at the sampler's own steps, as far as variety is missing.

While noise is high, samples are moved apart at each step, and no evaluation of the network is added.
From the clean latents x that the step predicts with classifier-free guidance (CFG), and x_c that it
predicts without, samples continue as if the step had predicted

    x <- x + l grad Score(x_c) / |grad Score(x_c)|,    l = 0.7 max(t |x| - d |x| / |x_c|, 0)

with the noise that they have. d is the median distance of a sample's x_c to the others for its
prompt, so that d / |x_c| says how varied its images will be: about 0.9 where a network is varied,
half of it where it repeats itself. A move along the gradient of every sample brings it to t, the
dial's target; samples that are as far apart are not moved. The gradient is that of predictions
without CFG, since with it moves would undo what CFG restores of the prompt.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.score import Score, distances
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.timing import network_of

ABOVE = 3.0
"""Samples are moved at steps that begin above this noise-to-signal ratio."""

KNOWN = 0.65
"""The target, as a share of the usual one, where the network knows its prompt without CFG."""

OUTWARD = 0.7
"""How far samples on a sphere move, as a share of the change of the distance between them."""


def is_due(step: Step) -> bool:
    """Whether the samples are moved after this step."""
    if step.network is None or step.is_last:
        return False
    start, end = step.network.levels
    return start.ratio > ABOVE and end.noise > 0


def apart(step: Step, score: Score) -> Tensor:
    """(b, 1) the median distance of each sample's prediction to the others for its prompt, as a
    share of its norm; where it is a prompt's only one, that of the batch's other samples."""
    network = network_of(step)
    clean = network.denoised
    # the lower median: on GPUs, `nanmedian` has no deterministic algorithm
    found = distances(step, score, clean, network.levels[0]) / lengths(clean)
    own = found.nanquantile(0.5, dim=1, keepdim=True, interpolation="lower")
    return own.where(own.isfinite(), own.nanmean())


def move(step: Step, score: Score, settings: Rounds) -> Step:
    """The step with samples moved apart; those whose move is not finite stay, and are counted."""
    network = network_of(step)
    end, clean = network.levels[1], network.denoised
    given = clean if step.prediction is None else step.prediction.denoised
    noise = (step.latents - end.signal * given) / end.noise
    direction = score.gradient(replace(step, prediction=Prediction(clean, *end)))
    from vendi_guidance.guidance.inside import needs_cfg
    known = torch.where(needs_cfg(clean), 1.0, KNOWN) if step.index == 0 else step.known
    length = OUTWARD * lengths(given) * (known*settings.diversity**0.5 - apart(step, score)).clamp(min=0)
    added = length * direction
    finite = torch.linalg.vector_norm(added, torch.inf, dim=1, keepdim=True) < torch.inf
    score.count_skipped(finite)
    moved = given + added.where(finite, 0).view_as(given)
    network.restart(moved, noise)
    return step.with_finite_latents(end.mix(moved, noise))
