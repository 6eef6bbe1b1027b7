"""Kill runs of generate.py with SIGKILL, resume them, and compare them with one left in peace.

Each run is killed --kills times at random moments (or, with --every-write, once at each moment
before something is written or deleted), then resumed to its end. All its files must be those of the
uninterrupted run, byte by byte, but for timings.jsonl. What was written behind the last checkpoint
is sometimes cut at a random byte first, as a power failure would.

\b
  python -m scripts.stress.soak_resume --runs 100
  python -m scripts.stress.soak_resume --every-write

Processes are forked from one that has loaded Python's modules, so that a run takes a second.
"""

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

from scripts.stress.subprocesses import fork
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
"""What runs write and delete with."""


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
        # so wide a kernel that pictures of any model seem alike, and what is remembered moves them
        *("--diversity-sigma-latent", 2, "--diversity-window", WINDOW),
    ]
    with tempfile.TemporaryDirectory() as name:
        peace = Path(name) / "peace"
        started = time.monotonic()
        expect_success(start(words, peace))
        seconds = time.monotonic() - started
        expected = contents(peace)
        killed = 0
        for number in range(sys.maxsize if every_write else runs):
            folder = Path(name) / str(number)
            if every_write:
                if not died(start(words, folder, dies_before_write(number))):
                    break  # it came to its end with fewer writes
                killed += 1
            else:
                for _ in range(rng.randint(1, kills)):
                    lived = kill(start(words, folder), rng.uniform(0, 1.1 * seconds))
                    if lived is None:
                        killed += 1
                    else:  # the machine has less to do than before
                        seconds = min(seconds, lived)
                    tear(folder, rng)
            expect_success(start(words, folder))
            compare(contents(folder), expected, folder)
        click.echo(f"{killed} kills: every run ended as the one left in peace")


def start(words: list[object], folder: Path, prepare: Callable[[], None] | None = None) -> int:
    """Begin a run, or go on with it, in a process of its own; returns its id."""

    def run() -> None:
        if prepare is not None:
            prepare()
        generate.main([str(word) for word in [*words, "--output", folder]])

    return fork(run, folder.with_suffix(".log"))


def dies_before_write(number: int) -> Callable[[], None]:
    """What lets this process be killed before its write of that number."""
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


def kill(process: int, seconds: float) -> float | None:
    """Kill a process after so many seconds; if it ended before, returns after how many."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            check(status)
            return time.monotonic() - started
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def died(process: int) -> bool:
    _, status = os.waitpid(process, 0)
    return check(status)


def check(status: int) -> bool:
    """Whether a signal ended a process; it has to have succeeded if not."""
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        raise click.ClickException(f"a run ended with status {os.waitstatus_to_exitcode(status)}")
    return os.WIFSIGNALED(status)


def expect_success(process: int) -> None:
    if died(process):
        raise click.ClickException("a run was killed by something else")


def tear(folder: Path, rng: random.Random) -> None:
    """Cut what no checkpoint stands for."""
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
