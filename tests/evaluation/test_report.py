"""What a report leaves on disk beside its page."""

import json

import pytest
from PIL import Image

from tests.helpers.batches_at_hand import labels_of, report_of, sample_images
from vendi_guidance.evaluation.comparison import compare
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.report.html import OF_EACH_GROUP, as_page
from vendi_guidance.evaluation.report.writer import as_markdown, score_rows

ONE = {"report.html", "report.md", "report.json", "spectrum.png", "similarities-1.png"}
PROMPTS_TOO = {"decomposition.png", "convergence.png", "comparison.png"}


@pytest.fixture(scope="module")
def report():
    return report_of(64, truncation=4, references=sample_images(12), seconds=[0.5] * 64)


@pytest.fixture(scope="module")
def comparison(report):
    settings = {"truncation": 4, "references": sample_images(12), "seconds": [0.5] * 64}
    return compare(report, report_of(64, 10, **settings))


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_one_report_and_two_are_whole_folders(report, comparison, tmp_path):
    assert report.save(tmp_path / "new" / "one") == tmp_path / "new" / "one" / "report.html"
    assert names(tmp_path / "new" / "one") == ONE | PROMPTS_TOO
    comparison.save(tmp_path / "two")
    assert names(tmp_path / "two") == ONE | PROMPTS_TOO | {"similarities-2.png"}
    for path in (tmp_path / "two").glob("*.png"):
        with Image.open(path) as picture:
            picture.load()
            assert min(picture.size) > 100


@pytest.mark.parametrize("count", [1, 2])
def test_a_picture_or_two_without_prompts_are_enough(tmp_path, count):
    report_of(count, prompts=None).save(tmp_path)
    assert names(tmp_path) == ONE


def test_what_is_written_again_replaces_what_was_there(report, tmp_path):
    (tmp_path / "report.json").write_text("earlier")
    (tmp_path / "notes.txt").write_text("mine")
    report.save(tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["version"] == 3
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_data_hold_every_number_and_what_decides_it(report, comparison, tmp_path):
    comparison.save(tmp_path)
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["format"] == "vendi-guidance report"
    assert [run["name"] for run in content["runs"]] == [report.name, "spread 10"]
    run = content["runs"][0]
    assert set(run["scores"]) == set(report.scores)
    for name, score in report.scores.items():
        assert run["scores"][name] == {
            "value": score.value,
            "low": score.low,
            "high": score.high,
            "basis": score.basis,
        }
    assert run["settings"] == json.loads(json.dumps(report.settings))
    assert len(run["groups"]) == 8
    assert sorted(row for group in run["groups"] for row in group["rows"]) == list(range(64))
    assert sum(run["eigenvalues"]["pictures"]) == pytest.approx(1, abs=1e-6)
    assert content["comparison"]["verdict"] == comparison.verdict()
    differences = content["comparison"]["differences"]
    assert set(differences) == set(comparison.differences)
    assert differences["vendi"]["significant"] is True


def test_the_text_has_a_row_for_every_score(report, comparison):
    text = as_markdown([comparison.first, comparison.second], comparison, ["spectrum"])
    assert comparison.verdict() in text
    for name in report.scores:
        assert f"| {MEASURES[name].title} |" in text
        assert f"{MEASURES[name].title}: " in text  # what decides it
    assert "![spectrum](spectrum.png)" in text


def test_a_name_means_nothing_to_markdown():
    report = report_of(8, name="a|b *c* <img src=x> `d`\n# e")
    text = as_markdown([report], None, [])
    assert text.splitlines()[0] == "# a\\|b \\*c\\* \\<img src=x\\> \\`d\\` \\# e"


def test_a_score_that_only_one_run_has_is_no_change():
    judged = report_of(16, prompts=["cat"] * 16, labels=labels_of(["cat"] * 16, ["cat"] * 16))
    plain = report_of(16, prompts=["cat"] * 16)
    rows = {row[0].text: row[1:] for row in score_rows([judged, plain], compare(judged, plain))}
    assert [cell.text for cell in rows["prompt fidelity"]] == ["1.000", "–", "–", "–"]


def test_what_is_left_out_is_said():
    many = [f"prompt {i // 2}" for i in range(60)]
    page = as_page([report_of(60, prompts=many)], None, _no_figures())
    assert "… 18 more prompts …" in page
    assert "All 30 prompts" in page
    one = as_page([report_of(60, prompts=["one"] * 60)], None, _no_figures())
    group = one[one.index('id="prompts"') : one.index('id="modes"')]
    assert group.count("<img") == OF_EACH_GROUP
    assert "distinct of 60" in group


def _no_figures():
    from vendi_guidance.evaluation.report.figures import draw_figures

    return draw_figures([evaluate(sample_images(3), embedding=Embedding("pixels:2"))])


def test_half_a_character_is_written_as_a_question_mark(tmp_path):
    report_of(8, prompts=["\ud83d half"] * 8).save(tmp_path)
    assert "? half" in (tmp_path / "report.html").read_text("utf-8")
