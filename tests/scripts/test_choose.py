"""The choice of settings: what is generated, recorded and judged, with made-up scores."""

import json

import pytest

from scripts.comparison import choose
from scripts.comparison.pages import Result, Row
from tests.helpers.commands import assert_refused, invoke, succeeds
from vendi_guidance.adapter import moved
from vendi_guidance.guidance import inside
from vendi_guidance.scores.subsampling import Estimate

INSIDE = "vendi_guidance.guidance.inside"
PLAIN = {"looks": 2.0, "named kept": 0.9, "fidelity": 0.95, "FD": 10.0}


def estimates(**changes):
    return {title: Estimate(value, None, None) for title, value in (PLAIN | changes).items()}


def worse(**changes):
    return estimates(**{"named kept": 0.875, "FD": 10.5} | changes)


@pytest.fixture
def compared(monkeypatch):
    """Of each call: the model, the prompts of each kind, and the names of runs by seed."""
    calls = []

    def compare(model, runs, prompts, entries, steps, scale, real):
        lines = {kind: len(file.read_text().splitlines()) for kind, file in prompts.items()}
        calls.append((model, lines, [(seed, entry.name) for seed, entry in entries]))
        (_, plain), (_, tried) = entries[:2]
        return Result(model, [Row(plain, estimates(), {}), Row(tried, worse(), {})])

    monkeypatch.setattr(choose, "compare", compare)
    monkeypatch.setattr(inside, "ABOVE", inside.ABOVE)  # so that both are restored
    monkeypatch.setattr(moved, "ABOVE", inside.ABOVE)
    return calls


def test_a_setting_is_tried_on_tuning_prompts_and_a_line_of_it_is_added(compared, tmp_path):
    words = ("--set", "level=0.3", "--constant", f"{INSIDE}:ABOVE=2.5", "--open", 2, "--named", 3)
    words += ("--seed", 0, "--seed", 9, "--output", tmp_path, "--log", tmp_path / "log.jsonl")
    printed = succeeds(choose.main, *words).output
    assert [model for model, *_ in compared] == choose.CHOSEN_ON
    assert all(lines == {"open": 2, "named": 3} for _, lines, _ in compared)
    name = f"default-0.5-level=0.3-{INSIDE}:ABOVE=2.5-{choose.code()}"
    assert compared[0][2] == [(s, each) for s in (0, 9) for each in ("unguided", name)]
    assert inside.ABOVE == moved.ABOVE == 2.5  # where it is imported by name, too
    first, *_ = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert first["settings"] == {"diversity": 0.5, "level": 0.3} and first["seeds"] == [0, 9]
    assert first["scores"]["FD"] == 10.5 and first["unguided"] == PLAIN
    assert first["exceeded"] == [text for text in first["exceeded"] if text in printed]
    assert len(first["exceeded"]) == 2


def test_limits_are_wider_at_diversity_1_and_a_score_without_references_has_none():
    plain, wide = estimates(), {"diversity": 1}
    assert choose.exceeded(worse(), plain, wide) == []
    assert choose.exceeded(worse(FD=10.9), plain, wide) == ["FD worse by 0.090, limit 0.08"]
    lost = {title: value for title, value in worse(fidelity=0.93).items() if title != "FD"}
    assert choose.exceeded(lost, plain, {}) == ["named kept worse by 0.025, limit 0.02"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--set=level", "'level' is not NAME=VALUE"),
        ("--set=level=-1", "level"),
        (f"--constant={INSIDE}:NO=1", "NO"),
    ],
)
def test_what_cannot_be_set_is_an_error(compared, words, named):
    assert_refused(invoke(choose.main, words), named)
    assert not compared
