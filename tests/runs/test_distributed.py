"""One run of `vendi-guidance generate` in two processes, connected by gloo."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from time import sleep
from unittest.mock import Mock

import pytest
import torch
from torch.distributed import TCPStore

from tests.helpers.commands import repeatable
from tests.helpers.processes import fork, fork_team, needs_fork, wait
from tests.helpers.runs import at_call, check_checkpoints, read_run
from vendi_guidance.commands import generate
from vendi_guidance.runs import folder as run_folder, signals
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.runs.runner import Runner
from vendi_guidance.storage.imagefolder import METADATA

pytestmark = needs_fork

IMAGES = 9
PROMPTS = ["cat", "dog", "cow"]

Event = tuple[Callable[[object], object], int, int]
"""An event, the rank of its process, and the number of the pipeline call at which it happens."""


class Team:
    """Processes that run the tiny model into `output`. `said` has the last output of each, and
    `windows` the state of its window after each round: done, its length and a digest."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.output = folder / "out"
        folder.mkdir(exist_ok=True)
        (folder / "prompts.txt").write_text("\n".join(PROMPTS))
        words = [
            *("prompts.txt", "--model", model, "--images-per-prompt", 3),
            *("--batch-size", 2, "--steps", 3, "--diversity-sigma-latent", 2),
            *("--diversity-proposal", "gradient"),  # in processes of their own too
            # under load, the processes might choose different precisions for --dtype auto
            *("--diversity-window", 5, "--device", "cpu", "--dtype", "float32", "--output", "out"),
        ]
        self.words = [str(word) for word in words]

    def run(self, *options: object, count=2, event: Event | None = None, launch=None) -> list[int]:
        """Exit statuses of that many processes; `launch` is what torchrun adds to the
        environment."""
        for file in self.folder.glob("[0-9].*"):
            file.unlink()

        def act(rank: int) -> None:
            os.chdir(self.folder)
            launched_by_this(launch or {})
            if launch is not None and launch["TORCHELASTIC_RESTART_COUNT"] != "0":
                sleep(rank)  # meanwhile the first could use an outdated address
            refuse_pickles()
            check_checkpoints(pytest.MonkeyPatch())
            watch_windows(self.folder / f"{rank}.windows")
            if event is not None and event[1] == rank:
                at_call(pytest.MonkeyPatch(), event[2], event[0])
            generate.main([*self.words, *map(str, options)])

        logs = [self.folder / f"{rank}.log" for rank in range(count)]
        statuses = fork_team(act, logs)
        self.said = [log.read_text() for log in logs]
        files = sorted(self.folder.glob("[0-9].windows"))
        self.windows = [file.read_text().splitlines() for file in files]
        return statuses


def watch_windows(file: Path) -> None:
    rounds = Runner.rounds

    def watched(run: Runner) -> Iterator[int]:
        for made in rounds(run):
            window = run.window
            kept = (window.features, window.prompts, window.distances)
            digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in kept)).hexdigest()
            with file.open("a") as lines:
                lines.write(f"{run.progress.done} {len(run.window)} {digest}\n")
            yield made

    Runner.rounds = watched


def refuse_pickles() -> None:
    """Fail if this process reads a pickle from now on."""

    def hook(event: str, _: object) -> None:
        if event == "pickle.find_class":
            raise ValueError("a pickle is read")

    sys.addaudithook(hook)


def launched_by_this(environment: dict[str, str]) -> None:
    """Regard the parent process as torchrun, with the environment that it sets."""
    os.environ |= environment
    signals.PARENT = os.getppid()


