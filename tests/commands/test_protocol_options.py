"""`--protocol` of `generate` and `evaluate`, with tiny random models."""

import json
import re

import pytest

from tests.helpers.batches_at_hand import greys, sample_images, save_batch
from tests.helpers.benchmark_files import captions, dimcim, write_json
from tests.helpers.commands import assert_refused, invoke
from tests.helpers.runs import read_run
from tests.helpers.tiny_encoders import save_open_clip
from vendi_guidance.commands import evaluate, generate
from vendi_guidance.evaluation.benchmarks import open_benchmark

TRIAL = ("--protocol", "coco1000", "--protocol-prompts", 9)


@pytest.fixture
def coco(tmp_path) -> str:
    return write_json(tmp_path, {"annotations": captions(1000)})


@pytest.fixture
def drawn(tiny_sdxl_folder, tmp_path):
    """Run generate: `drawn(prompts, *options)`, into tmp_path / "out"."""

    def call(*words):
        words = [*words, "--model", tiny_sdxl_folder, "--output", tmp_path / "out", "--steps", 1]
        words += ["--device", "cpu", "--diversity", 0]
        return invoke(generate.main, *words)

    return call


@pytest.fixture
def judged(tiny_sdxl_folder, tmp_path, unrendered):
    """Run evaluate on folders, with tiny models of other names, into tmp_path / "report"."""
    (tmp_path / "clip").mkdir()
    save_open_clip(tmp_path / "clip")

    def call(*words):
        words = [*words, "--output", tmp_path / "report", "--image-embedder", "pixels:4"]
        words += ["--prompt-embedder", f"sdxl:{tiny_sdxl_folder}"]
        words += ["--clip", f"clip:{tmp_path / 'clip'}"]
        return invoke(evaluate.main, *words)

    return call


def save_run(folder, prompts, each):
    images = sample_images(len(prompts) * each, seed=len(folder.name), kinds=3)
    return save_batch(folder, images, [{"prompt": text} for text in prompts for _ in range(each)])


def table_of(folder) -> dict:
    return json.loads((folder / "report" / "report.json").read_text())["protocol"]


def test_a_trial_is_drawn_evaluated_and_reported(drawn, judged, coco, tmp_path):
    result = drawn(coco, *TRIAL, "--height", 16, "--width", 16)
    assert result.exit_code == 0, result.output
    chosen = list(open_benchmark(coco, "coco1000", fewer=9))
    assert read_run(tmp_path / "out").prompts == [text for text in chosen for _ in range(4)]
    about = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert (about["protocol"], about["protocol_prompts"]) == ("coco1000", 9)
    assert about["images_per_prompt"] == 4
    assert_refused(drawn(coco, *TRIAL[:2], "--resume"), "--protocol-prompts is none, was 9")

    result = judged(tmp_path / "out", *TRIAL)
    assert result.exit_code == 0, result.output
    table = table_of(tmp_path)
    assert table["headings"] == [
        "Method",
        "CLIPScore ↑",
        "KD × 10² ↓",
        "Cond-Vendi ↑",
        "Vendi ↑",
        "In-batch Sim. × 10² ↓",
    ]
    [(name, values)] = table["rows"]
    scores = json.loads((tmp_path / "report" / "report.json").read_text())["runs"][0]["scores"]
    assert name == "out" and values[1] is None
    assert values[0] == scores["clip_score"]["value"]
    assert values[2] == scores["conditional_vendi"]["value"]
    assert values[4] == 100 * scores["in_batch_similarity"]["value"]
    assert "n = 36 images of 9 prompts, 54 pairs of one prompt" in table["settings"]
    assert table["differs"][0] == "image embedder pixels:4 instead of dinov2"
    assert table["differs"][-1] == "9 prompts instead of 1,000" and len(table["differs"]) == 4
    assert table["remarks"][0].startswith("KD × 10² is missing: add --reference")
    said = (tmp_path / "report" / "protocol.md").read_text()
    row = next(line for line in said.splitlines() if line.startswith("| out"))
    assert re.fullmatch(r"\| out \| [\d.]+ \| – \| [\d.]+ \| [\d.]+ \| −?[\d.]+ \|", row)
    for text in (said, result.output):
        assert "Not comparable: image embedder pixels:4 instead of dinov2; " in text
        assert "Jalali et al." in text


def test_images_that_cannot_be_read_make_a_difference(judged, coco, tmp_path):
    run = save_run(tmp_path / "a", list(open_benchmark(coco, "coco1000", fewer=9)), 4)
    (run / "3.png").write_bytes(b"broken")
    assert judged(run, *TRIAL).exit_code == 0
    assert table_of(tmp_path)["differs"][-1] == "1 image of a or its reference could not be read"


