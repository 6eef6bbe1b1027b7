"""The output folder of a run."""

import errno
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from PIL import Image

from tests.helpers.commands import Killed, contents, repeatable
from tests.helpers.processes import fork, needs_fork
from tests.helpers.runs import read_run
from vendi_guidance.runs.checkpoints import Checkpoint, Progress
from vendi_guidance.runs.folder import CHECKPOINTS, LOCK, RunFolder
from vendi_guidance.runs.manifest import MANIFEST, Input, Manifest
from vendi_guidance.storage.imagefolder import METADATA, TIMINGS, image_name

PLAN = Manifest({"steps": 3}, {"model": Input("m", "00")}, {"torch": "2"})
OPENING = Checkpoint(Progress(0, 0, 2))


def add_batch(folder: RunFolder, first: int, count: int = 2) -> None:
    for number in range(first, first + count):
        folder.save_image(number, Image.new("RGB", (2, 2)), {"prompt": "cat"})
    names = [image_name(number) for number in range(first, first + count)]
    rows = [{"file_name": name, "prompt": "cat"} for name in names]
    timings = [{"file_name": name, "seconds": 1.0} for name in names]
    folder.finish_batch(rows, timings, Checkpoint(Progress(first + count, 0, 2)))
    length = (folder.path / METADATA).stat().st_size
    assert folder.checkpoints.last() == Progress(first + count, length, 2)


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """A folder with a run of two batches."""
    folder = RunFolder(tmp_path / "run", 5)
    with folder.locked():
        folder.begin(PLAN, OPENING)
        add_batch(folder, 0)
        add_batch(folder, 2)
    return folder


def test_a_run_is_an_imagefolder_with_a_manifest_and_a_checkpoint(folder):
    assert set(contents(folder.path)) == {
        *(f"{number:06d}.png" for number in range(4)),
        METADATA,
        TIMINGS,
        MANIFEST,
        f"{CHECKPOINTS}/000000000004-000000000000.safetensors",
    }
    assert Manifest.load(folder.path) == PLAN
    assert len(read_run(folder.path).images) == 4


def test_what_follows_the_last_checkpoint_is_truncated(folder):
    before = contents(folder.path)
    whole = '{"file_name": "000004.png", "prompt": "cat"}\n'
    for name, more in ((METADATA, f'{whole}{{"file_na'), (TIMINGS, '{"file_name": "0000')):
        with (folder.path / name).open("a") as lines:
            lines.write(more)
    (folder.path / ".writing-x.part").write_bytes(b"half an image")
    (folder.path / CHECKPOINTS / ".writing-x.part").write_bytes(b"half a checkpoint")
    [last] = (folder.path / CHECKPOINTS).glob("0*")
    shutil.copy(last, last.with_name("000000000000-000000000000.safetensors"))  # not yet deleted
    progress = RunFolder(folder.path, 5).recover()
    assert progress is not None and progress.done == 4
    assert contents(folder.path) == before


def test_starting_over_deletes_the_old_run_and_a_run_without_checkpoint_has_not_begun(
    tmp_path, folder
):
    assert RunFolder(tmp_path / "new", 5).recover() is None
    mine = {"notes.txt", "comparison.png", "2024.png"}
    for name in mine:
        (folder.path / name).write_text("mine")
    with folder.locked():
        folder.begin(PLAN, OPENING)
    assert set(contents(folder.path)) == {
        *mine,
        MANIFEST,
        f"{CHECKPOINTS}/000000000000-000000000000.safetensors",
    }
    folder.checkpoints.remove()
    assert folder.recover() is None


@pytest.mark.parametrize("call", ["Manifest.save", "remove_images", "remove_unfinished"])
def test_a_run_whose_replacement_was_killed_starts_over(folder, monkeypatch, call):
    monkeypatch.setattr(f"vendi_guidance.runs.folder.{call}", Mock(side_effect=Killed))
    with pytest.raises(Killed):
        folder.begin(PLAN, OPENING)
    monkeypatch.undo()
    assert folder.recover() is None
    folder.begin(PLAN, OPENING)
    assert {path.name for path in folder.path.iterdir()} == {MANIFEST, CHECKPOINTS}


