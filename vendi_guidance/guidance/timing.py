"""When rounds are due, at which noise level they run, what precedes them, and how much CFG follows.

Noise levels are ratios of noise to signal: infinite for pure noise, 0 for a clean image. What an
image shows is decided near the ratio `Rounds.level` x sqrt(D), for latents of D numbers, since the
noise that hides an image grows with its size. The short schedules of distilled networks often skip
that level; there the rounds insert it. Above it nothing is decided, so a sampler may take those
steps with its first prediction.
"""

import math

from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Denoiser, Level, Step

FEW = 9
"""A call without CFG of up to this many steps is taken to use a distilled network: Z-Image Turbo
takes 9. With CFG, joint networks make rounds in such short calls."""

WITHOUT_CFG = 1.5
"""Evaluations per step, on average, below which a call counts as one without CFG: some samplers
have CFG at a few steps only."""

DUE_BELOW = 0.5
"""Rounds of distilled networks follow the first step that ends below this share of the wanted
level. A next step nearer to that level would undo much of them."""

SHORTER = 2
"""Where a schedule begins below the wanted level, moves are scaled by this power of the share of
the level that it reaches: the network undoes less of a move at lower noise."""

UNRESTORED = 0.5
"""Factor of the length of moves in longer calls without CFG, which would restore named details."""

CFG_STOP = 0.75
"""After rounds, CFG is off below this ratio. What the image shows is decided by then, and CFG would
only make images more alike (Kynkäänniemi et al., NeurIPS 2024)."""

CFG_EVERY = 2
"""After rounds, the difference that CFG adds is computed at every N-th step and reused in between,
up to the share `REUSABLE`."""

REUSABLE = 0.5
"""The largest share of CFG of which the difference is reused."""


def is_due(step: Step, settings: Rounds) -> bool:
    """Whether rounds follow this step, or should have followed an earlier one.

    With a distilled network: the first step that ends well below the wanted level. Otherwise: the
    first step that starts nearer to the wanted level, in log ratio, than it ends, or the last. A
    first step from pure noise counts only if it ends where all is decided and steps follow.
    """
    if step.network is None:
        return False
    start, end = step.network.levels
    wanted = wanted_ratio(step, settings)
    if is_distilled(step):
        return end.ratio < DUE_BELOW * wanted
    if start.ratio == math.inf:
        return end.ratio < CFG_STOP and not step.is_last
    is_last_chance = step.index + step.has_fixed_end >= step.count - 1
    return is_last_chance or start.ratio * end.ratio <= wanted**2


def is_undecided(step: Step, settings: Rounds) -> bool:
    """Whether the next step too ends before the rounds, so that it may reuse this prediction."""
    if step.network is None or is_distilled(step) or len(step.network.ahead) < 2:
        return False
    start, end = step.network.ahead[:2]
    return start * end > wanted_ratio(step, settings) ** 2


def is_distilled(step: Step) -> bool:
    """Whether the step's network is taken to be distilled: few steps, without CFG."""
    network, count = step.network, max(step.count, step.scheduled)
    return network is not None and not has_cfg(network) and count <= FEW


def has_cfg(network: Denoiser) -> bool:
    """Whether the stock call has CFG, at half of its steps or more."""
    return network.evaluations_per_step >= WITHOUT_CFG


def level_of_rounds(step: Step, settings: Rounds) -> Level:
    """The level at which the step began; after pure noise, and with a distilled network, at most
    the wanted one."""
    network = network_of(step)
    start = network.levels[0]
    if not is_distilled(step) and start.ratio < math.inf:
        return start
    return network.at(min(wanted_ratio(step, settings), start.ratio))


def wanted_ratio(step: Step, settings: Rounds) -> float:
    """The noise-to-signal ratio where looks are decided: `settings.level` x sqrt(D)."""
    return settings.level * step.latents[0].numel() ** 0.5


def shortening(step: Step, start: Level, settings: Rounds) -> float:
    """The factor by which moves are shorter: without CFG, unless the network is distilled, and if
    the schedule begins below the wanted level."""
    distilled = is_distilled(step)
    share = start.ratio / wanted_ratio(step, settings)
    factor = min(share, 1.0) ** SHORTER if step.index == 0 or distilled else 1.0
    return factor if distilled or has_cfg(network_of(step)) else UNRESTORED * factor


def share_of_cfg(ratio: float, settings: Rounds) -> float:
    """The share of CFG at a step after the rounds that begins at this noise-to-signal ratio."""
    return settings.cfg if ratio > CFG_STOP else 0.0


def cfg_every(settings: Rounds) -> int:
    """`CFG_EVERY`, or 1 where the share of CFG is large, or where the settings fix the number of
    rounds, so that saved evaluations could not be spent."""
    return CFG_EVERY if settings.rounds is None and settings.cfg <= REUSABLE else 1


def network_of(step: Step) -> Denoiser:
    """The step's network; RuntimeError if it has none."""
    if step.network is None:
        raise RuntimeError("rounds need the network")
    return step.network
