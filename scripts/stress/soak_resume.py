"""Kill runs of `vendi-guidance generate`, resume them, and compare them with an uninterrupted run.

Each run is killed by SIGKILL up to --kills times at random moments (with --every-write: once,
before a write or deletion, each of them in turn), then resumed to its end. All its files but
timings.jsonl must equal those of the uninterrupted run, byte by byte. Before it is resumed, what
was written after the last checkpoint is sometimes cut off at a random byte, as a power failure may.

\b
  python -m scripts.stress.soak_resume --runs 100
  python -m scripts.stress.soak_resume --every-write

Processes are forked from one that has loaded all modules, so a run takes about a second.
"""

import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from scripts.stress.subprocesses import fork, wait
from vendi_guidance.commands import generate
from vendi_guidance.commands.cli import asset
from vendi_guidance.runs.checkpoints import Checkpoints
from vendi_guidance.runs.folder import CHECKPOINTS
from vendi_guidance.storage.imagefolder import METADATA, TIMINGS

WINDOW = 5
"""Small, so that samples leave it and checkpoints are deleted."""

WRITES: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "truncate"),
    (Path, "mkdir"),
    (Path, "replace"),
    (Path, "unlink"),
)
"""The functions that runs write and delete with."""


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--runs", type=click.IntRange(1), default=10, help="How many to kill.")
@click.option("--kills", type=click.IntRange(1), default=2, help="How often, at most.")
@click.option("--every-write", is_flag=True, help="Kill before each write instead.")
@click.option("--pictures", type=click.IntRange(1), default=9, help="In each run.")
@click.option("--batch-size", type=click.IntRange(1), default=2)
@click.option("--steps", type=click.IntRange(1), default=3)
@click.option("--model", type=click.Path(path_type=Path), default=asset("demo-sdxl"))
@click.option("--seed", default=0, help="Of the random moments.")
def main(
    runs: int,
    kills: int,
    every_write: bool,
    pictures: int,
    batch_size: int,
    steps: int,
    model: Path,
    seed: int,
) -> None:
    rng = random.Random(seed)
    words = [
        *("a cat asleep", "--model", model, "--images-per-prompt", pictures),
        *("--batch-size", batch_size, "--steps", steps, "--device", "cpu", "--resume"),
        # a kernel so wide that images of any model are alike, so that the window moves them
        *("--diversity-sigma-latent", 2, "--diversity-window", WINDOW),
    ]
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        started = time.monotonic()
        expect_success(start(words, whole))
        seconds = time.monotonic() - started
        expected = contents(whole)
        kills_done = 0
        for number in range(sys.maxsize if every_write else runs):
            folder = Path(name) / str(number)
            if every_write:
                if not killed(start(words, folder, dies_before_write(number))):
                    break  # the run has no more writes
                kills_done += 1
            else:
                for _ in range(rng.randint(1, kills)):
                    started = time.monotonic()
                    if killed(start(words, folder), rng.uniform(0, 1.1 * seconds)):
                        kills_done += 1
                    else:  # the machine is less busy than before
                        seconds = min(seconds, time.monotonic() - started)
                    tear(folder, rng)
            expect_success(start(words, folder))
            compare(contents(folder), expected, folder)
        click.echo(f"{kills_done} kills: every run ended as the uninterrupted one")


def start(words: list[object], folder: Path, prepare: Callable[[], None] | None = None) -> int:
    """Start or resume a run in a new process; returns its id."""

    def run() -> None:
        if prepare is not None:
            prepare()
        generate.main([str(word) for word in [*words, "--output", folder]])

    return fork(run, folder.with_suffix(".log"))


def dies_before_write(number: int) -> Callable[[], None]:
    """A function that makes its process kill itself before the write of this number."""
    writes = 0

    def prepare() -> None:
        for place, name in WRITES:
            setattr(place, name, counted(getattr(place, name)))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            nonlocal writes
            if writes == number:
                os.kill(os.getpid(), signal.SIGKILL)
            writes += 1
            return function(*args, **kwargs)

        return count

    return prepare


def killed(process: int, seconds: float = math.inf) -> bool:
    """Wait for a process, kill it after so many seconds, and say whether it was killed.

    Raises:
        click.ClickException: it ended with an error.
    """
    status = wait(process, seconds)
    if status not in (0, -signal.SIGKILL):
        raise click.ClickException(f"a run ended with status {status}")
    return status != 0


def expect_success(process: int) -> None:
    if killed(process):
        raise click.ClickException("a run was killed by something else")


def tear(folder: Path, rng: random.Random) -> None:
    """Sometimes cut the metadata after the last checkpoint at a random byte."""
    path = folder / METADATA
    last = Checkpoints(folder / CHECKPOINTS, WINDOW).last()
    if path.exists() and last is not None and rng.random() < 0.5:
        os.truncate(path, rng.randint(last.metadata_bytes, path.stat().st_size))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != TIMINGS
    }


def compare(found: dict[str, bytes], expected: dict[str, bytes], folder: Path) -> None:
    different = [name for name in expected | found if expected.get(name) != found.get(name)]
    if different:
        log = folder.with_suffix(".log").read_text()
        raise click.ClickException(f"different after resuming: {', '.join(different)}\n{log}")


if __name__ == "__main__":
    main()
