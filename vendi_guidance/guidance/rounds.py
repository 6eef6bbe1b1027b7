"""Rounds: guidance at one noise level, where the network predicts again after each move.

What a prompt leaves open is decided at high noise. There the same denoising step is repeated: each
round adds fresh noise of the same level to the predicted clean latents x0, ascends the score, and
predicts again,

    z = a x0 + s eps,    z <- z + a eta (1 - r/R) d grad Score / |grad Score|,    x0 = predict(z),

in rounds r = 0 ... R-1, at the level with signal a and noise s, eta being the scale; the move keeps
|z|. d is 0.6 times the largest distance of a sample's first prediction to another sample's for the
same prompt: small where a prompt says much, and large where it leaves much open. Of several draws
of eps, each sample keeps the one whose prediction differs most from the other samples'. The network
undoes moves that contradict the prompt and keeps the others. Moves fade, so that the last rounds
end on what the network itself would generate.
"""

import math
from dataclasses import replace

import torch

from vendi_guidance.guidance.noise import fresh_noise
from vendi_guidance.guidance.samples import as_rows
from vendi_guidance.guidance.score import Score, spread
from vendi_guidance.guidance.settings import FIRST_MOVE, Rounds
from vendi_guidance.guidance.step import Denoiser, Level, Prediction, Step

ALONE = 2.0
"""Fallback when a prompt has one sample: the typical sample-to-sample distance, in units of how far
a prediction moves under fresh noise (measured: about 2)."""

ROUNDS, CANDIDATES = 8, 2
"""Rounds, and candidates of each, without CFG; with it, at most for a budget of 1."""

FEW_ROUNDS = 4
"""Evaluations that rounds take at most in calls of networks distilled to few steps: eight, with
moves half as long, have fewer looks and keep no more of what prompts name."""

MORE_CANDIDATES = 3
"""Candidates where the budget pays for more than `ROUNDS` x `CANDIDATES` evaluations."""

LARGEST_BUDGET = 1.5
"""The automatic budget where the scale is twice the default or more. More evaluations keep what
prompts say while moves are long."""

LEAST = 8
"""Evaluations of the network that rounds take even if a budget of 1 or so leaves less. Calls that
have fewer themselves take no more than that, and longer moves."""

CFG_STOP = 0.75
"""The noise-to-signal ratio below which what an image shows is decided. CFG is off there after
rounds: it would only make images more alike (Kynkäänniemi et al., NeurIPS 2024)."""

CFG_EVERY = 2
"""Of so many steps with CFG after the rounds, the first predicts without the prompt too, and the
others take over what the prompt changed there: it changes little from step to step."""

LONGER = 2.0
"""Upper bound on the step length of short calls, as a multiple of the usual one. With longer ones
images show less of what prompts say."""

SHORTER = 2
"""Where a call begins below the wanted level, moves are shorter by this power of the share of it
that the level has: the network takes less of a move back there."""

DUE_BELOW = 0.5
"""Rounds of distilled networks follow a step that ends below this share of the wanted level: the
next step, nearer to it, would take much of them back."""

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
    distance = spread(clean, score.objective.similarity(step.prompts, clean))
    rounds, candidates = affordable(step, settings)
    scale = settings.scale * _lengthening(rounds * candidates, settings)
    scale *= shortening(step, start, settings)
    for done in range(rounds):
        at = replace(step, latents=start.signal * clean, prediction=Prediction(clean, *start))
        direction = score.gradient(at)
        fading = scale * (1 - done / rounds)
        moved = []
        for _ in range(candidates):
            z = start.mix(clean, fresh_noise(step.generator, clean))
            # a share of |z|; NaN, so no move, while a sample alone has no distance yet
            length = fading * start.signal * distance / as_rows(z).norm(dim=1, keepdim=True)
            moved.append(score.move(z, direction, length.nan_to_num(0)))
        before, tried = clean, torch.stack(moved)
        predicted = network.denoise(tried.flatten(0, 1), start).view(tried.shape)
        noisy, clean = score.choose(step, tried, predicted)
        moves = as_rows(before - clean).norm(dim=1, keepdim=True)
        distance = distance.where(distance.isfinite(), ALONE * moves)
    noise = (noisy - start.signal * clean) / start.noise
    network.restart(clean, noise)
    return step.with_finite_latents(end.mix(clean, noise))