def test_two_runs_are_two_rows_and_references_fill_the_column(judged, coco, tmp_path):
    prompts = list(open_benchmark(coco, "coco1000", fewer=9))
    runs = [save_run(tmp_path / name, prompts, 4) for name in ("a", "be")]
    result = judged(*runs, *TRIAL, "--reference", runs[0], "--sigma-image", 2, "--sigma-prompt", 1)
    assert result.exit_code == 0, result.output
    table = table_of(tmp_path)
    assert [name for name, _ in table["rows"]] == ["a", "be"]
    assert all(value is not None for _, values in table["rows"] for value in values)
    assert table["remarks"] == [] and "KD against 36 images" in table["settings"]
    assert "Gaussian σ = 2; " in table["settings"]
    assert "sigma image 2.0 instead of 25.0" in table["differs"]


def test_without_a_protocol_there_is_no_table(judged, tmp_path):
    run = save_run(tmp_path / "a", ["a", "b"], 4)
    assert judged(run).exit_code == 0
    assert table_of(tmp_path) is None and not (tmp_path / "report" / "protocol.md").exists()


def test_options_that_contradict_a_protocol_are_named(drawn, judged, coco, tmp_path):
    refused = drawn(coco, *TRIAL, "--images-per-prompt", 8)
    assert_refused(refused, "--images-per-prompt 8 contradicts --protocol coco1000, which takes 4")
    assert_refused(drawn(coco, "--protocol-prompts", 3), "--protocol-prompts needs --protocol")
    assert_refused(drawn("a cat", *TRIAL), "coco1000 takes MS-COCO's captions_*.json")
    assert not (tmp_path / "out").exists()
    assert_refused(drawn(coco, "--protocol", "coco"), "'coco' is not one of", "'coco1000'")
    run = save_run(tmp_path / "a", ["a", "b"], 4)
    other = ("--protocol", "dimcim", "--attributes", write_json(tmp_path, dimcim()))
    assert_refused(judged(run, *other), "file.json lacks the prompt 'a'")
    assert_refused(judged(run, "--protocol-prompts", 3), "--protocol-prompts needs --protocol")
    assert_refused(judged(run, "--protocol", "dimcim"), "dimcim needs --attributes FILE")


@pytest.mark.parametrize(
    ("each", "name", "words"),
    [
        (4, "coco1000", "9 prompts with 4 images each, and --protocol coco1000 takes 1,000 with 4"),
        (2, "geneval", "9 prompts with 2 images each, and --protocol geneval takes 553 with 4"),
        (0, "geneval", "0 prompts with 0 images each"),
    ],
)
def test_runs_that_are_not_of_the_protocol_are_refused(judged, tmp_path, each, name, words):
    run = save_run(tmp_path / "a", [f"prompt {i}" for i in range(9)], each or 1)
    if not each:
        (run / "metadata.jsonl").unlink()
    refused = judged(run, "--protocol", name)
    assert_refused(refused, words, f"vendi-guidance generate FILE --protocol {name}")
    assert not (tmp_path / "report").exists()


def test_unequal_numbers_of_images_are_refused(judged, tmp_path):
    run = save_run(tmp_path / "a", [f"prompt {i}" for i in range(9)], 4)
    lines = (run / "metadata.jsonl").read_text().splitlines()
    (run / "metadata.jsonl").write_text("\n".join(lines[:-1]))
    assert_refused(judged(run, *TRIAL), "9 prompts with 3 to 4 images each")


def test_one_file_of_dimcim_serves_both_commands(judged, tmp_path):
    """The prompts of `generate`, and the attributes of `evaluate`; a person has judged them."""
    source = write_json(tmp_path, dimcim())
    prompts = list(open_benchmark(source, "dimcim"))
    rows = []
    for number in range(30 * len(prompts)):
        prompt = prompts[number // 30]
        colours = ("black", "brown") if "dog" in prompt else ("red", "blue")
        seen = next((it for it in colours if it in prompt), colours[number % 2])
        if prompt == "a red mug" and number % 3 == 0:
            seen = "blue"  # a third does not show what is named
        rows.append({"prompt": prompt, f"{prompt.split()[-1]} color": seen})
    folder = save_batch(tmp_path / "run", greys(*(i % 256 for i in range(len(rows)))), rows)
    words = (folder, "--protocol", "dimcim", "--attributes", source, "--attribute-judge", "labels")
    result = judged(*words)
    assert result.exit_code == 0, result.output
    table = table_of(tmp_path)
    assert table["headings"][1:] == [
        "Does-it: evenness ↑",
        "Does-it: values shown ↑",
        "Can-it: named kept ↑",
    ]
    rows = dict(map(tuple, table["rows"]))
    assert rows["run: dog"] == pytest.approx([1, 1, 1])
    assert rows["run: mug"] == pytest.approx([1, 1, (2 / 3 + 1) / 2])
    assert rows["run"] == pytest.approx([1, 1, (1 + 5 / 6) / 2])
    assert table["remarks"][0].startswith("Values are told by labels, ")
    assert table["remarks"][1] == "dog setting is left out: it has one value only, outdoors."
    report = json.loads((tmp_path / "report" / "report.json").read_text())["runs"][0]
    named = {spread["prompt"]: spread["named"] for spread in report["attributes"][0]["spreads"]}
    assert named == {"a dog": None, "a black dog": "black", "a brown dog": "brown"}
