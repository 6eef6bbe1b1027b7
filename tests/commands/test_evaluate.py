"""`vendi-guidance evaluate` as a user calls it, with a tiny random probe and text encoder."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import Result
from safetensors.torch import save_file

from tests.helpers.batches_at_hand import sample_images, save_batch, save_tar
from tests.helpers.commands import assert_refused, contents, invoke, said_by
from tests.helpers.tiny_encoders import save_open_clip
from vendi_guidance.commands import evaluate, scoring_options
from vendi_guidance.features.probe import load_probe

COUNT = 16
PIXELS = ("--image-embedder", "pixels:4")


@pytest.fixture
def evaluated(tiny_sdxl_folder, tiny_probe_folder, tmp_path, unrendered):
    """Run the command: `evaluated(*words)`, with the tiny models, into tmp_path / "report"."""
    probe = shutil.copytree(tiny_probe_folder, tmp_path / "tiny-probe")
    real = load_probe(probe).embed(sample_images(8, seed=7))
    save_file({"features": real}, probe / "training_features.safetensors")

    def call(*words: object, output: tuple = ("--output", tmp_path / "report")) -> Result:
        return invoke(evaluate.main, "--probe", probe, *output, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring_options, "asset", lambda name: tiny_sdxl_folder)
        yield call


@pytest.mark.parametrize(
    ("prompt", "model"),
    [("a photo of a shirt", "demo-photos"), ("ear", "demo"), ("portrait", "demo-faces")],
)
def test_prompts_of_a_demo_model_have_its_probe_and_text_encoders(prompt, model):
    embedding, judges, notes, reference = scoring_options.open_scoring([prompt], "cpu")
    probe = f"assets/{model}-probe"
    assert embedding.image.settings["weights"] == probe and judges.labels
    encoder = embedding.prompt.settings["weights"]
    assert encoder == ("assets/demo-sdxl" if model == "demo" else f"assets/{model}")
    assert notes == [] and judges.attributes[0].training is not None
    assert (reference is None) == (model == "demo-faces")


def save_run(folder: Path, prompts: list[str | None], *, seed: int = 0, **more: object) -> Path:
    """As many images of each prompt; None writes no prompts."""
    asked = [prompts[number * len(prompts) // COUNT] for number in range(COUNT)]
    rows = [more if prompt is None else more | {"prompt": prompt} for prompt in asked]
    return save_batch(folder, sample_images(COUNT, seed=seed, kinds=len(prompts)), rows)


@pytest.fixture
def emoji(tmp_path) -> Path:
    return save_run(tmp_path / "emoji", ["cat", "Dog, asleep"], seconds=0.5)


def content(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def test_two_runs_are_compared_by_the_papers_scores_and_intervals(evaluated, tmp_path, monkeypatch):
    monkeypatch.undo()  # figures are rendered
    asked = [f"cat, {number}" for number in range(8)]
    runs = [save_run(tmp_path / f"run-{seed}", asked, seed=seed, seconds=0.5) for seed in (0, 1)]
    (tmp_path / "clip").mkdir()
    save_open_clip(tmp_path / "clip")
    given = ("--clip", f"clip:{tmp_path / 'clip'}", "--sigma-image", 3, "--truncation", 5)
    said = said_by(evaluated(*runs, *given))
    for title in ("prompt fidelity", "Conditional-Vendi", "looks per prompt", "Gaussian σ = 3"):
        assert title in said
    both = content(tmp_path / "report")
    for number, run in enumerate(both["runs"]):
        assert run["name"] == f"run-{number}"
        assert run["settings"]["references"] == 8
        scores = run["scores"]
        assert scores["seconds_per_image"]["value"] == 0.5
        assert 0 <= scores["clip_score"]["value"] <= 100  # 0 if no image is like its prompt
        assert scores["clip_score"]["basis"] == f"clip clip; n = {COUNT}"
        assert scores["spread_beside_text"]["basis"] == f"clip clip; n = {COUNT}"
        for name in ("kernel_distance", "conditional_vendi", "vendi", "pairwise_distance"):
            assert scores[name]["low"] <= scores[name]["value"] <= scores[name]["high"]
            assert f"n = {COUNT}" in scores[name]["basis"]
            found = both["comparison"]["differences"][name]
            assert found["low"] < found["change"] < found["high"]


def test_the_protocol_of_groups_scores_four_images_of_a_prompt(evaluated, emoji, tmp_path):
    assert "in-group Vendi" in said_by(evaluated(emoji, *PIXELS, "--protocol", "group-vendi"))
    found = content(tmp_path / "report")["runs"][0]["scores"]["group_vendi"]
    assert found["basis"] == "pixels, cosine; groups of 4, n = 16" and 1 < found["value"] < 4
    few = save_run(tmp_path / "few", [f"cat, {number}" for number in range(8)])
    said = said_by(evaluated(few, *PIXELS, "--protocol", "group-vendi"))
    assert "in-group Vendi (4 images of a prompt)" in said  # left out, and said


def test_other_images_take_any_embedders_and_references(evaluated, tiny_sdxl_folder, tmp_path):
    castles = save_run(tmp_path / "castles", ["castle", "moat"])
    texts = ("--prompt-embedder", f"sdxl:{tiny_sdxl_folder}")
    assert "of 2 prompts." in said_by(evaluated(castles, *PIXELS, *texts, "--reference", castles))
    [run] = content(tmp_path / "report")["runs"]
    assert run["settings"]["kernel_image"]["chosen"] == "median distance"
    assert run["scores"]["frechet_distance"]["value"] == pytest.approx(0, abs=1e-6)
    assert "fidelity" not in run["scores"]
    members = {path.name: path.read_bytes() for path in castles.glob("*.png")}
    save_tar(tmp_path / "real.TAR", members)
    said_by(evaluated(castles, *PIXELS, *texts, "--reference", tmp_path / "real.TAR"))
    [again] = content(tmp_path / "report")["runs"]
    assert again["settings"]["references"] == COUNT
    wrong = ("--reference", castles / "0.png")
    assert_refused(evaluated(castles, *PIXELS, *texts, *wrong), "0.png", ".npy")


def test_a_probe_that_knows_no_prompt_is_said_not_to_be_used(evaluated, tmp_path):
    castles = save_run(tmp_path / "castles", ["castle", "moat"])
    said = said_by(evaluated(castles, *PIXELS, "--prompt-embedder", "words"))
    note = f"The probe in {tmp_path / 'tiny-probe'} knows none of the prompts"
    assert said.count(note) == 1
    [run] = content(tmp_path / "report")["runs"]
    assert any(note in one for one in run["notes"])
    assert note in (tmp_path / "report" / "report.html").read_text()
    bare = save_run(tmp_path / "bare", [None])
    assert "tiny-probe is not used without prompts" in said_by(evaluated(bare, *PIXELS))


def test_files_that_cannot_be_read_are_left_out_and_named_or_end_it(evaluated, emoji, tmp_path):
    real = save_run(tmp_path / "real", ["cat"])
    (real / "6.png").write_bytes(b"broken")
    assert_refused(evaluated(emoji, "--reference", real, "--on-bad-image", "fail"), "6.png")
    (emoji / "3.png").write_bytes(b"broken")
    (emoji / "4.png").unlink()
    (emoji / "5.png").write_bytes(b"")
    said = said_by(evaluated(emoji, "--reference", real))
    assert "13 images of 2 prompts" in said
    left_out = [line for line in said.splitlines() if line.startswith("left out: ")]
    bad = [str(emoji / name) for name in ("3.png", "4.png", "5.png")] + [str(real / "6.png")]
    assert [line.split(": ")[1] for line in left_out] == bad
    [run] = content(tmp_path / "report")["runs"]
    assert [one["name"] for one in run["skipped"]] == bad
    assert run["settings"]["references"] == COUNT - 1
    assert_refused(evaluated(emoji, "--on-bad-image", "fail"), "3.png")


def test_without_weights_pixels_and_words_are_compared_and_that_is_said(evaluated, hub, tmp_path):
    castles = save_run(tmp_path / "castles", ["a castle", "a moat"])
    said, table = said_by(evaluated(castles)).split(" score ", 1)
    degraded = ("DINOv2 is not available", "not what is shown", "cannot be compared with scores")
    for words in ("castles: Prompts are from metadata.jsonl.", *degraded):
        assert words in said and words not in table
    assert "hf download facebook/dinov2-large" in said
    assert "CLIP is not available, so prompts are compared by their words" in said
    [run] = content(tmp_path / "report")["runs"]
    names = [run["settings"][f"{what}_embedder"]["name"] for what in ("image", "prompt")]
    assert names == ["pixels", "words"]
    assert {"conditional_vendi", "in_batch_similarity"} <= set(run["scores"])
    assert "DINOv2 is not available" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.parametrize("named", ["--image-embedder dinov2", "--prompt-embedder clip"])
def test_an_embedder_that_is_named_is_not_replaced(evaluated, hub, tmp_path, named):
    castles = save_run(tmp_path / "castles", ["castle"])
    assert_refused(evaluated(castles, *named.split()), "hf download", named.split()[1])
    assert not (tmp_path / "report").exists()


def test_a_report_that_fails_leaves_the_earlier_one_as_it_was(evaluated, emoji, monkeypatch):
    report = emoji.parent / "emoji-report"
    assert evaluated(emoji, output=()).exit_code == 0
    before, fail = contents(report), Mock(side_effect=OSError("the disk is full"))
    for place in ("as_page", "version_of"):
        with monkeypatch.context() as patch:
            patch.setattr(f"vendi_guidance.evaluation.report.html.{place}", fail)
            assert_refused(evaluated(emoji, output=()), "the disk is full")
            assert contents(report) == before
            assert_refused(evaluated(emoji, "--output", emoji.parent / "new"), "the disk is full")
            assert not [*emoji.parent.glob("new"), *emoji.parent.glob(".*")]


def test_without_output_the_report_is_beside_the_images(evaluated, emoji, tmp_path):
    result = evaluated(emoji, output=())
    assert f"wrote {tmp_path / 'emoji-report' / 'report.html'}" in result.output
    # runs of one name are told apart by their paths
    shutil.copytree(emoji, tmp_path / "again" / "emoji")
    assert evaluated(emoji, tmp_path / "again" / "emoji").exit_code == 0
    names = [run["name"] for run in content(tmp_path / "report")["runs"]]
    assert names == [str(emoji), str(tmp_path / "again" / "emoji")]


def test_a_report_is_replaced_and_other_files_are_never_touched(evaluated, emoji, tmp_path):
    other = save_run(tmp_path / "other", ["cat", "Dog, asleep"], seed=1)
    report = tmp_path / "report"
    said = said_by(evaluated(emoji, other))
    assert "Too few images to tell “other” from “emoji”" in said
    assert evaluated(emoji, other, "--sigma-image", 2).exit_code == 0
    before = contents(report)
    (report / "notes.txt").write_text("mine")
    assert evaluated(emoji).exit_code == 0
    assert contents(report).keys() == before.keys() | {"notes.txt"}
    assert len(content(report)["runs"]) == 1
    (report / "report.json").write_text('{"format": "another program\'s"}')
    before = contents(report)
    assert_refused(evaluated(emoji), "is not empty and has no report")
    assert contents(report) == before


def test_wrong_input_is_named_and_changes_no_output(evaluated, emoji, tiny_probe_folder, tmp_path):
    assert evaluated(emoji).exit_code == 0
    before = contents(tmp_path / "report")
    empty, damaged = tmp_path / "empty", tmp_path / "damaged"
    empty.mkdir()
    shutil.copytree(tiny_probe_folder, damaged)
    (damaged / "model.safetensors").write_bytes(b"x" * 100)
    assert_refused(evaluated(empty), "empty", "metadata.jsonl")
    assert_refused(evaluated(tmp_path / "absent"), "absent")
    assert_refused(evaluated(emoji, emoji, emoji), "3 folders")
    assert_refused(evaluated(emoji, emoji), "got the folder", str(emoji), "twice")
    bare = save_run(tmp_path / "bare", [None])
    (bare / "0.png").unlink()  # refused before any image is read
    assert_refused(evaluated(emoji, bare, "--on-bad-image", "fail"), "has no prompts")
    for option, value, *more in (
        ("--sigma-image", "nan", "sigma"),
        ("--image-embedder", "eyes", "dinov2"),
        ("--reference", empty),
        ("--probe", empty, "probe"),
        ("--probe", damaged),
    ):
        assert_refused(evaluated(emoji, option, value), str(value), *more)
    assert contents(tmp_path / "report") == before
    assert_refused(evaluated(emoji, "--output", emoji / "0.png"), "0.png")
