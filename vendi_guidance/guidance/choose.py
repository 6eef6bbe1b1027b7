"""The one decision of a call: how it is guided, from the facts known at its first step.

The first line of `TREE` that holds decides. Rounds lose what a prompt names where the network knows
it only with classifier-free guidance (CFG), as far as first predictions differ from sample to
sample; moves at the call's own steps gain less where rounds lose nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

from vendi_guidance.guidance.facts import FEW, Facts
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.ways.own_steps import ABOVE, OwnSteps
from vendi_guidance.guidance.ways.perturbed import PerturbedPrompt
from vendi_guidance.guidance.ways.rounds import InRounds
from vendi_guidance.guidance.ways.stock import Way

VARIED = 0.28
"""Rounds are taken to lose the prompt of a distilled network whose first predictions differ by more
than this share of their norm: measured are 0.35 to 1.3 where they do, and 0.03 to 0.22 elsewhere.
"""

SPREAD = 0.23
"""The same with CFG: 0.34 to 0.91, and 0.11 to 0.16."""


class Leaf(NamedTuple):
    """A line of the tree: what holds, in words and as a function, the way, and the reason that is
    logged, in which {it} are the facts."""

    when: str
    holds: Callable[[Facts, Rounds], bool]
    way: type[Way]
    because: str


def _begins_high(facts: Facts) -> bool:
    return facts.start > ABOVE and facts.steps > 1 and not facts.is_continued


def _differ(facts: Facts, share: float) -> bool:
    return _begins_high(facts) and facts.spread > share


ALONE = Leaf(
    "one image, and none is remembered",
    lambda it, of: it.images == 1 and not it.remembered,
    Way,
    "there is no other image to move away from yet",
)

TREE = (
    ALONE,
    Leaf(
        "one step, whose end a mask or a prediction fixes",
        lambda it, of: it.steps == 1 and it.has_fixed_end,
        Way,
        "rounds cannot follow its last step, which a mask or a prediction ends: use more steps",
    ),
    Leaf(
        '`proposal="gradient"`, or `rounds` is set',
        lambda it, of: of.wants_rounds,
        InRounds,
        "the settings ask for rounds",
    ),
    Leaf(
        '`proposal="prompt"`',
        lambda it, of: of.proposal == "prompt",
        PerturbedPrompt,
        "the settings ask for it",
    ),
    Leaf(
        f"it begins below a noise-to-signal ratio of {ABOVE:g}, with CFG",
        lambda it, of: (
            it.start <= ABOVE and not it.is_continued and (it.has_cfg or of.proposal == "steps")
        ),
        Way,
        'it begins where the image is decided: raise strength, or proposal="gradient"',
    ),
    Leaf(
        '`proposal="steps"`',
        lambda it, of: of.proposal == "steps",
        OwnSteps,
        "the settings ask for it",
    ),
    Leaf(
        f"up to {FEW} steps without CFG, distance above {VARIED:g}",
        lambda it, of: it.is_distilled and _differ(it, VARIED),
        OwnSteps,
        "first predictions differ by {it.spread:.2g} of their norm: rounds would lose the prompt",
    ),
    Leaf(
        f"not joint, with CFG, distance above {SPREAD:g}",
        lambda it, of: it.has_cfg and not it.is_joint and _differ(it, SPREAD),
        OwnSteps,
        "without CFG first predictions differ by {it.spread:.2g} of their norm: rounds would lose "
        "the prompt",
    ),
    Leaf(
        f"joint, more than {FEW} steps",
        lambda it, of: it.is_joint and it.steps > FEW and _begins_high(it),
        OwnSteps,
        "its network is joint",
    ),
    Leaf(
        f"up to {FEW} steps without CFG, no undistilled network at hand",
        lambda it, of: it.is_distilled and it.has_prompt and not it.is_undistilled,
        PerturbedPrompt,
        "a network of few steps undoes other moves",
    ),
    Leaf(
        f"up to {FEW} steps without CFG, one at hand",
        lambda it, of: it.is_distilled and it.is_undistilled,
        InRounds,
        "the undistilled network answers (its own with undistilled=None)",
    ),
    Leaf(
        f"no CFG, more than {FEW} steps",
        lambda it, of: not it.has_cfg and not it.is_distilled,
        Way,
        "without CFG nothing would restore what rounds lose",
    ),
    Leaf("else", lambda it, of: True, InRounds, "its network knows the prompt without CFG"),
)


class Decision(NamedTuple):
    """How a call is guided, and why, in plain words."""

    way: Way
    why: str
    leaf: Leaf


def choose(facts: Facts, settings: Rounds) -> Decision:
    """The way to guide a call with these facts."""
    leaf = next(leaf for leaf in TREE if leaf.holds(facts, settings))
    return Decision(leaf.way(facts, settings), leaf.because.format(it=facts), leaf)
