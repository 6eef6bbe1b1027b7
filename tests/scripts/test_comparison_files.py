"""The comparison's tables and pictures, of rows made by hand."""

import csv
import json

import pytest
from PIL import Image

from scripts.comparison.candidates import METHODS, OURS_DEFAULT, at, ours, unguided
from scripts.comparison.figures import STYLES, save_curves, save_grids
from scripts.comparison.measures import KEPT, LOOKS, MEASURES, Scores
from scripts.comparison.plan import ABLATION, FINAL, OTHER_SAMPLERS, SWEEP
from scripts.comparison.results import Row
from scripts.comparison.tables import save_csv, save_json, save_tables
from scripts.comparison.trials import IN_TURN, How, Trial
from tests.helpers.emoji_prompts import asked

ABOUT = {
    "guidance_scale": 5.0,
    "dtype": "bfloat16",
    "machine": "a machine",
    "named_as_asked": 0.975,
}
HOW = How(16, IN_TURN, "ddim", 12, 8)
PROMPTS = (asked("ear"), asked("leg"), asked("leg", tone="dark"))


def row(candidate, kind: str, looks: list[float], kept: float, seeds=1, name="", **how) -> Row:
    values = dict.fromkeys(MEASURES, 0.5) | {LOOKS: sum(looks) / len(looks), KEPT: kept}
    values |= {"evaluations": 24.0, "pixels_kernel_ratio": None}
    scores = Scores(values, {LOOKS: looks * 4, KEPT: [kept] * 8})
    trial = Trial(candidate, PROMPTS, 0, HOW._replace(**how))
    return Row(kind, (trial,) * seeds, (scores,) * seeds, name)


def cads(scale: float):
    return at("cads", scale, {}, 5.0)


ROWS = [
    row(unguided(5.0), FINAL, [2.0, 2.0], 1.0, seeds=3),
    row(cads(0.25), FINAL, [3.0, 5.0], 0.98),
    row(cads(0.5), FINAL, [5.0, 5.0], 0.9),
    row(ours(OURS_DEFAULT, 5.0), FINAL, [8.0, 9.0], 0.97),
    row(unguided(5.0), OTHER_SAMPLERS, [2.0, 3.0], 1.0, sampler="euler", steps=8),
    row(unguided(5.0), SWEEP, [2.0, 2.0], 1.0),
    row(cads(0.5), SWEEP, [3.0, 3.0], 1.0),
    row(ours(OURS_DEFAULT, 5.0), ABLATION, [3.0, 3.0], 1.0, name="no renoising"),
]


def test_csv_and_json_hold_every_row_setting_and_number(tmp_path):
    save_csv(tmp_path / "a.csv", ROWS)
    save_json(tmp_path / "a.json", ROWS, ABOUT)
    content = json.loads((tmp_path / "a.json").read_text())
    with (tmp_path / "a.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert content["dtype"] == "bfloat16"
    assert len(lines) == len(content["rows"]) == len(ROWS)
    for line, record, of in zip(lines, content["rows"], ROWS, strict=True):
        assert json.loads(line["settings"]) == record["settings"] == of.candidate.settings
        assert line["kind"] == record["kind"] == of.kind
        assert line["steps"] == str(record["steps"])
        assert record["scores"][0]["by_prompt"][LOOKS] == of.scores[0].by_prompt[LOOKS]
        assert record["prompts"] == ["ear", "leg", "leg, dark skin tone"]
        for measure in MEASURES:
            assert record[measure] == of.mean(measure)
            assert line[measure] == ("" if of.mean(measure) is None else str(of.mean(measure)))
    assert 3 <= content["rows"][1]["looks_low"] < 4 < content["rows"][1]["looks_high"] <= 5
    assert lines[1]["vendi_low"] == "" and lines[0]["seeds"] == "3"


def test_tables_have_points_intervals_costs_gains_and_choices(tmp_path):
    save_tables(tmp_path / "tables.md", ROWS, [ROWS[6]], ABOUT)
    text = (tmp_path / "tables.md").read_text()
    assert "2 prompts that leave the look open and 1 that name an attribute x 16 pictures" in text
    assert "| cads | scale 0.25 | 1 | 4.00 (" in text
    assert ") | 0.980 (0.980 to 0.980) |" in text
    assert "| 1.00 x |" in text
    assert "| 0.97 | 4.12 | 8.50 | cads | +4.38 (" in text
    assert "ddim" not in text and "; euler, 8 steps |" in text
    assert "| **cads** | scale 0.5 |" in text
    assert "| no renoising |" in text
    assert "batch sizes" not in text  # there are none
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    for table in tables:
        assert len({line.count(" | ") for line in table.splitlines()}) == 1


def test_every_method_has_a_colour_and_a_marker_of_its_own():
    assert set(STYLES) == set(METHODS)
    colours, markers = zip(*STYLES.values(), strict=True)
    assert len(set(colours)) == len(set(markers)) == len(METHODS)


@pytest.mark.parametrize("x", [KEPT, "evaluations"])
def test_a_picture_of_curves_is_drawn(tmp_path, x):
    save_curves(tmp_path / "a.png", ROWS, x)
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
