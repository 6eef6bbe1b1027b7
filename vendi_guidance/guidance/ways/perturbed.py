"""Guidance of networks distilled to few steps, where a perturbed prompt proposes the moves.

Such a network predicts much the same image whatever the noise, and undoes moves along the score's
gradient. It does follow a move towards the image that it would generate for a perturbed prompt, one
with noise on its embeddings, except where that image contradicts the prompt. So from the prediction
x for the prompt, and with the noise eps of the sampler's latents,

    v <- predict(a x + s eps, prompt + noise)                     the proposal
    v <- predict(a' (x + b (v - x)) + s' eps, prompt)             the answer
    v <- x + b' (v - x) + p |v - x| grad Score / |grad Score|     extended, and pushed apart

where a, s is the level at which the step began, and a', s' that of the rounds, which the schedule
may skip. The answer keeps the part of v - x that the prompt leaves open; the rest fades. The
sampler's next step answers once more: b' and p are smaller where its level is lower, and b where
the schedule begins below the level of the rounds, or the dial is below its default. With fresh
noise for each prediction, fewer samples would leave x.
"""

import logging
from dataclasses import replace
from functools import partial

from torch import Tensor

from vendi_guidance.guidance.facts import Facts, network_of
from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.ways.budget import longer, part
from vendi_guidance.guidance.ways.level import level_of, remark, shortening
from vendi_guidance.guidance.ways.stock import Way

PROMPT_NOISE = 12.0
"""The sigma of `perturbed_prompt`. Proposals need not resemble the prompt: the prompt answers."""

EXTENSION = 0.75
"""b - 1 at the default diversity, and the largest b' - 1."""

PUSH = 0.3
"""The largest p."""

logger = logging.getLogger(__name__)


class PerturbedPrompt(Way):
    """A proposal by a perturbed prompt, and the prompt's answer, once in a call."""

    title = "guided by a perturbed prompt"

    def __init__(self, facts: Facts, settings: Rounds) -> None:
        self._facts, self._settings = facts, settings
        self._is_made = False

    def is_due(self, step: Step) -> bool:
        """Whether this is the first step that ends below the wanted level, or a later one."""
        network = step.network
        return (
            not (network is None or self._is_made) and network.levels[1].ratio < self._facts.wanted
        )

    def on_step(self, step: Step) -> Step:
        """The step with latents at the level where it ended, after two evaluations; samples for
        which these are not finite keep theirs."""
        self._is_made, facts = True, self._facts
        network, score = network_of(step), facts.score
        end, level = network.levels[1], level_of(step, facts)
        logger.info("a perturbed prompt proposes %s", remark(facts, step))
        original, (noise, proposal) = network.denoised, propose(step)
        further = EXTENSION * longer(self._settings)  # b - 1
        shorter = shortening(step, level, facts) * part(self._settings)
        target = original + shorter * (1 + further) * (proposal - original)
        clean = network.denoise(level.mix(target, noise), level)

        if end.noise:  # else no step follows to answer
            share = min(1.0, end.ratio / level.ratio)
            deviation = clean - original
            clean = original + (1 + share * further) * deviation
            at = replace(step, latents=level.signal * clean, prediction=Prediction(clean, *level))
            direction = score.gradient(at)
            finite = direction.isfinite().all(dim=1, keepdim=True)
            score.count_skipped(finite)
            length = share * PUSH * lengths(deviation)
            clean = clean + (length * direction.where(finite, 0)).view_as(clean)

        network.restart(clean, noise)
        return step.with_finite_latents(end.mix(clean, noise))

    def evaluations(self) -> int:
        return 2


def propose(step: Step) -> tuple[Tensor, Tensor]:
    """The (b, ...) noise of the step's latents, and the prediction from it for a perturbed prompt,
    in one evaluation. ValueError if the network takes no embeddings of a prompt's tokens."""
    network = network_of(step)
    (start, end), original = network.levels, network.denoised
    fresh = Noise(step.first_latents, step.prompts)
    noise = end.noise_in(step.latents, original) if end.noise else fresh.like(original)
    perturb = partial(fresh.on_prompt, sigma=PROMPT_NOISE)
    return noise, network.denoise(start.mix(original, noise), perturb=perturb)
