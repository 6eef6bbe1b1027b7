"""How many evaluations of the network rounds take, and how much CFG follows them.

Counts are per sample: a step with classifier-free guidance (CFG) is two evaluations. From the
default of the dial on, steps before the rounds are without CFG, but for the first one. Those after
them have CFG at high noise only. So a call of 16 steps or more takes about as many evaluations with
rounds as without. Without CFG they come on top.
"""

from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.settings import DIVERSITY, Rounds

CANDIDATES = 2
"""Noises that a round tries for each sample."""

USUAL = 8
"""Evaluations in rounds at the default diversity. With 6 PixArt keeps .820 of what prompts name,
not .852."""

EVEN = 0.7
"""The power of the dial by which half of the default gives half of its variety."""

CFG_STOP = 0.75
"""After rounds, CFG is off below this ratio. What the image shows is decided by then, and CFG would
only make images more alike (Kynkäänniemi et al., NeurIPS 2024)."""


def affordable(facts: Facts, settings: Rounds) -> tuple[int, int]:
    """The numbers of rounds and of candidates per round: as set, else for evaluations in proportion
    to the dial. Their product never exceeds the evaluations of the stock call."""
    candidates = settings.candidates or CANDIDATES
    most, rounds = round(facts.steps * facts.evaluations), settings.rounds
    if rounds is None and facts.is_distilled:
        rounds = most = min(most, USUAL // CANDIDATES)  # as many as usual, of one candidate
    elif rounds is None:
        # long moves keep more if more evaluations follow them
        wanted = round(USUAL * settings.diversity / DIVERSITY)
        rounds = max(min(wanted, most) // candidates, 1)
    rounds = min(rounds, most)
    return rounds, min(candidates, most // rounds)


def share_of_cfg(ratio: float, settings: Rounds) -> float:
    """The share of CFG at a step after the rounds that begins at this noise-to-signal ratio."""
    return 1 - part(settings) * (1 - settings.cfg) if ratio > CFG_STOP else 0.0


def part(settings: Rounds) -> float:
    """How much of what guidance changes is kept: all of it from the default diversity on."""
    return min(settings.diversity / DIVERSITY, 1.0) ** EVEN


def longer(settings: Rounds) -> float:
    """How many times as long moves are as at the default diversity and below it."""
    return max(settings.diversity / DIVERSITY, 1.0)
