"""The comparison's tables and pictures, of rows made by hand."""

import csv
import json

import pytest
from PIL import Image

from scripts.comparison.candidates import Candidate
from scripts.comparison.figures import front, save_grids, save_pareto
from scripts.comparison.results import Row, choose
from scripts.comparison.scorer import FEATURES, MEASURES, RATIOS
from scripts.comparison.tables import records, save_csv, save_json, save_tables
from scripts.comparison.trials import IN_TURN, Trial

ABOUT = {
    "steps": 12,
    "guidance_scale": 5.0,
    "batch_size": 8,
    "dtype": "bfloat16",
    "machine": "a machine",
    "named_as_asked": 0.975,
}


def row(method: str, stage: str, settings: dict, *looks: float, **changes) -> Row:
    values = dict.fromkeys(MEASURES, 0.5) | dict.fromkeys(RATIOS, 1.0) | {"fidelity": 1.0}
    values |= {f"{features}_kernel_noise": 0.0 for features in FEATURES} | changes
    trial = Trial(Candidate(method, settings, 5.0), ("ear", "leg"), 16, 0, IN_TURN, "DDIMScheduler")
    return Row(stage, (trial,) * len(looks), tuple(values | {"looks": one} for one in looks))


TOO_FAR = {"pixels_kernel_distance": 0.617, "pixels_kernel_ratio": 1.234}
SWEEP = [
    row("unguided", "sweep", {}, 2.0),
    row("cads", "sweep", {"scale": 0.5}, 3.0),
    row("cads", "sweep", {"scale": 1.0}, 4.0, **TOO_FAR),
    row("cads", "sweep", {"scale": 2.0}, 6.0, fidelity=0.5, probe_nearest_named=None),
]
FINALS = [row("unguided", "final", {}, 2.0, 2.2, 2.4), row("cads", "final", {}, 3.0, 3.0, 3.3)]
ROWS = [*SWEEP, *FINALS]
CHOICES = [choose(SWEEP[:1], SWEEP[0]), choose(SWEEP[1:], SWEEP[0])]


def test_csv_and_json_hold_every_row_setting_and_number(tmp_path):
    found = records(ROWS, CHOICES)
    save_csv(tmp_path / "a.csv", found)
    save_json(tmp_path / "a.json", found, ABOUT)
    content = json.loads((tmp_path / "a.json").read_text())
    with (tmp_path / "a.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert content["steps"] == 12
    assert len(lines) == len(content["rows"]) == len(ROWS)
    for line, record, of in zip(lines, content["rows"], ROWS, strict=True):
        assert json.loads(line["settings"]) == record["settings"] == of.candidate.settings
        assert record["values"] == list(of.values)
        for measure in MEASURES:
            assert record[measure] == of.mean(measure)
            assert line[measure] == ("" if of.mean(measure) is None else str(of.mean(measure)))
    assert [record["chosen"] for record in content["rows"]] == [True, True] + [False] * 4
    assert content["rows"][2]["limit_used"] == pytest.approx(2.34)
    assert content["rows"][3]["limit_used"] is None  # a ratio is not known


def test_tables_name_what_was_chosen_what_exceeds_a_limit_and_the_spread_over_seeds(tmp_path):
    save_tables(tmp_path / "tables.md", ROWS, CHOICES, ABOUT)
    text = (tmp_path / "tables.md").read_text()
    assert "2 prompts x 16 pictures, 12 steps" in text
    assert "| unguided | 1.000 ± 0.000 | 2.20 ± 0.50 |" in text
    assert "| cads | scale 0.5 | 3 | 1.000 | 3.00 | 0.00 | yes |" in text
    assert "| **cads** | scale 0.5 |" in text and "| cads | scale 1.0 |" in text
    assert "**1.234**" in text and "**1.000 ±" not in text
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 5  # the finals' three, the choices' and the sweep's
    for table in tables:
        assert len({line.count(" | ") for line in table.splitlines()}) == 1


def test_the_front_holds_what_nothing_beats():
    points = [(1.0, 0.9), (2.0, 0.8), (1.5, 0.7), (2.0, 0.6), (0.5, 0.9)]
    assert front(points, most=True) == [(1.0, 0.9), (2.0, 0.8)]
    assert front(points, most=False) == [(0.5, 0.9)]
    assert front([(1.0, 1.0), (1.0, 1.0)], most=True) == [(1.0, 1.0)]


@pytest.mark.parametrize("diversity", ["looks", "in_batch_similarity"])
def test_a_pareto_picture_is_drawn(tmp_path, diversity):
    save_pareto(tmp_path / "a.png", ROWS, diversity)
    with Image.open(tmp_path / "a.png") as opened:
        assert opened.width > 800 and len(opened.convert("RGB").getcolors(1 << 20)) > 50


def test_grids_show_every_picture_of_every_method(tmp_path):
    colours = {"unguided": (255, 0, 0), "cads": (0, 0, 255)}
    strips = [
        (name, {prompt: [Image.new("RGB", (64, 64), colour)] * 16 for prompt in ("ear", "leg")})
        for name, colour in colours.items()
    ]
    save_grids(tmp_path / "a.png", strips)
    with Image.open(tmp_path / "a.png") as opened:
        counts = {colour: n for n, colour in opened.convert("RGB").getcolors(1 << 20)}
    assert counts[colours["unguided"]] == pytest.approx(counts[colours["cads"]], rel=0.02)
    assert counts[colours["cads"]] > opened.width * opened.height / 4
