"""`vendi-guidance evaluate` in two processes, connected by gloo."""

import csv
import json
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.helpers.batches_at_hand import sample_images, save_batch, save_tar
from tests.helpers.commands import assert_refused, contents, invoke, said_by, succeeds
from tests.helpers.processes import fork_team, needs_fork
from vendi_guidance.commands import evaluate, jobs
from vendi_guidance.evaluation import streaming
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.embedding import Embedding, ImageReader, embed_batch
from vendi_guidance.features import network
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.standard import Gaussian

pytestmark = needs_fork

COUNT = 24
GIVEN = ("--image-embedder", "pixels:4", "--prompt-embedder", "words", "--sigma-image", "1")
SMALL = 5  # images of a batch, so that shares have several, the last one smaller


@pytest.fixture
def folder(tmp_path, monkeypatch, unrendered) -> Path:
    monkeypatch.setitem(open_image_embedder.__kwdefaults__, "batch_size", SMALL)
    rows = [{"prompt": f"cat {number % 3}"} for number in range(COUNT)]
    folder = save_batch(tmp_path / "images", sample_images(COUNT, seed=1), rows)
    (folder / "7.png").write_bytes(b"broken")
    (folder / "19.png").write_bytes(b"broken")
    return folder


def team(folder: Path, *words: object, watch=lambda rank: None) -> tuple[list[int], list[str]]:
    """Exit statuses and outputs of two processes."""

    def act(rank: int) -> None:
        watch(rank)
        evaluate.main([str(folder), *GIVEN, *map(str, words)])

    logs = [folder.parent / f"{rank}.log" for rank in range(2)]
    for log in logs:
        log.unlink(missing_ok=True)
    statuses = fork_team(act, logs)
    return statuses, [log.read_text() for log in logs]


def scores(report: Path) -> dict[str, float]:
    [run] = json.loads((report / "report.json").read_text())["runs"]
    assert len(run["skipped"]) == 2
    return {name: score["value"] for name, score in run["scores"].items()}


def test_two_processes_embed_a_share_each_and_the_first_writes_what_one_would(folder, tmp_path):
    statuses, said = team(folder, "--output", tmp_path / "two", watch=refuse_more_than_a_share)
    assert statuses == [0, 0], said
    assert "22 images of 3 prompts" in said[0] and said[1] == ""
    succeeds(evaluate.main, folder, *GIVEN, "--output", tmp_path / "one")
    one, two = scores(tmp_path / "one"), scores(tmp_path / "two")
    assert two == pytest.approx(one, rel=1e-9) and {"conditional_vendi", "rke"} <= one.keys()
    # a second start has all features, and replaces its own report
    statuses, said = team(folder, "--output", tmp_path / "two", watch=refuse_to_embed)
    assert statuses == [0, 0], said
    assert scores(tmp_path / "two") == two


def refuse_more_than_a_share(rank: int) -> None:
    encode, seen = network.NetworkEmbedder.encode, []

    def counting(embedder, pixels):
        seen.append(len(pixels))
        assert sum(seen) <= 15
        return encode(embedder, pixels)

    network.NetworkEmbedder.encode = counting


def refuse_to_embed(rank: int) -> None:
    network.NetworkEmbedder.encode = None


def test_what_is_wrong_is_said_once(folder, tmp_path):
    statuses, said = team(folder, "--output", tmp_path / "two", "--reference", tmp_path / "none")
    assert statuses == [2, 2]
    assert said[0].count("there is no folder") == 1 and "Traceback" not in "".join(said)
    assert "there is no folder" not in said[1]


def refuse_to_score(rank: int) -> None:
    streaming.Sums.scores = Mock(side_effect=OSError("the disk is full"))


def test_streams_add_up_to_the_scores_of_all_images(folder, tmp_path, monkeypatch):
    """A second start after an end on the way goes on from the parts that are done."""
    monkeypatch.setattr(jobs, "SLICE", SMALL)
    words = ("--stream", 1000, "--format", "csv", "--output", tmp_path / "out")
    alone = succeeds(evaluate.main, folder, *GIVEN, *words)
    assert "images: 22 images." in alone.stderr
    for name in ("7.png", "19.png"):
        assert f"left out: {folder / name}: " in alone.stderr
    assert not (tmp_path / "out").exists()
    statuses, said = team(folder, *words, watch=refuse_to_score)
    assert statuses == [2, 0] and "the disk is full" in said[0]
    statuses, said = team(folder, *words, watch=refuse_to_embed)
    assert statuses == [0, 0] and said[1] == "", said
    assert "22 images." in said[0] and said[0].count("left out: ") == 2
    one, two = values(alone.stdout), values(said[0])
    assert two == pytest.approx(one, rel=1e-9) and len(one) == 6
    given = Embedding("pixels:4", "words", kernel_image=Gaussian(1.0))
    exact = embed_batch(as_batch(folder), given, ImageReader()).inputs.scores()
    assert one == pytest.approx({name: exact[name] for name in one}, rel=0.1)


STREAM = ("--stream", 100, "--format", "csv")


def change_a_prompt(folder: Path) -> None:
    table = folder / "metadata.jsonl"
    table.write_text(table.read_text().replace("cat 2", "dog"))


def test_what_has_changed_is_streamed_anew(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "SLICE", SMALL)
    streamed = partial(invoke, evaluate.main, folder, *GIVEN, *STREAM, "--output")
    with monkeypatch.context() as patch:
        patch.setattr(streaming.Sums, "scores", Mock(side_effect=OSError("the disk is full")))
        assert streamed(tmp_path / "out").exit_code == 2
    kept = contents(tmp_path / "out")
    for act in (
        change_a_prompt,
        lambda folder: (folder / "7.png").write_bytes((folder / "0.png").read_bytes()),
        lambda folder: (folder / "metadata.jsonl").write_text('{"file_name": "3.png"}'),
    ):
        act(folder)
        for name, content in kept.items():
            (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "out" / name).write_bytes(content)
        assert said_by(streamed(tmp_path / "out")) == said_by(streamed(tmp_path / "new"))


def test_tar_files_are_streamed_wherever_they_are_and_only_alone(folder, tmp_path):
    shards = tmp_path / "shards"
    (shards / "more").mkdir(parents=True)
    for name, rows in (("0.tar", range(7)), ("more/1.tar", range(8, 12))):
        members = {f"{row}.png": (folder / f"{row}.png").read_bytes() for row in rows}
        save_tar(shards / name, members | {f"{row}.txt": b"a cat" for row in rows})
    assert "shards: 11 images." in said_by(invoke(evaluate.main, shards, *GIVEN, *STREAM))
    save_tar(shards / "more" / "1.tar", {"0.png": (folder / "0.png").read_bytes(), "0.txt": b"cat"})
    assert "shards: 8 images." in said_by(invoke(evaluate.main, shards, *GIVEN, *STREAM))
    shutil.copy(folder / "0.png", shards / "loose.png")
    refused = invoke(evaluate.main, shards, *GIVEN, *STREAM)
    assert_refused(refused, "2 .tar files", f"move {shards / 'loose.png'} elsewhere")


def test_options_without_effect_on_a_stream_are_refused(folder):
    idle = ("--reference", folder, "--truncation", 5)
    refused = invoke(evaluate.main, folder, *GIVEN, *STREAM, *idle)
    assert_refused(refused, "Vendi and RKE scores only: leave out --reference, --truncation")


def values(text: str) -> dict[str, float]:
    rows = csv.DictReader(line for line in text.splitlines() if line.count(",") == 4)
    return {row["score"]: float(row["value"]) for row in rows}
