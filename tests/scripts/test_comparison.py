"""The comparison: a small one, numbers made by hand, and settings chosen by made-up scores."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from PIL import Image

from scripts.comparison import __main__ as comparison, choose, methods, scores
from scripts.comparison.methods import Entry, best_of, entries_of
from scripts.comparison.models import MODELS
from scripts.comparison.pages import Result, Row, table_of
from scripts.comparison.scores import COLUMNS, TASTE
from scripts.comparison.taste import Taste
from tests.helpers.commands import Killed, assert_refused, contents, invoke, succeeds
from vendi_guidance.guidance import choose as tree, facts
from vendi_guidance.runs.runner import Runner
from vendi_guidance.scores.subsampling import Estimate

MODEL = "demo-sdxl-turbo-lora"
WORDS = ("--model", MODEL, "--method", "default", "--method", "base-first", "--steps", 1)
WORDS += ("--open", 2, "--named", 2, "--seed", 0, "--seed", 1000, "--device", "cpu")


def row(method, value, looks, kept):
    scores = {title: Estimate(1.0, None, None) for title in COLUMNS if title != "FD"}
    scores["looks"] = Estimate(looks, looks - 1, looks + 1)
    scores["named kept"] = Estimate(kept, None, None)
    return Row(Entry(method, value), scores, {})


OURS = [row("ours", 0.5, 6.0, 0.97), row("ours", 1.0, 8.0, 0.9)]
OTHER = [row("seed-variance", 8.0, 3.0, 0.98), row("seed-variance", 16.0, 7.0, 0.95)]
RESULT = Result(MODEL, [row("unguided", 0.0, 2.0, 1.0), *OURS, *OTHER])


@pytest.mark.slow
def test_a_comparison_has_a_run_of_each_entry_and_seed_and_reuses_them(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "IMAGES", {"open": 3, "named": 2})
    succeeds(comparison.main, *WORDS, "--output", tmp_path)
    whole = contents(tmp_path)
    assert sum(name.endswith(".png") for name in whole) == 5 * 2 * (6 + 4) + 2  # and curves, dial
    monkeypatch.setattr(Runner, "_generate", Mock(side_effect=Killed))
    succeeds(comparison.main, *WORDS, "--output", tmp_path)
    assert contents(tmp_path) == whole
    for name in ("curves.png", "dial.png", f"{MODEL}.webp"):
        with Image.open(tmp_path / name) as opened:
            assert opened.size[0] > 200
    text = (tmp_path / "comparison.md").read_text()
    costs = [line.strip("| ").split(" | ")[-1] for line in text.splitlines()[2:5]]
    assert costs == ["1.0", "3.0", "1.0"]  # rows of a step, and ours with its rounds


def test_every_model_has_the_methods_that_it_can_run():
    found = {name: {entry.method for entry in entries_of(name, ())} for name in MODELS}
    assert "limited-interval" in found["demo-sdxl"] and "limited-interval" not in found[MODEL]
    assert "base-first" in found[MODEL] and "base-first" not in found["demo-sdxl"]
    assert [entry.name for entry in entries_of(MODEL, ["cads"])][:2] == ["unguided", "cads-0.25"]


def test_the_tables_have_every_method():
    main = table_of([RESULT])
    ours = (
        "|  | ours | 0.5 | 6.00 (5.00 to 7.00) | 0.970 | 1.000 | 1.00 | 1.000 | 1.000 | 1.000 | – |"
    )
    assert f"{ours} 1.0 |" in main
    assert len(main.splitlines()) == 2 + len(RESULT.rows)


def test_taste_kept_is_the_share_of_what_tuning_gained(tmp_path, monkeypatch):
    taste = Taste(torch.tensor([1.0, -1.0]), 0.5, {"a tie": 1.0})
    taste.save(tmp_path)
    features = {"0": [[4.0, 0.5], [3.0, 0.0]], "1": [[2.5, 0.0], [3.0, 0.0]]}  # of two images
    embed = lambda folder: torch.tensor(features[folder.name])  # noqa: E731
    monkeypatch.setattr(scores, "efficientnet_features", embed)

    def scored(runs, probe, real, taste):
        [folder] = runs["open"]
        run = scores.Judged(folder, ["a tie"] * 2, None, None, None, taste)
        return {TASTE: Estimate(scores.taste_gained(run)["a tie"], None, None)}

    monkeypatch.setattr(comparison, "scores", scored)
    monkeypatch.setattr(comparison, "taste_of", lambda model: Taste.load(tmp_path))
    runs = Mock(generate=Mock(side_effect=[Path("0"), Path("1")]))
    entries = [(0, Entry("unguided", 0.0)), (0, Entry("default", 0.5))]
    result = comparison.compare(MODEL, runs, {"open": tmp_path}, entries, 1, 1.0)
    kept = [row.scores[TASTE].value for row in result.rows]
    assert kept == pytest.approx([1, 1.25 / 1.75])  # means of 3.25 and 2.75 are liked 1.75 and 1.25


def test_a_method_is_at_its_best_at_the_largest_value_within_all_limits(tmp_path, monkeypatch):
    tried = [("cads", 1, ["FD"]), ("cads", 0.5, []), ("cads", 0.25, []), ("select", 2, ["FD"])]
    plain = {"model": MODEL, "settings": {"diversity": 0.0}, "constants": {}}
    lines = [plain | dict(zip(("method", "value", "exceeded"), it, strict=True)) for it in tried]
    lines.append(lines[1] | {"value": 2, "settings": {"diversity": 0.5}})  # with guidance too
    monkeypatch.setattr(methods, "LOG", tmp_path / "log.jsonl")
    methods.LOG.write_text("\n".join(map(json.dumps, lines)))
    assert [entry.name for entry in best_of(MODEL, ())] == ["unguided", "default-0.5", "cads-0.5"]
    assert len(best_of("demo-sdxl", ())) == len(best_of(MODEL, ["select"])) == 2


FACTS = "vendi_guidance.guidance.facts"
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
    monkeypatch.setattr(facts, "FEW", facts.FEW)  # so that both are restored
    monkeypatch.setattr(tree, "FEW", facts.FEW)
    return calls


def test_a_setting_is_tried_on_tuning_prompts_and_a_line_of_it_is_added(compared, tmp_path):
    words = ("--set", "level=0.3", "--constant", f"{FACTS}:FEW=7", "--open", 2, "--named", 3)
    words += ("--seed", 0, "--seed", 9, "--output", tmp_path, "--log", tmp_path / "log.jsonl")
    printed = succeeds(choose.main, *words).output
    assert [model for model, *_ in compared] == choose.CHOSEN_ON
    assert all(lines == {"open": 2, "named": 3} for _, lines, _ in compared)
    name = f"default-0.5-level=0.3-{FACTS}:FEW=7-{choose.code()}"
    assert compared[0][2] == [(s, each) for s in (0, 9) for each in ("unguided", name)]
    assert facts.FEW == tree.FEW == 7  # where it is imported by name, too
    first, *_ = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert first["settings"] == {"diversity": 0.5, "level": 0.3} and first["seeds"] == [0, 9]
    assert first["scores"]["FD"] == 10.5 and first["unguided"] == PLAIN
    assert first["exceeded"] == [text for text in first["exceeded"] if text in printed]
    assert len(first["exceeded"]) == 2


def test_limits_are_wider_at_diversity_1_and_a_score_without_references_has_none():
    plain, wide = estimates(), {"diversity": 1}
    assert choose.exceeded(worse(FD=10.3), plain, wide) == []
    assert choose.exceeded(worse(FD=10.9), plain, wide) == ["FD worse by 0.090, limit 0.03"]
    lost = {title: value for title, value in worse(fidelity=0.93).items() if title != "FD"}
    assert choose.exceeded(lost, plain, {}) == ["named kept worse by 0.025, limit 0.02"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--set=level", "'level' is not NAME=VALUE"),
        ("--set=level=-1", "level"),
        (f"--constant={FACTS}:NO=1", "NO"),
    ],
)
def test_what_cannot_be_set_is_an_error(compared, words, named):
    assert_refused(invoke(choose.main, words), named)
    assert not compared
