"""The one decision of a call: every leaf of the tree, by the facts that lead there."""

from pathlib import Path

import pytest
import torch

from tests.guidance.test_own_steps import SHAPE, alike, step_of
from vendi_guidance.guidance.choose import SPREAD, TREE, VARIED, choose
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.facts import FEW, Facts
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.ways.own_steps import ABOVE

pytestmark = pytest.mark.as_measured
PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
FEW_STEPS = {"evaluations_per_step": 1, "count": 4, "has_prompt": True}
WITHOUT_CFG = {"evaluations_per_step": 1}
JOINT = {"is_joint": True}
CASES = [  # what first predictions differ by, further facts, settings, the leaf
    (0.1, {"images": 1}, {}, 0),
    (0.1, {"count": 1, "has_fixed_end": True}, {}, 1),
    (2 * SPREAD, {}, {"proposal": "gradient"}, 2),
    (2 * SPREAD, FEW_STEPS, {"rounds": 4}, 2),
    (2 * SPREAD, JOINT, {"rounds": 1}, 2),
    (0.1, {}, {"proposal": "prompt", "rounds": 4}, 3),
    (2 * SPREAD, {"before": ABOVE}, {}, 4),
    (0.1, WITHOUT_CFG | {"before": ABOVE}, {"proposal": "steps"}, 4),
    (0.1, {}, {"proposal": "steps"}, 5),
    (1.2 * VARIED, FEW_STEPS, {}, 6),
    (1.2 * VARIED, FEW_STEPS | {"is_undistilled": True}, {}, 6),
    (1.2 * SPREAD, {}, {}, 7),
    (SPREAD / 1.2, JOINT, {}, 8),
    (2 * VARIED, JOINT | WITHOUT_CFG, {}, 8),
    (VARIED / 1.2, FEW_STEPS, {}, 9),
    (VARIED / 1.2, FEW_STEPS | {"count": FEW}, {}, 9),
    (VARIED / 1.2, FEW_STEPS | JOINT, {}, 9),
    (2 * VARIED, FEW_STEPS | {"before": ABOVE}, {}, 9),
    (2 * VARIED, FEW_STEPS | {"count": 1}, {}, 9),  # after which is no step
    (2 * VARIED, FEW_STEPS | {"is_continued": True}, {}, 9),
    (VARIED / 1.2, FEW_STEPS | {"is_undistilled": True}, {}, 10),
    (0.1, WITHOUT_CFG, {}, 11),
    (0.1, FEW_STEPS | {"scheduled": 28}, {}, 11),  # the last steps of a long schedule
    (SPREAD / 1.2, {}, {}, 12),
    (2 * SPREAD, JOINT | {"count": FEW}, {}, 12),
    (2 * SPREAD, {"is_continued": True}, {}, 12),
    (2 * SPREAD, {"before": ABOVE, "is_continued": True}, {}, 12),
    (VARIED / 1.2, FEW_STEPS | {"has_prompt": False}, {}, 12),
    (2 * SPREAD, {"count": 1}, {}, 12),
]


def apart_by(share, images):
    """Predictions with this median distance, as a share of their norm."""
    return alike(images, share / 2**0.5)


def facts_of(share, about, settings, memory=None):
    about = {"count": 20, "images": 4, "before": 9.0} | about
    of_step = {name: about.pop(name, 0) for name in ("scheduled", "has_fixed_end")}
    is_continued = about.pop("is_continued", False)
    clean, count = apart_by(share, about.pop("images")), about.pop("count")
    step = step_of(clean, [0] * len(clean), None, count, before=about.pop("before"), after=2.0)
    for name, value in of_step.items():
        object.__setattr__(step, name, value)
    vars(step.network).update(about)
    score = (memory or Memory(20)).score(settings, step.prompts)
    return Facts.of(step, score, settings, is_continued), step


@pytest.mark.parametrize(("share", "about", "settings", "leaf"), CASES, ids=str)
def test_the_facts_of_a_call_decide_how_it_is_guided(share, about, settings, leaf):
    settings = Rounds(**settings)
    facts, _ = facts_of(share, dict(about), settings)
    chosen = choose(facts, settings)
    assert TREE.index(chosen.leaf) == leaf
    assert type(chosen.way) is TREE[leaf].way
    if len(SHAPE) and facts.images > 1:
        assert facts.spread == pytest.approx(share, rel=0.15)


def test_every_leaf_is_reached_and_the_page_shows_the_tree():
    assert {leaf for *_, leaf in CASES} == set(range(len(TREE)))
    ways = [leaf.way.title.removeprefix("guided ").removesuffix("t guided") for leaf in TREE]
    lines = [f"| {leaf.when} | {way} |" for leaf, way in zip(TREE, ways, strict=True)]
    assert "\n".join(["| where | guided |", "|---|---|", *lines]) in PAGE.read_text("utf-8")


def test_a_remembered_image_is_one_to_differ_from():
    memory = Memory(20)
    memory.add(torch.ones(1, *SHAPE), torch.eye(3)[:1])
    facts, _ = facts_of(0.1, {"images": 1, "is_joint": True}, Rounds(), memory)
    assert facts.remembered == 1
    facts.step.network.other = facts.step.network.denoised
    assert TREE.index(choose(facts, Rounds()).leaf) == 8


def test_the_decision_is_made_once_and_said_once(caplog):
    settings = Rounds()
    _, step = facts_of(2 * SPREAD, {}, settings)
    engine = Engine(settings, Memory(20))
    with caplog.at_level("INFO"):
        for _ in range(3):
            assert engine.observe(step)
            step.network.evaluations_per_step = 1  # a change that decides nothing any more
    share = f"{engine.facts.spread:.2g}"
    said = f"guided at its own steps: without CFG first predictions differ by {share}"
    assert [it.startswith(said) for it in caplog.messages] == [True]
