"""`vendi-guidance evaluate` as a user calls it, with a tiny random probe and text encoder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from safetensors.torch import save_file

from tests.helpers.batches_at_hand import sample_images
from tests.helpers.commands import assert_refused, contents
from tests.helpers.tiny_encoders import save_open_clip
from vendi_guidance.commands import evaluate
from vendi_guidance.features.probe import load_probe

COUNT = 16


@pytest.fixture
def evaluated(tiny_sdxl_folder, tiny_probe_folder, tmp_path):
    """Run the command: `evaluated(*words)`, with the tiny models, into tmp_path / "report"."""
    real = load_probe(tiny_probe_folder).embed(sample_images(8, seed=7))
    save_file({"features": real}, tiny_probe_folder / "training_features.safetensors")

    def call(*words: object) -> Result:
        models = ("--probe", tiny_probe_folder, "--text-encoder", tiny_sdxl_folder)
        words = (*models, "--output", tmp_path / "report", *words)
        return CliRunner().invoke(evaluate.main, [str(word) for word in words])

    return call


def save_run(folder: Path, prompts: list[str | None], *, seed: int = 0, **more: object) -> Path:
    """As many pictures of each prompt; None writes no prompts."""
    folder.mkdir()
    lines = []
    for number, image in enumerate(sample_images(COUNT, seed=seed, kinds=len(prompts))):
        image.save(folder / f"{number}.png")
        prompt = prompts[number * len(prompts) // COUNT]
        row = {"file_name": f"{number}.png", **({} if prompt is None else {"prompt": prompt})}
        lines.append(json.dumps(row | more) + "\n")
    (folder / "metadata.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def emoji(tmp_path) -> Path:
    return save_run(tmp_path / "emoji", ["cat", "Dog, asleep"], seconds=0.5)


def content(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def test_two_runs_are_compared(evaluated, emoji, tmp_path):
    other = save_run(tmp_path / "other", ["cat", "Dog, asleep"], seed=1, seconds=0.5)
    result = evaluated(emoji, other, "--sigma-image", 3, "--truncation", 5)
    assert result.exit_code == 0, result.output
    for title in ("change", "prompt fidelity", "Conditional-Vendi", "looks per prompt"):
        assert title in result.output
    assert "Gaussian σ = 3" in result.output
    assert "Too few pictures to tell “other” from “emoji”" in result.output
    for run, name in zip(content(tmp_path / "report")["runs"], ("emoji", "other"), strict=True):
        assert run["name"] == name
        assert run["settings"]["images"] == COUNT
        assert run["settings"]["references"] == 8
        assert run["settings"]["kernel_image"] == {"name": "Gaussian", "sigma": 3.0}
        assert run["scores"]["seconds_per_image"]["value"] == 0.5
        assert {group["label"] for group in run["groups"]} == {"cat", "Dog, asleep"}
    with Image.open(tmp_path / "report" / "comparison.png") as picture:
        assert picture.width > 1000


def test_the_papers_scores_of_two_runs_come_with_intervals_from_one_command(evaluated, tmp_path):
    asked = [f"cat, {number}" for number in range(8)]
    runs = [save_run(tmp_path / f"run-{seed}", asked, seed=seed) for seed in (0, 1)]
    (tmp_path / "clip").mkdir()
    save_open_clip(tmp_path / "clip")
    result = evaluated(*runs, "--clip", f"clip:{tmp_path / 'clip'}")
    assert result.exit_code == 0, result.output
    both = content(tmp_path / "report")
    for name in ("kernel_distance", "conditional_vendi", "vendi", "in_batch_similarity"):
        for run in both["runs"]:
            score = run["scores"][name]
            assert score["low"] <= score["value"] <= score["high"]
            assert f"n = {COUNT}" in score["basis"]
        found = both["comparison"]["differences"][name]
        assert found["low"] < found["change"] < found["high"]
    for run in both["runs"]:  # random weights may find no picture like its prompt
        assert 0 <= run["scores"]["clip_score"]["value"] <= 100
        assert run["scores"]["clip_score"]["basis"] == f"clip clip; n = {COUNT}"


def test_pictures_of_other_things_are_evaluated_with_any_embedders(
    evaluated, tiny_sdxl_folder, tmp_path
):
    castles = save_run(tmp_path / "castles", ["castle", "moat"])
    texts = ("--prompt-embedder", f"sdxl:{tiny_sdxl_folder}")
    result = evaluated(castles, "--image-embedder", "pixels:4", *texts, "--reference", castles)
    assert result.exit_code == 0, result.output
    assert "prompt fidelity and looks are left out" in result.output
    [run] = content(tmp_path / "report")["runs"]
    assert run["settings"]["kernel_image"]["chosen"] == "median distance"
    assert run["scores"]["frechet_distance"]["value"] == pytest.approx(0, abs=1e-6)
    assert "fidelity" not in run["scores"]


def test_reference_features_may_come_from_a_file(evaluated, tmp_path):
    castles = save_run(tmp_path / "castles", [None])
    np.save(tmp_path / "features.npy", np.random.default_rng(0).normal(size=(8, 48)))
    pixels = ("--image-embedder", "pixels:4")
    result = evaluated(castles, *pixels, "--reference", tmp_path / "features.npy")
    assert result.exit_code == 0, result.output
    [run] = content(tmp_path / "report")["runs"]
    assert run["settings"]["references"] == 8 and "recall" in run["scores"]
    assert_refused(evaluated(castles, *pixels, "--reference", castles / "0.png"), "0.png", ".npy")


def test_without_the_demos_files_there_are_no_demo_defaults(
    evaluated, emoji, tiny_sdxl_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(evaluate, "asset", lambda _: None)
    texts = ("--prompt-embedder", f"sdxl:{tiny_sdxl_folder}")
    result = evaluated(emoji, "--image-embedder", "pixels:4", *texts)
    assert result.exit_code == 0, result.output
    assert "references" not in content(tmp_path / "report")["runs"][0]["settings"]


@pytest.mark.parametrize("has_metadata", [True, False])
def test_pictures_without_prompts_are_evaluated(evaluated, tmp_path, has_metadata):
    folder = save_run(tmp_path / "run", [None])
    if not has_metadata:
        (folder / "metadata.jsonl").unlink()
    result = evaluated(folder, "--image-embedder", "pixels:4")
    assert result.exit_code == 0, result.output
    assert "without prompts: conditional scores are left out" in result.output
    assert set(content(tmp_path / "report")["runs"][0]["scores"]) == {"vendi", "rke"}


def test_files_that_cannot_be_read_are_left_out_and_named_or_end_it(evaluated, emoji, tmp_path):
    (emoji / "3.png").write_bytes(b"broken")
    (emoji / "4.png").unlink()
    (emoji / "5.png").write_bytes(b"")
    result = evaluated(emoji)
    assert result.exit_code == 0, result.output
    assert "13 images of 2 prompts" in result.output
    said = [line for line in result.output.splitlines() if line.startswith("left out: ")]
    assert [Path(line.split(": ")[1]).name for line in said] == ["3.png", "4.png", "5.png"]
    skipped = content(tmp_path / "report")["runs"][0]["skipped"]
    assert [Path(bad["name"]).name for bad in skipped] == ["3.png", "4.png", "5.png"]
    assert_refused(evaluated(emoji, "--on-bad-image", "fail"), "3.png")


def test_reference_images_that_cannot_be_read_are_named_too(evaluated, emoji, tmp_path):
    real = save_run(tmp_path / "real", ["cat"])
    (real / "3.png").write_bytes(b"broken")
    result = evaluated(emoji, "--reference", real)
    assert result.exit_code == 0, result.output
    assert f"left out: {real / '3.png'}: it is not an image" in result.output
    [run] = content(tmp_path / "report")["runs"]
    assert run["settings"]["images"] == COUNT and run["settings"]["references"] == COUNT - 1
    assert_refused(evaluated(emoji, "--reference", real, "--on-bad-image", "fail"), "3.png")


def test_weights_that_are_not_at_hand_are_named_with_the_command_that_fetches_them(
    evaluated, tmp_path, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    castles = save_run(tmp_path / "castles", ["castle"])
    assert_refused(evaluated(castles), "hf download facebook/dinov2-large")
    assert_refused(evaluated(castles, "--image-embedder", "pixels"), "hf download", "clip")


def test_a_report_is_not_written_among_images_that_would_be_evaluated_with_it(evaluated, tmp_path):
    folder = save_run(tmp_path / "run", [None])
    inside = ("--image-embedder", "pixels:4", "--output", folder / "report")
    assert evaluated(folder, *inside).exit_code == 0  # metadata.jsonl says which the images are
    shutil.rmtree(folder / "report")
    (folder / "metadata.jsonl").unlink()
    assert_refused(evaluated(folder, *inside), "is inside", "give a folder outside it")
    other = save_run(tmp_path / "other", [None])
    assert_refused(evaluated(other, *inside, "--reference", folder), "is inside")
    assert not (folder / "report").exists()


def test_wrong_input_is_named_and_leaves_earlier_output_untouched(
    evaluated, emoji, tiny_probe_folder, tmp_path
):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.json").write_text("earlier")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_refused(evaluated(empty), "empty", "metadata.jsonl")
    assert_refused(evaluated(tmp_path / "absent"), "absent")
    assert_refused(evaluated(emoji, emoji, emoji), "3 folders")
    assert_refused(evaluated(emoji, "--sigma-image", 0), "--sigma-image", "0")
    assert_refused(evaluated(emoji, "--sigma-prompt", -1), "--sigma-prompt", "-1")
    assert_refused(evaluated(emoji, "--sigma-image", "nan"), "sigma", "nan")
    assert_refused(evaluated(emoji, "--truncation", 0), "--truncation", "0")
    assert_refused(evaluated(emoji, "--image-embedder", "eyes"), "'eyes'", "dinov2")
    assert_refused(evaluated(emoji, "--device", "abacus"), "'abacus' cannot be used here")
    assert_refused(evaluated(emoji, "--reference", empty), "empty")
    assert_refused(evaluated(emoji, "--probe", empty), "empty", "probe")
    assert_refused(evaluated(emoji, "--text-encoder", empty), "empty", "tokenizer_2")
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_probe_folder, damaged)
    (damaged / "model.safetensors").write_bytes(b"x" * 100)
    assert_refused(evaluated(emoji, "--probe", damaged), "damaged")
    assert contents(tmp_path / "report") == {"report.json": b"earlier"}
    assert_refused(evaluated(emoji, "--output", emoji / "0.png"), "0.png")


def test_runs_of_one_name_are_told_apart_by_their_paths(evaluated, emoji, tmp_path):
    (tmp_path / "again").mkdir()
    shutil.copytree(emoji, tmp_path / "again" / "emoji")
    assert evaluated(emoji, tmp_path / "again" / "emoji").exit_code == 0
    names = [run["name"] for run in content(tmp_path / "report")["runs"]]
    assert names == [str(emoji), str(tmp_path / "again" / "emoji")]