def kill(_pipe: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk(_pipe: object) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    run_folder.save_image = Mock(side_effect=full)


def assert_whole(folder: Path) -> None:
    """The folder has every image exactly once."""
    rows = sorted(read_run(folder).rows, key=lambda row: row["seed"])
    names = [f"{number:06d}.png" for number in range(IMAGES)]
    assert sorted(path.name for path in folder.glob("*.png")) == names
    expected = zip(names, sorted(PROMPTS * 3, key=PROMPTS.index), range(IMAGES), strict=True)
    for row, found in zip(rows, expected, strict=True):
        assert (row["file_name"], row["prompt"], row["seed"]) == found and row["seconds"] > 0


@pytest.fixture(scope="module")
def undisturbed(tiny_sdxl_folder, tmp_path_factory) -> Team:
    """An undisturbed run of two processes."""
    team = Team(tmp_path_factory.mktemp("processes") / "undisturbed", tiny_sdxl_folder)
    assert team.run() == [0, 0], team.said
    assert f"{IMAGES} images in " in team.said[0]
    assert "images" not in team.said[1]
    return team


@pytest.fixture
def team(tiny_sdxl_folder, tmp_path) -> Team:
    return Team(tmp_path / "team", tiny_sdxl_folder)


@pytest.fixture
def launch() -> Iterator[Callable[[int], dict[str, str]]]:
    """The environment variables that torchrun sets after a number of restarts."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    about = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    about |= {"TORCHELASTIC_MAX_RESTARTS": "3", "MASTER_PORT": str(store.port)}
    yield lambda restarts: about | {"TORCHELASTIC_RESTART_COUNT": str(restarts)}


def test_two_processes_generate_each_image_once_and_share_the_window(undisturbed):
    assert_whole(undisturbed.output)
    first, second = undisturbed.windows
    assert [line.split()[:2] for line in first] == [["4", "4"], ["8", "5"], ["9", "5"]]
    assert first == second
    assert {row["processes"] for row in read_run(undisturbed.output).rows} == {2}


def test_accelerate_launches_the_processes(undisturbed, team):
    launch = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1"
    launch += " --mixed_precision no --dynamo_backend no --main_process_port 0 -m vendi_guidance"
    words = [sys.executable, *launch.split(), "generate", *team.words]
    how = {"cwd": team.folder, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    done = subprocess.run(words, **how, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{IMAGES} images in ") == 1
    assert_whole(team.output)
    assert repeatable(team.output) == repeatable(undisturbed.output)


def test_a_killed_process_ends_the_run_which_another_number_of_processes_resumes(team):
    assert team.run(event=(kill, 0, 3)) == [-signal.SIGKILL, 2]
    assert "another process of this run has ended" in team.said[1]
    assert "Traceback" not in team.said[1]
    assert (team.output / METADATA).read_bytes().count(b"\n") == 8
    assert team.run("--resume", count=1) == [0], team.said
    assert_whole(team.output)
    assert [row["processes"] for row in read_run(team.output).rows] == [2] * 8 + [1]


def test_restarted_processes_continue_their_run(undisturbed, team, launch):
    assert team.run(launch=launch(0)) == [2, 2]
    assert "--max-restarts restarts a run that has begun, so that it needs --resume" in team.said[0]
    statuses = team.run("--resume", event=(kill, 0, 3), launch=launch(1))
    assert statuses == [-signal.SIGKILL, 2], team.said
    assert team.run("--resume", launch=launch(2)) == [0, 0], team.said
    assert repeatable(team.output) == repeatable(undisturbed.output)
    assert team.windows[0] == team.windows[1] == undisturbed.windows[0][2:]


def test_a_process_ends_with_its_launcher_while_it_waits_for_another(tmp_path, launch):
    ours, theirs = os.pipe()

    def wait_for_one_that_never_comes() -> None:
        launched_by_this(launch(0) | {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "2"})
        os.write(theirs, str(os.getpid()).encode())
        with process_group("cpu"):
            pass

    def be_launcher() -> None:
        fork(wait_for_one_that_never_comes, tmp_path / "log")
        signal.pause()

    parent = fork(be_launcher, tmp_path / "launcher.log")
    os.close(theirs)
    worker = int(os.read(ours, 32))
    os.kill(parent, signal.SIGKILL)
    wait(parent)
    has_ended, _, _ = select([ours], [], [], 120)  # when its end of the pipe closes
    if not has_ended:
        os.kill(worker, signal.SIGKILL)
    assert has_ended


@pytest.mark.parametrize(
    ("event", "status", "words", "done"),
    [
        ((lambda _: os.kill(os.getpid(), signal.SIGTERM), 1, 2), 143, f"8 of {IMAGES} images", 8),
        # although the other process has saved its images
        ((fill_disk, 1, 1), 2, "cannot write to out: No space left on device", 0),
    ],
    ids=["asked to stop", "cannot write"],
)
def test_a_stopped_process_ends_a_run_that_resumes(undisturbed, team, event, status, words, done):
    assert team.run(event=event) == [status, status]
    said, metadata = "".join(team.said), team.output / METADATA
    assert said.count(words) == 1 and "Traceback" not in said
    assert (metadata.read_bytes().count(b"\n") if metadata.exists() else 0) == done
    assert team.run("--resume") == [0, 0], team.said
    assert repeatable(team.output) == repeatable(undisturbed.output)


def test_a_process_without_memory_halves_the_batches_of_all(team):
    lack_memory = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory."))
    assert team.run(event=(lack_memory, 1, 1)) == [0, 0], team.said
    assert_whole(team.output)
    assert {row["batch_size"] for row in read_run(team.output).rows} == {1}
    first, second = team.windows
    assert first == second
