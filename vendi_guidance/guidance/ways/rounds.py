"""Rounds: guidance at one noise level, where the network predicts again after each move.

What a prompt leaves open is decided at high noise. At one level there, with signal a and noise s,
the same denoising step is repeated. Each round adds fresh noise to the predicted clean latents x0,
moves along the gradient of the diversity score, and predicts again:

    z = a x0 + s eps,    z <- z + a eta (1 - r/R) d grad Score / |grad Score|,    x0 = predict(z)

for r = 0 ... R-1; the move keeps |z|. The unit of length, d, is 0.6 times the largest distance
between a sample's first prediction and another's for the same prompt: it is small where the prompt
says much, and large where it leaves much open. The network undoes moves that contradict the prompt
and keeps the others. Moves fade, so that the last rounds end on images that the network itself
would generate.

Rounds add much variety whatever eta is. So eta grows with the dial above its default only; below
it samples go a part of the way from what the step predicted with its share of CFG.
"""

import logging
import math
from dataclasses import replace

import torch

from vendi_guidance.guidance.facts import Facts, network_of, predicted_at
from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.score import between, spread
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.ways import budget
from vendi_guidance.guidance.ways.level import level_of, remark, shortening
from vendi_guidance.guidance.ways.stock import Way

FIRST_MOVE = 5.3
"""eta at the default diversity."""

DISTILLED = 1.6
"""Factor of eta with distilled networks, which undo some of a move."""

LONE = 2.0
"""Fallback when a prompt has one sample: the typical sample-to-sample distance, in units of how far
a prediction moves under fresh noise (measured: about 2)."""

DUE_BELOW = 0.5
"""Rounds of distilled networks follow the first step that ends below this share of the wanted
level. A next step nearer to that level would undo much of them."""

logger = logging.getLogger(__name__)


class InRounds(Way):
    """Rounds, made once in a call."""

    title = "guided in rounds"

    def __init__(self, facts: Facts, settings: Rounds) -> None:
        self._facts, self._settings = facts, settings
        self._are_made = False

    def is_due(self, step: Step) -> bool:
        """Whether rounds follow this step, or should have followed an earlier one.

        With a distilled network: the first step that ends well below the wanted level. Otherwise:
        the first step that starts nearer to the wanted level, in log ratio, than it ends, or the
        last. A first step from pure noise counts only if it ends where all is decided and steps
        follow.
        """
        if step.network is None or self._are_made:
            return False
        start, end = step.network.levels
        if self._facts.is_distilled:
            return end.ratio < DUE_BELOW * self._facts.wanted
        if start.ratio == math.inf:
            return end.ratio < budget.CFG_STOP and not step.is_last
        is_last_chance = step.index + step.has_fixed_end >= step.count - 1
        return is_last_chance or start.ratio * end.ratio <= self._facts.wanted**2

    def on_step(self, step: Step) -> Step:
        """Repeat a denoising step, with a move in each round.

        Returns the step with latents at the level where it ended, from the last round's prediction;
        samples for which these are not finite keep theirs.
        """
        self._are_made, facts, settings = True, self._facts, self._settings
        network, score = network_of(step), facts.score
        end, start = network.levels[1], level_of(step, facts)
        clean, fresh = network.denoised, Noise(step.first_latents, step.prompts)
        distance = spread(between(clean, score.objective.similarity(step.prompts, clean)))
        rounds = budget.affordable(facts, settings)
        logger.info("%d rounds %s", rounds, remark(facts, step))
        scale = FIRST_MOVE * budget.longer(settings) * shortening(step, start, facts)
        scale *= DISTILLED if facts.is_distilled else 1.0

        for done in range(rounds):
            at = replace(step, latents=start.signal * clean, prediction=Prediction(clean, *start))
            z = start.mix(clean, fresh.like(clean))
            # a share of |z|; NaN, so no move, while a sample alone has no distance yet
            length = scale * (1 - done / rounds) * start.signal * distance / lengths(z)
            noisy = score.move(z, score.gradient(at), length.nan_to_num(0))
            before, clean = clean, network.denoise(noisy, start)
            distance = distance.where(distance.isfinite(), LONE * lengths(before - clean))

        noise = start.noise_in(noisy, clean)
        if (part := budget.part(settings)) < 1 and end.noise:
            own = predicted_at(step)
            clean = torch.lerp(own, clean, part)
            noise = (1 - part**2) ** 0.5 * end.noise_in(step.latents, own) + part * noise
        network.restart(clean, noise)
        return step.with_finite_latents(end.mix(clean, noise))

    def share_of_cfg(self, ratio: float, are_made: bool = False) -> float:
        """After the rounds a part, down to low noise; before them what rounds will not replace."""
        if are_made or self._are_made:
            return budget.share_of_cfg(ratio, self._settings)
        return 1 - budget.part(self._settings)

    def evaluations(self) -> int:
        return budget.affordable(self._facts, self._settings)
