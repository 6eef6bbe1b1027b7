"""How many evaluations of the network rounds take, and how much CFG follows them.

Counts are per sample: a step with classifier-free guidance (CFG) is two evaluations. From the
default of the dial on, steps before the rounds are without CFG, but for the first one. Those after
them have CFG at high noise only. So a call of 16 steps or more takes about as many evaluations with
rounds as without. Without CFG they come on top.
"""

from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.settings import DIVERSITY, Rounds

USUAL = 8
"""Rounds at the default diversity, an evaluation each; half as many with a distilled network."""

CFG_STOP = 0.75
"""After rounds, CFG is off below this ratio. What the image shows is decided by then, and CFG would
only make images more alike (Kynkäänniemi et al., NeurIPS 2024)."""


def affordable(facts: Facts, settings: Rounds) -> int:
    """The number of rounds: as set, else in proportion to the dial, since long moves keep more if
    more evaluations follow them. At most the evaluations of the stock call."""
    most = round(facts.steps * facts.evaluations)
    usual = USUAL / 2 if facts.is_distilled else USUAL * settings.diversity / DIVERSITY
    return max(min(settings.rounds or round(usual), most), 1)


def share_of_cfg(ratio: float, settings: Rounds) -> float:
    """The share of CFG at a step after the rounds that begins at this noise-to-signal ratio."""
    return 1 - part(settings) * (1 - settings.cfg) if ratio > CFG_STOP else 0.0


def part(settings: Rounds) -> float:
    """How much of what guidance changes is kept: all of it from the default diversity on."""
    return min(settings.diversity / DIVERSITY, 1.0)


def longer(settings: Rounds) -> float:
    """How many times as long moves are as at the default diversity and below it."""
    return max(settings.diversity / DIVERSITY, 1.0)
