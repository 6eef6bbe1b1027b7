"""`vendi-guidance generate` stopped, killed, out of memory, and resumed, with a tiny SDXL."""

import hashlib
import json
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import partial, wraps
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from click.testing import Result
from PIL import Image

from tests.helpers.commands import (
    Killed,
    assert_refused,
    contents,
    invoke,
    repeatable,
    said_by,
    succeeds,
)
from tests.helpers.processes import fork, needs_fork, wait
from tests.helpers.runs import at_call, read_run
from vendi_guidance import SlidingWindow, VendiGuidedSDXLPipeline
from vendi_guidance.adapter import prompts as prompt_rows
from vendi_guidance.commands import generate
from vendi_guidance.guidance import memory
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs import loading, setup
from vendi_guidance.runs.plan import Manifest
from vendi_guidance.runs.signals import Stop

# a kernel so wide that images of a random model are similar, and guidance changes them
GUIDED = ("--diversity-sigma-latent", 2, "--diversity-window", 5)
IMAGES = 7
BATCH = 2


WRITES = ((os, "fsync"), (os, "truncate"), (Path, "mkdir"), (Path, "replace"), (Path, "unlink"))
"""The functions that runs write and delete files with."""


@pytest.fixture(scope="module")
def words(tiny_sdxl_folder) -> list[str]:
    """The arguments of a run of four batches, without its folder."""
    options = ("--images-per-prompt", IMAGES, "--batch-size", BATCH, "--steps", 2, "--seed", 40)
    given = ("cat", "--model", tiny_sdxl_folder, "--device", "cpu", *options, *GUIDED)
    return list(map(str, given))


