"""The noise level at which rounds, or a perturbed prompt, ask the network again.

What an image shows is decided near the ratio `Facts.wanted`. The short schedules of distilled
networks often skip that level; there it is inserted.
"""

import math

from vendi_guidance.guidance.facts import Facts, network_of
from vendi_guidance.guidance.step import Level, Step

SHORTER = 2
"""Where a schedule begins below the wanted level, moves are scaled by this power of the share of
the level that it reaches: the network undoes less of a move at lower noise."""


def level_of(step: Step, facts: Facts) -> Level:
    """The level at which the step began; after pure noise, and with a distilled network, at most
    the wanted one."""
    network = network_of(step)
    start = network.levels[0]
    if not facts.is_distilled and start.ratio < math.inf:
        return start
    return network.at(min(facts.wanted, start.ratio))


def shortening(step: Step, level: Level, facts: Facts) -> float:
    """The factor by which moves are shorter if the schedule begins below the wanted level."""
    is_first = step.index == 0 or facts.is_distilled
    return min(level.ratio / facts.wanted, 1.0) ** SHORTER if is_first else 1.0


def remark(facts: Facts, step: Step) -> str:
    """What to say of the level, and how a call of few steps would reach a higher one."""
    reached = level_of(step, facts).ratio
    text = f"at noise to signal {reached:.3g}"
    if not facts.is_distilled or reached >= 0.99 * facts.wanted:
        return text
    if network_of(step).at(facts.wanted).ratio <= 1.01 * reached:
        return f"{text}, the highest there is ({facts.wanted:.3g} is wanted)"
    return (
        f"{text}, where the schedule begins ({facts.wanted:.3g} is wanted, and the model reaches "
        'it: use one from the highest noise, such as "simple" or trailing timesteps)'
    )
