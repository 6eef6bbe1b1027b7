"""The files of a report beside its page."""

import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError

import matplotlib as mpl
import pytest
from PIL import Image
from rich.console import Console

from tests.helpers.batches_at_hand import EMBEDDING, labels_of, report_of, sample_images, save_batch
from vendi_guidance.commands.score_tables import score_table
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import compare, evaluate
from vendi_guidance.evaluation.report.figures import convergence_figure
from vendi_guidance.evaluation.report.html import OF_EACH_GROUP, as_page
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage import messages

FILES = {"report.html", "report.json", "convergence.png"}
SETTINGS = {"truncation": 4, "references": sample_images(12), "seconds": [0.5] * 64}


@pytest.fixture(scope="module")
def comparison():
    return compare(report_of(64, **SETTINGS), report_of(64, 10, **SETTINGS))


@pytest.fixture(scope="module")
def folder(comparison, tmp_path_factory):
    """A saved comparison, in a folder that held notes and a figure of an earlier version."""
    folder = tmp_path_factory.mktemp("reports")
    earlier = {"format": "vendi-guidance report", "files": ["similarities-1.png"]}
    (folder / "report.json").write_text(json.dumps(earlier))
    (folder / "similarities-1.png").write_text("earlier")
    (folder / "notes.txt").write_text("mine")
    assert comparison.save(folder) == folder / "report.html"
    return folder


def test_one_report_and_two_are_whole_folders(comparison, folder, tmp_path):
    comparison.first.save(tmp_path / "one")
    for saved, files in ((tmp_path / "one", FILES), (folder, FILES | {"notes.txt"})):
        assert {path.name for path in saved.iterdir()} == files
    assert (folder / "notes.txt").read_text() == "mine"
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 100


def test_a_report_is_saved_at_home_and_without_an_installed_package(tmp_path, monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(messages, "version", missing)
    page = report_of(2).save("~/report")
    assert page == tmp_path / "report" / "report.html"
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    assert content["made_with"] == "vendi-guidance not installed"


def test_figures_are_the_same_in_any_style_of_matplotlib(comparison, folder, tmp_path):
    with mpl.rc_context({"text.usetex": True, "axes.facecolor": "black", "font.size": 30}):
        comparison.save(tmp_path)
        assert mpl.rcParams["font.size"] == 30
    for path in folder.glob("*.png"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_the_data_hold_every_number_and_what_decides_it(comparison, folder):
    report, content = comparison.first, json.loads((folder / "report.json").read_text())
    assert (content["format"], content["version"]) == ("vendi-guidance report", 3)
    assert [run["name"] for run in content["runs"]] == [report.name, "spread 10"]
    run = content["runs"][0]
    assert run["scores"] == {name: asdict(score) for name, score in report.scores.items()}
    assert run["scores"]["vendi"].keys() == {"value", "low", "high", "basis"}
    assert run["settings"] == json.loads(json.dumps(report.settings))
    assert len(run["groups"]) == 8
    assert sorted(row for group in run["groups"] for row in group["rows"]) == list(range(64))
    assert content["comparison"]["verdict"] == comparison.verdict()
    differences = content["comparison"]["differences"]
    assert set(differences) == set(comparison.differences)
    assert differences["vendi"]["significant"] is True


def test_half_a_character_is_a_question_mark(tmp_path):
    report_of(8, prompts=["\ud83d half"] * 8).save(tmp_path)
    assert "? half" in (tmp_path / "report.html").read_text("utf-8")


def test_settings_are_in_plain_words_without_a_digest_of_no_weights():
    [image] = sample_images(1)
    report = evaluate([image] * 2, embedding=Embedding("pixels:2", kernel_image=Gaussian(1.0)))
    assert report.settings["image_embedder"]["settings"] == {"size": 2, "precision": "float32"}
    page = as_page([report], None, None, 0)
    assert "<dd>name: pixels; settings: (size: 2; precision: float32)</dd>" in page
    assert "<dd>none</dd>" in page


def test_a_score_that_only_one_run_has_is_no_change():
    cats = ["cat"] * 16
    runs = [report_of(16, prompts=cats, labels=x) for x in (labels_of(cats, cats), None)]
    both = {"a": runs[0].scores, "b": runs[1].scores}
    columns = score_table(both, compare(*runs)).columns
    rows = zip(*(map(str, column.cells) for column in columns), strict=True)
    assert ("prompt fidelity", "1.000", "–", "–", "–") in rows


def test_an_image_that_has_gone_since_it_was_scored_is_shown_blank(tmp_path, caplog):
    folder = save_batch(tmp_path / "a", sample_images(8), [{"prompt": "a"}] * 8)
    report = evaluate(folder, embedding=EMBEDDING)
    (folder / "3.png").unlink()
    (folder / "4.png").write_bytes(b"changed")
    assert report.save(tmp_path / "report").read_text().count("data:image/webp") >= 8
    assert "4.png" in caplog.text and "3.png" in caplog.text


def test_the_table_of_two_runs_fits_80_columns(comparison):
    console = Console(width=80)
    with console.capture() as printed:
        both = {"without": comparison.first.scores, "with": comparison.second.scores}
        console.print(score_table(both, comparison))
    assert "significant? \n" in printed.get()


def test_what_is_left_out_is_said():
    assert convergence_figure([report_of(3, prompts=None).analysis.convergence], ["few"]) is None
    many = [f"prompt {i // 2}" for i in range(60)]
    page = as_page([report_of(60, prompts=many)], None, None, 0)
    assert "… 18 more prompts …" in page
    assert "All 30 prompts" in page
    one = as_page([report_of(60, prompts=["one"] * 60)], None, None, 0)
    group = one[one.index('id="prompts"') : one.index('id="modes"')]
    assert group.count("<img") == OF_EACH_GROUP
    assert "distinct of 60" in group