@pytest.fixture
def make(words, tmp_path):
    """Run the command: `make(*options)`, into tmp_path / "out"."""

    def run(*options: object, output: Path = tmp_path / "out") -> Result:
        return invoke(generate.main, *words, *options, "--output", output)

    return run


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory) -> Path:
    """The folder of the undisturbed run."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert invoke(generate.main, *words, "--output", folder).exit_code == 0
    return folder


@pytest.fixture
def crashed(make, monkeypatch):
    """Crash a run at a call of the pipeline, with an unexpected error: `crashed(3, *options)`."""

    def run(number: int, *options: object) -> None:
        with monkeypatch.context() as inner:
            at_call(inner, number, Mock(side_effect=Killed))
            with pytest.raises(Killed):
                make(*options)

    return run


def assert_goes_on(make, folder: Path, whole: dict[str, bytes], *options: object) -> None:
    """A resumed run has the same files as the undisturbed one."""
    said_by(make(*options, "--resume"))
    assert repeatable(folder) == whole


@pytest.mark.parametrize(("began", "later"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_a_resumed_run_keeps_the_precision_it_began_in(make, tmp_path, monkeypatch, began, later):
    whole = tmp_path / "whole"
    assert make("--dtype", began, output=whole).exit_code == 0
    monkeypatch.setattr(loading, "computes_bfloat16", lambda: began == "bfloat16")
    at_call(monkeypatch, 3, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    stopped = make()
    assert f"computing in {began}, " in stopped.stderr
    monkeypatch.setattr(loading, "computes_bfloat16", lambda: later == "bfloat16")
    assert "computing in" not in said_by(make("--resume"))
    assert repeatable(tmp_path / "out") == repeatable(whole)
    assert f"computing in {later}, " in make(output=tmp_path / "new").stderr


def interrupt(_pipe, number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def interrupt_twice(pipe) -> None:
    for wait_for in (0, 0, 1.1):  # a launcher forwards the same signal
        time.sleep(wait_for)
        interrupt(pipe)


@pytest.mark.parametrize(
    ("act", "call", "status", "done"),
    [
        (interrupt, 2, 130, 4),
        (partial(interrupt, number=signal.SIGTERM), 2, 143, 4),
        (partial(interrupt, number=signal.SIGTERM), 4, 143, IMAGES),  # only the status shows it
        (interrupt_twice, 2, 130, 2),
    ],
    ids=["SIGINT", "SIGTERM", "in the last batch", "a second signal a second later"],
)
def test_a_signal_lets_the_current_batch_finish_and_a_second_one_does_not(
    make, undisturbed, tmp_path, monkeypatch, capfd, act, call, status, done
):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as inner:
        at_call(inner, call, act)
        result = make()
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert result.exit_code == status
    assert len(read_run(tmp_path / "out").rows) == done
    if done == 4:
        assert "finishing the current batch" in capfd.readouterr().err
        assert f"4 of {IMAGES} images in {tmp_path / 'out'}" in result.output
        assert "stopped: run the same command with --resume to continue" in result.output
    assert_goes_on(make, tmp_path / "out", repeatable(undisturbed))


@needs_fork
def test_a_run_killed_at_any_write_resumes_to_the_same_images(words, tmp_path, monkeypatch):
    load, loaded = setup.load, []

    def load_once(*given):  # for all processes
        if not loaded:
            loaded.append(load(*given))
        return loaded[0]

    monkeypatch.setattr(setup, "load", load_once)
    small = [*words, "--images-per-prompt", 2, "--batch-size", 1, "--steps", 1, "--resume"]

    def die_at(number: int, folder: Path) -> None:
        writes = count()

        def dying(write):
            @wraps(write)
            def written(*args, **kwargs):
                if next(writes) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return write(*args, **kwargs)

            return written

        for place, name in WRITES:
            setattr(place, name, dying(getattr(place, name)))
        generate.main([str(word) for word in [*small, "--output", folder]])

    assert invoke(generate.main, *small, "--output", tmp_path / "whole").exit_code == 0
    for number in count():
        folder = tmp_path / str(number)
        status = wait(fork(partial(die_at, number, folder), tmp_path / "log"))
        if status == 0:
            break
        assert status == -signal.SIGKILL, (tmp_path / "log").read_text()
        succeeds(generate.main, *small, "--output", folder)
        assert repeatable(folder) == repeatable(tmp_path / "whole")
    assert number > 25


def test_a_complete_run_has_nothing_to_do_and_reports_changed_versions(make, undisturbed, tmp_path):
    finished = shutil.copytree(undisturbed, tmp_path / "out")
    began = Manifest.load(finished)
    replace(began, versions=began.versions | {"torch": "1.0"}).save(finished)
    said = said_by(make("--resume"))
    assert f"{IMAGES} images in {finished}, nothing was left to do" in said
    assert f"torch is {began.versions['torch']}, was 1.0" in said
    began.save(finished)
    assert repeatable(finished) == repeatable(undisturbed)


@pytest.mark.parametrize(("crash_at", "proposal"), [(1, "gradient"), (4, "gradient"), (4, "steps")])
def test_windows_in_and_out_survive_a_crash(make, crashed, tmp_path, crash_at, proposal):
    first = tmp_path / "first.safetensors"
    how = "--diversity-proposal", proposal, "--steps", 3
    assert make(*how, "--window-out", first, output=tmp_path / "first").exit_code == 0
    options = (*how, "--window-in", first, "--seed", 90)
    whole, resumed = tmp_path / "whole.safetensors", tmp_path / "resumed.safetensors"
    assert make(*options, "--window-out", whole, output=tmp_path / "whole").exit_code == 0
    options = (*options, "--window-out", resumed)
    crashed(crash_at, *options)
    assert not resumed.exists()
    assert_goes_on(make, tmp_path / "out", repeatable(tmp_path / "whole"), *options)
    one, other = SlidingWindow.load(whole), SlidingWindow.load(resumed)
    assert one.shapes == other.shapes
    for shape in one.shapes:
        assert torch.equal(*(window.of_shape(shape).features for window in (one, other)))
        assert torch.equal(*(window.of_shape(shape).prompts for window in (one, other)))


def test_a_run_finds_the_memory_that_it_began_with_beside_its_images(make, crashed, tmp_path):
    file, out = tmp_path / "memory.safetensors", tmp_path / "out"
    assert make("--window-out", file, output=tmp_path / "first").exit_code == 0
    options = "--window-in", file, "--seed", 90
    assert make(*options, output=tmp_path / "whole").exit_code == 0
    whole = repeatable(tmp_path / "whole")
    [name] = {row["window_in"] for row in map(json.loads, whole["metadata.jsonl"].splitlines())}
    assert Path(name).stem == hashlib.sha256(file.read_bytes()).hexdigest()
    assert whole[name] == file.read_bytes()

    crashed(3, *options)
    file.unlink()
    assert_goes_on(make, out, whole, *options)
    said_by(make(*options, "--overwrite"))
    assert repeatable(out) == whole
    del whole["run.json"]  # which has the name that was given
    for given in (name, tmp_path / "whole" / name):  # as metadata.jsonl names it, and elsewhere
        said_by(make("--window-in", given, "--seed", 90, "--overwrite"))
        assert whole.items() <= repeatable(out).items()

    (out / name).unlink()
    refused = make(*options, "--overwrite")
    assert_refused(refused, f"there is no --window-in {file}, nor its copy in {out / 'memory'}")


def test_a_new_run_in_a_folder_deletes_the_memory_of_the_old_one(make, tmp_path):
    file = tmp_path / "memory.safetensors"
    said_by(make("--window-out", file))
    said_by(make("--window-in", file, "--overwrite"))
    assert [*(tmp_path / "out" / "memory").iterdir()]
    said_by(make("--overwrite"))
    assert not [*(tmp_path / "out" / "memory").iterdir()]


def test_changed_settings_are_named_and_refused(make, crashed, tmp_path):
    crashed(3)
    before = repeatable(tmp_path / "out")
    for options, *said in (
        (
            ("--steps", 4, "--diversity-truncation", 3),
            *("began with other settings", "--steps is 4, was 2"),
            "--diversity-truncation is 3, was none",
        ),
        (("--no-metadata",), "--no-metadata is given, was not given"),
        (("--batch-size", 3), "--batch-size is 3, was 2"),
    ):
        assert_refused(make("--resume", *options), *said)
    assert repeatable(tmp_path / "out") == before


def test_changed_inputs_are_named_and_refused_and_images_name_memories(tiny_sdxl_folder, tmp_path):
    def run(prompts: Path, *options: object) -> Result:
        given = ("--model", tiny_sdxl_folder, "--steps", 1, "--device", "cpu")
        return invoke(generate.main, prompts, *given, "--output", tmp_path / "out", *options)

    prompts, window = tmp_path / "prompts.txt", tmp_path / "window.safetensors"
    prompts.write_text("cat\ndog\n")
    run(prompts, "--window-out", window)
    assert run(prompts, "--overwrite", "--window-in", window).exit_code == 0
    with Image.open(tmp_path / "out" / "000000.png") as image:
        digest = hashlib.sha256(window.read_bytes()).hexdigest()
        assert image.text["window_in_sha256"] == digest
    prompts.rename(tmp_path / "renamed.txt")
    assert run(tmp_path / "renamed.txt", "--window-in", window, "--resume").exit_code == 0
    prompts.write_text("cat\ncow\n")
    refused = run(prompts, "--window-in", window, "--resume")
    assert_refused(refused, "PROMPTS is", "prompts.txt with other content")
    assert_refused(run(tmp_path / "renamed.txt", "--resume"), "--window-in is none, was")


@pytest.mark.parametrize("option", ["--resume", "--overwrite", "--no-metadata"])
def test_a_folder_without_run_is_neither_resumed_nor_replaced(make, tmp_path, option):
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("000000.png", "metadata.jsonl"):
        (folder / name).write_bytes(b"mine")
    before = contents(folder)
    assert_refused(make(option), str(folder), "is not empty and has no run.json")
    assert contents(folder) == before


def test_a_resumed_run_keeps_its_prompt_bandwidth(words, tmp_path, monkeypatch):
    # as with prompt embeddings that are not CLIP's
    monkeypatch.setattr(prompt_rows, "is_pooled_clip", lambda *_: False)
    monkeypatch.setattr(memory, "PROMPTS_TO_SETTLE", 4)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join("abcdefghijkl"))
    given = (prompts, *words[1:], "--images-per-prompt", 1, "--output")
    assert invoke(generate.main, *given, tmp_path / "undisturbed").exit_code == 0

    def make(*more: object) -> Result:
        return invoke(generate.main, *given, tmp_path / "out", *more)

    with monkeypatch.context() as inner:
        at_call(inner, 6, interrupt)
        assert make().exit_code == 130
    assert_goes_on(make, tmp_path / "out", repeatable(tmp_path / "undisturbed"))


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    MemoryError(),
]


def small_memory(monkeypatch, room: int, error: Exception = OUT_OF_MEMORY[0]) -> list[int]:
    """Make calls with more than `room` prompts fail as if out of memory; returns the number of
    prompts of each call."""
    sizes: list[int] = []
    attached = VendiGuidedSDXLPipeline._attached

    def counted(self, given, changes):
        prompts = given["prompt"]
        sizes.append(len(prompts))
        if len(prompts) > room:
            self.vae.to(torch.float64)  # some pipelines decode in another precision
            raise error
        return attached(self, given, changes)

    monkeypatch.setattr(VendiGuidedSDXLPipeline, "_attached", counted)
    return sizes


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_out_of_memory_halves_the_batches_and_the_run_continues(
    make, undisturbed, tmp_path, monkeypatch, caplog, error
):
    sizes = small_memory(monkeypatch, BATCH, error)
    said_by(make("--batch-size", 8))
    assert sizes == [7, 4, 2, 2, 2, 1]
    warnings = [record.getMessage() for record in caplog.records if "memory" in record.getMessage()]
    text = "out of memory with {} images at a time: continuing with {}"
    assert warnings == [text.format(8, 4), text.format(4, 2)]
    run = read_run(tmp_path / "out")
    assert [row["batch_size"] for row in run.rows] == [BATCH] * IMAGES
    assert np.array_equal(run.pixels, read_run(undisturbed).pixels)


@pytest.mark.parametrize("options", [("--batch-size", 4), ("--batch-size", 4, "--diversity", 0)])
def test_a_run_with_halved_batches_resumes_with_them(make, crashed, tmp_path, monkeypatch, options):
    sizes = small_memory(monkeypatch, 2)
    assert make(*options, output=tmp_path / "undisturbed").exit_code == 0
    crashed(4, *options)
    assert 0 < len(read_run(tmp_path / "out").rows) < IMAGES
    sizes.clear()
    assert_goes_on(make, tmp_path / "out", repeatable(tmp_path / "undisturbed"), *options)
    assert max(sizes) == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OUT_OF_MEMORY[0], ["out of memory with one image at a time", "--dtype float16"]),
        (RuntimeError("shapes do not fit"), ["the model cannot be sampled: shapes do not fit"]),
    ],
)
def test_errors_and_no_memory_for_one_image_are_reported(make, tmp_path, monkeypatch, error, said):
    small_memory(monkeypatch, 0, error)
    assert_refused(make(), *said)
    assert not (tmp_path / "out").exists()


def test_images_say_how_they_were_made_unless_metadata_is_off(make, undisturbed, tmp_path):
    assert make("--no-metadata").exit_code == 0
    for row in read_run(undisturbed).rows:
        with Image.open(undisturbed / row["file_name"]) as opened:
            text, pixels = opened.text, np.asarray(opened)
        with Image.open(tmp_path / "out" / row["file_name"]) as quiet:
            assert quiet.text == {} and np.array_equal(np.asarray(quiet), pixels)
        assert text["prompt"] == "cat"
        assert text["seed"] == str(row["seed"])
        assert text["diversity"] == str(Rounds().diversity)
        assert json.loads(text["versions"]) == Manifest.load(undisturbed).versions
        assert len(text["model_sha256"]) == 64


def test_a_lora_changes_the_images_is_recorded_and_needed_to_resume(
    make, crashed, tiny_lora_folder, undisturbed, tmp_path
):
    lora = shutil.copytree(tiny_lora_folder, tmp_path / "lora")
    crashed(3, "--lora", lora)
    assert_refused(make("--resume"), "--lora is none, was ")
    moved = lora.rename(tmp_path / "moved")
    said_by(make("--resume", "--lora", moved))
    [weights] = moved.glob("*.safetensors")
    said = Manifest.load(tmp_path / "out").settings["lora"]
    assert said["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert {row["lora"] for row in read_run(tmp_path / "out").rows} == {str(lora), str(moved)}
    first = "000000.png"
    assert (tmp_path / "out" / first).read_bytes() != (undisturbed / first).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_between_batches_a_signal_ends_the_process_at_once(number, capfd):
    with pytest.raises(SystemExit) as ended, Stop() as stop:
        stop.in_batch = True
        stop.in_batch = False  # as between runs
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert capfd.readouterr().err == "\nstopped: no image is lost\n"


def test_a_stopped_replacement_says_how_to_resume(make, undisturbed, tmp_path, monkeypatch):
    assert make("--steps", 1).exit_code == 0
    with monkeypatch.context() as inner:
        at_call(inner, 1, interrupt)
        result = make("--overwrite")
    assert result.exit_code == 130
    assert "the same command with --resume in place of --overwrite to continue" in result.output
    assert_refused(make("--overwrite", "--resume"), "--overwrite", "--resume")
    assert_goes_on(make, tmp_path / "out", repeatable(undisturbed))