def is_due(step: Step, settings: Rounds) -> bool:
    """Whether rounds follow this step, or should have followed an earlier one.

    Distilled networks: the first step that ends well below the wanted level, which their schedules
    may skip. Others: the first that begins nearer to it, in log, than it ends, or else the last; a
    step from pure noise only if it ends where all is decided and is not the last, as in a flow
    model's call of two steps.
    """
    if step.network is None:
        return False
    start, end = step.network.levels
    wanted = wanted_ratio(step, settings)
    if is_distilled(step):
        return end.ratio < DUE_BELOW * wanted
    if start.ratio == math.inf:
        return end.ratio < CFG_STOP and not step.is_last
    return step.is_last or start.ratio * end.ratio <= wanted**2


def is_distilled(step: Step) -> bool:
    """Whether the step's network seems to be distilled: few steps, without CFG."""
    return step.network is not None and (
        step.network.evaluations_per_step == 1 and max(step.count, step.scheduled) <= FEW
    )


def level_of(step: Step, settings: Rounds) -> Level:
    """The level of the rounds: where the step began; after pure noise, or with a distilled network,
    the wanted level if that is lower."""
    network = network_of(step)
    start = network.levels[0]
    if not is_distilled(step) and start.ratio < math.inf:
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


def cfg_every(settings: Rounds) -> int:
    """Of how many steps with CFG one predicts without the prompt: `CFG_EVERY`, but each where the
    settings say how many rounds there are, which leaves nothing to be saved for."""
    return CFG_EVERY if settings.rounds is None else 1


def evaluations(step: Step, settings: Rounds) -> int:
    """How many evaluations of the network `repeat` takes for each sample."""
    return math.prod(affordable(step, settings))


def affordable(step: Step, settings: Rounds) -> tuple[int, int]:
    """How many rounds, and of how many candidates: as many as the settings say; else what the
    budget pays for with CFG, and `ROUNDS` without. Never do they take more evaluations of the
    network for each sample than the call does without guidance."""
    per_step, candidates = network_of(step).evaluations_per_step, _candidates(settings)
    most = step.count * per_step
    if settings.rounds is not None:
        rounds = settings.rounds
    elif per_step == 1:
        rounds = ROUNDS
        if is_distilled(step):
            most = min(most, FEW_ROUNDS)
    else:
        most = min(_paid_for(step, settings), most)
        if settings.candidates is None and most > ROUNDS * CANDIDATES:
            candidates = MORE_CANDIDATES
        rounds = max(most // candidates, 1)
    rounds = min(rounds, most)
    return rounds, min(candidates, most // rounds)


def own_evaluations(step: Step, settings: Rounds) -> int:
    """How many evaluations of the network the call's own steps take for each sample: with CFG, some
    steps after the rounds take one less."""
    network = network_of(step)
    ahead, every = network.ahead, network.cfg_every if settings.cfg < 1 else 1
    with_cfg = sum(share_of_cfg(ratio, settings) > 0 for ratio in ahead)
    more = math.ceil(with_cfg / every) if network.evaluations_per_step > 1 else 0
    return network.spent + len(ahead) + more


def _paid_for(step: Step, settings: Rounds) -> int:
    """How many evaluations for each sample the budget leaves for rounds."""
    budget = budget_of(settings)
    most = budget * step.count * network_of(step).evaluations_per_step
    left = math.floor(most) - own_evaluations(step, settings)
    return max(1, min(max(left, LEAST), math.floor(budget * ROUNDS * CANDIDATES)))


def budget_of(settings: Rounds) -> float:
    """The budget, as the settings say or by their scale."""
    if settings.budget is not None:
        return settings.budget
    beyond = min(max(settings.scale / FIRST_MOVE - 1, 0.0), 1.0)  # the default
    return 1 + beyond * (LARGEST_BUDGET - 1)


def _lengthening(evaluations: int, settings: Rounds) -> float:
    """How many times as long moves are where the call affords fewer evaluations than were asked
    for, or than `LEAST`: with half of them twice as long, and never longer than `LONGER`."""
    asked = LEAST if settings.rounds is None else settings.rounds * _candidates(settings)
    return min(max(asked / evaluations, 1.0), LONGER)


def shortening(step: Step, start: Level, settings: Rounds) -> float:
    """The factor of moves where the rounds, at level `start`, are below the wanted level because
    the call, or what its distilled network knows, begins there."""
    begins = step.index == 0 or is_distilled(step)
    share = start.ratio / wanted_ratio(step, settings)
    return min(share, 1.0) ** SHORTER if begins else 1.0


def _candidates(settings: Rounds) -> int:
    return settings.candidates or CANDIDATES


def network_of(step: Step) -> Denoiser:
    """The step's network; RuntimeError if it has none."""
    if step.network is None:
        raise RuntimeError("rounds need the network")
    return step.network
