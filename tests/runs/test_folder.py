"""The output folder of a run: its files, its lock, its checkpoints, the window made from them."""

import errno
import json
import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from tests.helpers.commands import Killed, contents, repeatable
from tests.helpers.processes import fork, needs_fork
from vendi_guidance.guidance.window import SlidingWindow, counts_of
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.folder import CHECKPOINTS, LOCK, Checkpoints, Progress, RunFolder
from vendi_guidance.runs.plan import MANIFEST, Manifest, read
from vendi_guidance.storage.files import headed
from vendi_guidance.storage.imagefolder import METADATA, TIMINGS, image_name

SIZE = 7
PLAN = Manifest({"steps": 3, "model": read("m", "00")}, {"torch": "2"})
OPENING = Progress(0, 0, 2)
OTHERS = (1, 1, 8, 3), (1, 8, 3)
"""Shapes of latents that only some batches have."""


def add_batch(folder: RunFolder, first: int, count: int = 2) -> None:
    names = [image_name(number) for number in range(first, first + count)]
    for number in range(first, first + count):
        folder.save_image(number, Image.new("RGB", (2, 2)), {"prompt": "cat"})
    rows = [{"file_name": name, "prompt": "cat"} for name in names]
    timings = [{"file_name": name, "seconds": 1.0} for name in names]
    folder.finish_batch(rows, timings, Progress(first + count, 0, 2), [])
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


def recovered(folder: RunFolder) -> int:
    """The number of finished images that a new process finds."""
    progress = RunFolder(folder.path, 5).recover()
    assert progress is not None
    return progress.done


def test_what_follows_the_last_checkpoint_is_truncated(folder):
    before = contents(folder.path)
    whole = '{"file_name": "000004.png", "prompt": "cat"}\n'
    for name, more in ((METADATA, f'{whole}{{"file_na'), (TIMINGS, '{"file_name": "0000')):
        with (folder.path / name).open("a") as lines:
            lines.write(more)
    (folder.path / ".writing-x.part").write_bytes(b"half an image")
    (folder.path / CHECKPOINTS / ".writing-x.part").write_bytes(b"half a checkpoint")
    [last] = (folder.path / CHECKPOINTS).glob("0*")
    shutil.copy(last, last.with_name("000000000000.safetensors"))  # not yet deleted
    assert recovered(folder) == 4
    assert contents(folder.path) == before


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


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        *(
            (change, METADATA, "metadata.jsonl has changed: its lines for 4 images have")
            for change in (lambda path: os.truncate(path, 50), os.unlink, add_column)
        ),
        (shutil.rmtree, CHECKPOINTS, "has images, but not the checkpoints .* hidden folder"),
    ],
)
def test_changed_metadata_or_missing_checkpoints_are_refused(folder, change, name, words):
    change(folder.path / name)
    before = contents(folder.path)
    with pytest.raises(ValueError, match=words):
        folder.recover()
    assert contents(folder.path) == before


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


@pytest.mark.parametrize(
    "call", ["os.fsync", "os.truncate", "pathlib.Path.touch", "pathlib.Path.replace"]
)
def test_a_full_disk_is_reported_in_one_sentence_and_loses_nothing(folder, monkeypatch, call):
    before = repeatable(folder.path)
    again = RunFolder(folder.path, 5)
    with (folder.path / METADATA).open("a") as lines:
        lines.write('{"file_na')
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file")
    monkeypatch.setattr(call, Mock(side_effect=full))
    with pytest.raises(OSError, match=r"cannot write to .*run: No space left on device") as caught:
        again.recover()
        add_batch(again, 4)
    is_recovered = call != "os.truncate"
    assert ("4 images saved so far, and --resume continues" in str(caught.value)) == is_recovered
    monkeypatch.undo()
    assert recovered(folder) == 4
    assert before.items() <= repeatable(folder.path).items()


OTHER_VERSION = '{"format": "vendi-guidance %s", "version": 1}'
NAMES_VERSION = "has version 1 of its layout, and this vendi-guidance reads version 3"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((content, "") for content in ("", "[]", "{}", "[" * 100_000)),
        ('{"format": "vendi-guidance run", "version": 3, "settings": {}}', "'versions'"),
        (OTHER_VERSION % "run", NAMES_VERSION),
    ],
)
def test_a_damaged_manifest_or_one_of_another_version_is_named(folder, content, words):
    (folder.path / MANIFEST).write_text(content)
    with pytest.raises(ValueError, match=rf"run\.json does not describe a run: .*{words}"):
        Manifest.load(folder.path)


def grow(
    folder: Path, sizes: list[int], window: SlidingWindow, with_prompts: bool = True
) -> Progress:
    """Add batches of these sizes to a window, and write a checkpoint for each."""
    generator = torch.Generator().manual_seed(len(sizes))
    checkpoints, progress = Checkpoints(folder, window.size), Progress(0, 0, 4)
    checkpoints.add(progress, [])
    for number, size in enumerate(sizes):
        stay = min(size, window.size)
        prompts = torch.randn(stay, 5, generator=generator) if with_prompts else None
        shapes = [*OTHERS[number % 3 :], (4, 3, 3)]
        features = [torch.randn(stay, *shape, generator=generator) for shape in shapes]
        batch = [(rows, prompts) for rows in features if stay]
        for samples in batch:
            window.append(*samples)
        done, length = progress.done + 4, progress.metadata_bytes + 100
        entered = dict(counts_of(batch) + Counter(progress.entered))
        progress = replace(progress, done=done, metadata_bytes=length, entered=entered)
        checkpoints.add(progress, batch)
    return progress


