"""How many evaluations of the network the rounds of a call may take, and how much CFG follows.

Counts are per sample: a step with classifier-free guidance (CFG) is two evaluations. The budget is
a multiple of the stock call's count. Of the steps before the rounds only the first and the last are
evaluated, the last one without CFG, and those after them have less CFG: this leaves evaluations for
the rounds. Without CFG rounds come on top.
"""

import math

from vendi_guidance.guidance.facts import Facts, network_of
from vendi_guidance.guidance.settings import DIVERSITY, Rounds
from vendi_guidance.guidance.step import Step

ROUNDS, CANDIDATES = 8, 2
"""Rounds, and candidates per round: with CFG at most their product, times the budget."""

LEAST = 8
"""Evaluations that rounds take without CFG, and with it even if the budget leaves fewer, but never
more than the stock call itself takes. With 6 PixArt keeps .820 of what prompts name, not .852."""

FEW_ROUNDS = 4
"""The most evaluations that rounds take with a distilled network."""

USUAL_BUDGET = 0.8
"""The automatic budget up to the default diversity: more evaluations did no better."""

LARGEST_BUDGET = 1.5
"""The automatic budget at diversity 1: long moves keep more if more evaluations follow them."""

CFG_STOP = 0.75
"""After rounds, CFG is off below this ratio. What the image shows is decided by then, and CFG would
only make images more alike (Kynkäänniemi et al., NeurIPS 2024)."""


def affordable(step: Step, facts: Facts, settings: Rounds) -> tuple[int, int]:
    """The numbers of rounds and of candidates per round: as set, else what the budget pays for with
    CFG, and `LEAST` without. Their product never exceeds the evaluations of the stock call."""
    candidates = settings.candidates or CANDIDATES
    most = round(facts.steps * facts.evaluations)
    if settings.rounds is not None:
        rounds = settings.rounds
    elif not facts.has_cfg:
        rounds = max(LEAST // candidates, 1)
        if facts.is_distilled:
            most = min(most, FEW_ROUNDS)
    else:
        most = min(_paid_for(step, facts, settings), most)
        rounds = max(most // candidates, 1)
    rounds = min(rounds, most)
    return rounds, min(candidates, most // rounds)


def asked_for(settings: Rounds) -> int:
    """Evaluations in rounds for which moves have their usual length; with fewer they are longer."""
    if settings.rounds is None:
        return LEAST
    return settings.rounds * (settings.candidates or CANDIDATES)


def own_evaluations(step: Step, facts: Facts, settings: Rounds) -> float:
    """Evaluations of the call's own steps, the remaining ones included."""
    network = network_of(step)
    with_cfg = sum(share_of_cfg(ratio, settings) > 0 for ratio in network.ahead)
    return network.spent + len(network.ahead) + (facts.evaluations - 1) * with_cfg


def share_of_cfg(ratio: float, settings: Rounds) -> float:
    """The share of CFG at a step after the rounds that begins at this noise-to-signal ratio."""
    return settings.cfg if ratio > CFG_STOP else 0.0


def _paid_for(step: Step, facts: Facts, settings: Rounds) -> int:
    """Evaluations that the budget leaves for rounds, with CFG."""
    budget = settings.budget
    if budget is None:  # the usual one, rising to the largest at diversity 1
        beyond = max(settings.diversity / DIVERSITY - 1, 0.0)
        budget = USUAL_BUDGET + beyond * (LARGEST_BUDGET - USUAL_BUDGET)
    most = budget * facts.steps * facts.evaluations
    left = math.floor(math.floor(most) - own_evaluations(step, facts, settings))
    return max(1, min(max(left, LEAST), math.floor(budget * ROUNDS * CANDIDATES)))
