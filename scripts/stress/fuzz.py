"""Fuzz a command of `vendi-guidance`: its options, and the files that it reads or goes on with.

For any input it must end within twenty seconds of CPU time, with exit status 0, or with 2 and one
sentence; without a traceback, and without a change to files that its options do not name as
output. Run folders that `generate` was given are also read back, as `evaluate` does.

\b
  python -m scripts.stress.fuzz --command tune --trials 1000
"""

import os
import random
import re
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import click
import huggingface_hub.constants
import optuna.samplers._gp.sampler  # noqa: F401  loaded once, before processes are forked

from scripts.stress.fuzzed import WRITTEN, Fuzzed, fuzzed_commands, write_inputs
from scripts.stress.subprocesses import fork, wait
from vendi_guidance.commands.cli import asset

SECONDS = 20
"""Of CPU time: other processes may keep it waiting."""

PATIENCE = 600
"""Seconds of wall-clock time after which it is killed."""

LONGEST = 2000
"""Characters of a message."""

COMMANDS = ("generate", "evaluate", "tune", "compare")


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--command", "name", type=click.Choice(COMMANDS), default="generate")
@click.option("--trials", type=click.IntRange(1), default=100)
@click.option("--seed", default=0)
@click.option("--model", type=click.Path(path_type=Path), default=asset("demo-sdxl"))
def main(name: str, trials: int, seed: int, model: Path) -> None:
    commands = fuzzed_commands(model.resolve())
    fuzzed = commands[name]
    ended: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "place"
        place.mkdir()
        os.chdir(place)
        prepare(place, commands["generate"], fuzzed)
        for number in range(trials):
            rng = random.Random(f"{seed} {number}")  # so that a trial can be repeated alone
            restore(place)
            words, after = rng.choice(fuzzed.cases)(fuzzed, rng)
            before = contents(place)
            status, output = run(fuzzed, words, after)
            ended[status] = ended.get(status, 0) + 1
            touched = changed(before, contents(place), words)
            if reason := wrong(status, output, touched, place):
                raise click.ClickException(f"trial {number}: {reason}\n{words!r}\n{output}")
    click.echo(f"{trials} trials, exit statuses {dict(sorted(ended.items()))}")


def prepare(place: Path, generate: Fuzzed, fuzzed: Fuzzed) -> None:
    """Valid files of every kind, and a file that no command may touch."""
    write_inputs()
    succeed(generate, "--window-out", "window.safetensors", output="run")
    if fuzzed is not generate:
        cache = ["--cache", "cache"] if "run" in fuzzed.usual else []
        succeed(fuzzed, *cache, output=fuzzed.begun)
    (place.parent / "outside").mkdir()
    (place.parent / "outside" / "precious").write_text("untouched")
    shutil.copytree(place, place.parent / "kept")


def succeed(fuzzed: Fuzzed, *more: str, output: str) -> None:
    status, said = run(fuzzed, fuzzed.words(*more, output=output))
    if status:
        raise click.ClickException(said)


def restore(place: Path) -> None:
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(place.parent / "kept", place, dirs_exist_ok=True)


def contents(place: Path) -> dict[Path, bytes | None]:
    """All files, and None for folders and links."""
    return {
        path.relative_to(place): path.read_bytes() if is_own_file(path) else None
        for path in place.rglob("*")
    }


def is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def changed(
    before: dict[Path, bytes | None], after: dict[Path, bytes | None], words: list[str]
) -> list[Path]:
    """What a command line has changed that it does not name as output."""
    named = list(outputs(words))
    different = [
        path
        for path in before | after
        if path not in before or path not in after or before[path] != after[path]
    ]
    return [
        path
        for path in different
        if not any(path.is_relative_to(one) or one.is_relative_to(path) for one in named)
    ]


def outputs(words: list[str]) -> Iterator[Path]:
    """The paths that a command line says may be written."""
    for option, value in pairwise(words):
        if option in WRITTEN:
            yield Path(value)


def run(
    fuzzed: Fuzzed, words: list[str], after: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Exit status and output of a command, then `after`, in a new process."""

    def act() -> None:
        used = int(sum(os.times()[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS + 1, used + SECONDS + 1))
        huggingface_hub.constants.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_CACHE = str(Path("../hub").resolve())
        try:
            fuzzed.command.main(words)
        finally:
            if after is not None:
                after()

    log = Path("../log")
    log.unlink(missing_ok=True)
    status = wait(fork(act, log), PATIENCE)
    return status, log.read_text(errors="replace")


def wrong(status: int, output: str, touched: list[Path], place: Path) -> str | None:
    """What is wrong with how a command ended; None if nothing is."""
    if status not in (0, 2):
        return f"exit status {status}"
    if "Traceback" in output:
        return "a traceback"
    if status == 2:
        said = re.search(r"^Error: (.*)", output, re.MULTILINE | re.DOTALL)
        message = said[1].strip() if said else ""
        if not message:
            return "no reason given"
        if "\n" in message or len(message) > LONGEST:
            return "more than a sentence"
    if touched:
        return f"changed: {', '.join(map(str, touched))}"
    above = {path.name for path in place.parent.iterdir()}
    if above - {"place", "kept", "outside", "log"}:
        return f"files outside: {above}"
    outside = {path.name: path.read_text() for path in (place.parent / "outside").iterdir()}
    return None if outside == {"precious": "untouched"} else "files outside changed"


if __name__ == "__main__":
    main()