def add_column(path: Path) -> None:
    path.write_text(path.read_text().replace("}", ', "score": 0.5}'))


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 50), os.unlink, add_column])
def test_changed_metadata_is_refused_and_not_modified(folder, change):
    change(folder.path / METADATA)
    before = contents(folder.path)
    with pytest.raises(
        ValueError, match=r"metadata\.jsonl has changed: its lines for 4 images have"
    ):
        folder.recover()
    assert contents(folder.path) == before


def test_images_without_checkpoints_are_refused(folder):
    shutil.rmtree(folder.path / CHECKPOINTS)
    with pytest.raises(ValueError, match=r"has images, but not the checkpoints .* hidden folder"):
        folder.recover()


@needs_fork
def test_the_lock_dies_with_its_process(folder, tmp_path):
    def hold() -> None:
        with RunFolder(folder.path, 5).locked():
            (tmp_path / "locked").touch()
            signal.pause()

    holder = fork(hold, tmp_path / "log")
    while not (tmp_path / "locked").exists():
        time.sleep(0.002)
    refused = pytest.raises(OSError, match=r"another run is writing to .*run: wait until it ends")
    with refused, folder.locked():
        pass
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert (folder.path / LOCK).exists()
    with folder.locked():
        pass


def test_leftovers_of_a_stopped_run_count_as_an_empty_folder(tmp_path, folder):
    with RunFolder(tmp_path / "new", 5).locked():
        assert RunFolder(tmp_path / "new", 5).is_empty()
    assert not (tmp_path / "new").exists()  # created by the lock only
    (tmp_path / LOCK).touch()
    (tmp_path / ".writing-x.part").touch()
    assert not RunFolder(tmp_path, 5).is_empty()
    assert not folder.is_empty()
    folder.path.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    assert RunFolder(tmp_path, 5).is_empty()


@pytest.mark.parametrize(
    "call", ["os.fsync", "os.truncate", "pathlib.Path.touch", "pathlib.Path.replace"]
)
def test_a_full_disk_is_reported_in_one_sentence_and_loses_nothing(folder, monkeypatch, call):
    before = repeatable(folder.path)

    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file")

    again = RunFolder(folder.path, 5)
    with (folder.path / METADATA).open("a") as lines:
        lines.write('{"file_na')
    monkeypatch.setattr(call, full)
    with pytest.raises(OSError, match=r"cannot write to .*run: No space left on device") as caught:
        again.recover()
        add_batch(again, 4)
    is_recovered = call != "os.truncate"
    assert ("4 images saved so far, and --resume continues" in str(caught.value)) == is_recovered
    monkeypatch.undo()
    progress = RunFolder(folder.path, 5).recover()
    assert progress is not None and progress.done == 4
    after = repeatable(folder.path)
    assert {name: after[name] for name in before} == before


def test_an_unwritable_folder_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    refused = pytest.raises(OSError, match=r"cannot write to .*file/run: Not a directory$")
    with refused, RunFolder(tmp_path / "file" / "run", 5).locked():
        pass


KIND = '{"format": "vendi-guidance run", "version": '


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "[" * 100_000, KIND + "2}", KIND + '1, "settings": 3}'),
        KIND + '1, "settings": {}, "inputs": {"a": 1}}',
        KIND + '1, "settings": {}, "inputs": {}}',
    ],
)
def test_a_damaged_manifest_is_named(folder, content):
    (folder.path / MANIFEST).write_text(content)
    with pytest.raises(ValueError, match=r"run\.json does not describe a run"):
        Manifest.load(folder.path)


def test_a_manifest_names_the_differences():
    assert PLAN.differences(PLAN) == []
    other = replace(
        PLAN,
        settings={"steps": 4, "no_metadata": True, "center": None},
        inputs={"model": Input("m", "01"), "prompts": Input("p.txt", "02")},
        versions={"torch": "3", "pillow": "1"},
    )
    assert other.differences(PLAN) == [
        "--steps is 4, was 3",
        "--no-metadata is given, was none",
        "--model is m with other content, was m",
        "PROMPTS is p.txt, was none",
    ]
    assert PLAN.version_changes(other) == ["torch is 2, was 3"]
    assert other.version_changes(PLAN) == ["torch is 3, was 2", "pillow is 1, was unknown"]
