"""Guidance at the sampler's own steps, as far as variety is missing.

Rounds ask the network without classifier-free guidance (CFG) for its answers. Where it hardly knows
its prompt without CFG, they lose what the prompt names. There, while noise is high, samples are
moved apart at each of the call's own steps, for no further evaluation. From the clean latents x
that a step predicts with CFG, and x_c without, samples go on as if it had predicted

    x <- x + l g / |g|,    g = d Score / d x_c,    l = 0.7 |x| max(t - d / |x_c|, 0)

with the noise that they have. d is the median distance of a sample's x_c to the others' for its
prompt. At the first step d / |x_c| tells how varied its images will be (a correlation of .9): it is
about 0.9 where a network is varied, and half of that where it repeats itself. Moves of all samples
bring it to t, and those that are as far apart already stay. t^2, the share of a prediction that
shall differ from sample to sample, is proportional to the dial. The gradient is that of predictions
without CFG: moves along the one of x would undo what CFG adds of the prompt.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.guidance.facts import Facts, network_of, predicted_at
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.ways.stock import Way

ABOVE = 3.0
"""Samples are moved at steps that begin above this noise-to-signal ratio."""

VAGUE, UNRESTORED = 0.95, 0.8
"""The target t at diversity 1, with CFG, and without, where nothing restores what moves lose."""

KNOWN = 0.5
"""The same where the network knows its prompt without CFG."""

BEYOND = 1.25
"""The same where the undistilled network made the first step, as a multiple of how far its
predictions differ there: what a tuning narrowed comes back, and what a prompt names stays."""

KNOWN_BELOW, VAGUE_ABOVE = 0.29, 0.34
"""The network is taken to know its prompt where first predictions differ by less than the first
share of their norm, and not to where they do by more than the second. In between t rises."""

OUTWARD = 0.7
"""How far two samples move, as a share of the change of their distance: about 1 / sqrt(2)."""


class OwnSteps(Way):
    """Moves at the call's own steps, which evaluate the network for lone images only, once."""

    title = "guided at its own steps"

    def __init__(self, facts: Facts, settings: Rounds) -> None:
        self._facts = facts
        self._target = self._most * settings.diversity**0.5

    @property
    def _most(self) -> float | Tensor:
        """The target at diversity 1: one for all samples, or (b, 1)."""
        facts = self._facts
        if network_of(facts.step).made_by_undistilled and not facts.are_lone:
            return BEYOND * facts.distances(facts.step)
        vague = (facts.spread - KNOWN_BELOW) / (VAGUE_ABOVE - KNOWN_BELOW)
        most = VAGUE if facts.has_cfg else UNRESTORED
        return KNOWN + min(max(vague, 0.0), 1.0) * (most - KNOWN)

    def is_due(self, step: Step) -> bool:
        if step.network is None or step.is_last:
            return False
        start, end = step.network.levels
        return start.ratio > ABOVE and end.noise > 0

    def on_step(self, step: Step) -> Step:
        """The step with samples moved apart; those whose move is not finite stay."""
        network, score = network_of(step), self._facts.score
        end, clean = network.levels[1], network.denoised
        given = predicted_at(step)
        noise = end.noise_in(step.latents, given)
        direction = score.gradient(replace(step, prediction=Prediction(clean, *end)))
        target = self._target
        if isinstance(target, Tensor) and len(target) != len(clean):  # a user's callback did that
            target = target.mean()
        missing = (target - self._facts.distances(step)).clamp(min=0)
        added = OUTWARD * lengths(given) * missing * direction
        finite = torch.linalg.vector_norm(added, torch.inf, dim=1, keepdim=True) < torch.inf
        score.count_skipped(finite)
        moved = given + added.where(finite, 0).view_as(given)
        network.restart(moved, noise)
        return step.with_finite_latents(end.mix(moved, noise))