def assert_equal(one: SlidingWindow, other: SlidingWindow) -> None:
    """Two windows are equal bit by bit, slot by slot."""
    assert one.shapes == other.shapes
    for own, again in ([it.of_shape(shape) for it in (one, other)] for shape in one.shapes):
        for name in ("features", "distances", "prompts"):
            kept, made_again = getattr(own, name), getattr(again, name)
            assert made_again is None if kept is None else torch.equal(kept, made_again)
        if own.prompts is not None:
            assert torch.equal(*(it.prompt_gram(Gaussian(0.3)) for it in (own, again)))


@pytest.mark.parametrize(
    ("dtype", "shapes"),
    [
        *((dtype, []) for dtype in (torch.float32, torch.float16, torch.float64)),
        *((torch.float32, shapes) for shapes in ([(4, 3, 3)], [(4, 5, 5)], [(4, 3, 3), (4, 5, 5)])),
    ],
)
@pytest.mark.parametrize(
    "sizes",
    [
        *([], [3], [4, 4, 4, 4, 4], [1] * 10, [20, 3], [3, 20], [2, 5, 1, 4, 4, 3]),
        [4, 0, 4, 0, 0, 3, 0],  # a batch may have no sample to remember
    ],
)
def test_a_window_is_rebuilt_bit_by_bit_beside_what_it_began_with(tmp_path, sizes, dtype, shapes):
    has_prompts = dtype != torch.float64
    known = [(torch.randn(4, *shape), torch.randn(4, 5)) for shape in shapes]
    for end in range(len(sizes) + 1):
        window, again = SlidingWindow(SIZE, dtype=dtype), SlidingWindow(SIZE, dtype=dtype)
        for each in (window, again):
            for samples in known:
                each.append(*samples)
        progress = grow(tmp_path / str(end), sizes[:end], window, has_prompts)
        checkpoints = Checkpoints(tmp_path / str(end), SIZE)
        checkpoints.restore(again, "cpu")
        assert checkpoints.last() == progress
        assert_equal(again, window)
        more = torch.randn(3, 4, 3, 3), torch.randn(3, 5) if has_prompts else None
        window.append(*more)
        again.append(*more)
        assert_equal(again, window)


def test_checkpoints_are_kept_as_long_as_their_samples_are_in_the_window(tmp_path):
    none = [0, 0, 0]  # samples with NaN are not remembered
    for name, sizes in (("one", [4] * 9), ("none", none)):
        (tmp_path / name).mkdir()
        grow(tmp_path / name, sizes, SlidingWindow(SIZE))
    left = {folder.name: [*folder.iterdir()] for folder in tmp_path.iterdir()}
    # the last two have latents, the others features of which later batches have none
    kept = {f"{it:012d}.safetensors" for it in (16, 28, 32, 36)}
    assert {path.name for path in left["one"]} == kept
    assert [path.name for path in left["none"]] == ["000000000012.safetensors"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((each, "") for each in (b"", b"x" * 100, b"\xff" * 8, b"\x10" + bytes(7) + b"[" * 16)),
        *((each, "") for each in (None, "[]", "{}", "[" * 100_000)),
        ('{"format": "vendi-guidance window", "version": 2}', "its format is vendi-guidance wind"),
        (OTHER_VERSION % "checkpoint", NAMES_VERSION),
        (json.dumps(headed("vendi-guidance checkpoint", {**asdict(OPENING), "entered": 2})), "int"),
        (json.dumps(headed("vendi-guidance checkpoint", asdict(OPENING))), "latents_0"),
    ],
)
def test_a_damaged_file_or_one_of_another_format_is_named(tmp_path, content, words):
    path = tmp_path / "000000000004.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save_file({"latents_1": torch.ones(2, 3)}, path, content and {"header": content})
    with pytest.raises(ValueError, match=rf"000000000004\.safetensors is not a.*{words}"):
        Checkpoints(tmp_path, SIZE).last()


def test_an_unwritable_folder_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    refused = pytest.raises(OSError, match=r"cannot write to .*file/run: Not a directory$")
    with refused, RunFolder(tmp_path / "file" / "run", 5).locked():
        pass


@pytest.mark.parametrize("missing", [(8,), (4, 8), (12,)])
def test_missing_checkpoints_are_noticed(tmp_path, missing):
    grow(tmp_path, [2, 2, 2, 0], SlidingWindow(SIZE))
    for done in missing:
        (tmp_path / f"{done:012}.safetensors").unlink()
    with pytest.raises(ValueError, match="checkpoints are missing"):
        Checkpoints(tmp_path, SIZE).restore(SlidingWindow(SIZE), "cpu")


@pytest.mark.parametrize(
    "latents", [torch.ones(2, dtype=torch.int64), torch.ones(3), torch.full((2, 4), torch.nan)]
)
def test_tensors_that_are_no_latents_are_refused(tmp_path, latents):
    path = tmp_path / "000000000004.safetensors"
    Checkpoints(tmp_path, SIZE).add(Progress(4, 10, 4, {"3": 2}), [(torch.ones(2, 3), None)])
    with safe_open(path, "pt") as stored:
        metadata = stored.metadata()
    save_file({"latents_0": latents}, path, metadata)
    with pytest.raises(ValueError, match=r"000000000004\.safetensors (has a|does not fit)"):
        Checkpoints(tmp_path, SIZE).restore(SlidingWindow(SIZE), "cpu")
