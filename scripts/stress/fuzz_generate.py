"""Fuzz `vendi-guidance generate`: command lines, prompt files, run folders and window files.

For any input it must end within ten seconds of CPU time, with exit status 0, or with 2 and one
sentence; without a traceback, and without a change to files outside its output folder. Damaged run
folders are also read back, as `evaluate` does.

\b
  python -m scripts.stress.fuzz_generate --trials 1000
"""

import json
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from scripts.stress.subprocesses import fork, wait
from vendi_guidance.commands import generate
from vendi_guidance.commands.cli import asset
from vendi_guidance.evaluation.batches import as_batch

SECONDS = 10
"""Of CPU time: other processes may keep it waiting."""

PATIENCE = 600
"""Seconds of wall-clock time after which it is killed."""

NUMBERS = (
    *("-1", "0", "1", "2", "3", "7", "0.5", "-0.0", "1e-320", "1e308", "1e999", "nan", "inf"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "1" + "0" * 40, "٣", "+1"),
    *("", " ", "x", "0x10", "1_0", "1e3", "None", "--help", "-", "\udcff", "🐈", "1,5"),
)
PATHS = (
    *("", ".", "..", "/", "/dev/null", "/proc/self/mem", "no/such", "a\nb", "x" * 300, "\udcff"),
    *("~", "-", "--", "prompts.txt", "prompts.jsonl", "prompts.csv", "run", "window.safetensors"),
    *("other", "../outside", "🐈", "model", "run/metadata.jsonl", "*", "$(id)", "con"),
)
FAR = ("/", "..")
"""What paths begin with that must not be written to."""

PROMPTS = (
    *PATHS,
    *("cat", "a\0b", "<script>", "=1+1", "\u202eabc", "e\u0301", "a" * 10_000, "\ud800"),
)
SMALL = ("-1", "0", "1", "2", "", "x", "nan", "1.5", "-")  # where a large number is much work
TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"\0", b"\xff"),
    b"\xef\xbb\xbf",
    *(b"null", b"-1", b"1e999", b"NaN", b"9" * 50, b"\\ud800", b"../", b"/", b"{}", b"true"),
    *(b"[" * 2000, b'"prompt"', b'"file_name"', b'"done"', b'"size"', b'"latent_shape"'),
)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--trials", type=click.IntRange(1), default=100)
@click.option("--seed", default=0)
@click.option("--model", type=click.Path(path_type=Path), default=asset("demo-sdxl"))
def main(trials: int, seed: int, model: Path) -> None:
    rng = random.Random(seed)
    kinds = (command_line, prompt_file, run_folder, window_file)
    ended: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "place"
        place.mkdir()
        model = model.resolve()
        os.chdir(place)
        prepare(place, model)
        for number in range(trials):
            restore(place)
            words, after = rng.choice(kinds)(rng, model)
            status, output = run(words, after)
            ended[status] = ended.get(status, 0) + 1
            reason = wrong(status, output, place)
            if reason:
                raise click.ClickException(f"trial {number}: {reason}\n{words!r}\n{output}")
    click.echo(f"{trials} trials, exit statuses {dict(sorted(ended.items()))}")


def given(model: Path, *words: str) -> list[str]:
    return ["--model", str(model), "--steps", "2", "--device", "cpu", "--batch-size", "2", *words]


Case = tuple[list[str], Callable[[], None] | None]


def command_line(rng: random.Random, model: Path) -> Case:
    """Any options, in any order, with any values."""
    options = [option for option in generate.main.params if isinstance(option, click.Option)]
    words = []
    for option in rng.sample(options, rng.randint(0, 6)):
        words.append(option.opts[0] if rng.random() < 0.97 else option.opts[0][:-1])
        if not option.is_flag and rng.random() < 0.98:
            words.append(value_for(option, rng))
    fixed = given(model, "--output", "run")
    if rng.random() < 0.8:
        fixed += [rng.choice(("--overwrite", "--resume"))]
    return [rng.choice(PROMPTS), *fixed, *words], None


def value_for(option: click.Option, rng: random.Random) -> str:
    if isinstance(option.type, click.Choice):
        return rng.choice([*option.type.choices, "x"])
    if isinstance(option.type, click.Path):
        written = option.opts[0] in ("--output", "--window-out")
        return rng.choice([path for path in PATHS if not (written and path.startswith(FAR))])
    if option.opts[0] in ("--images-per-prompt", "--steps"):
        return rng.choice(SMALL)
    return rng.choice(NUMBERS)


def prompt_file(rng: random.Random, model: Path) -> Case:
    path = Path(rng.choice(("prompts.txt", "prompts.jsonl", "prompts.csv")))
    damage(path, rng)
    return [str(path), *given(model, "--output", "new", "--steps", "1")], None


def run_folder(rng: random.Random, model: Path) -> Case:
    for path in rng.sample(sorted(path for path in Path("run").rglob("*") if path.is_file()), 1):
        damage(path, rng)
    words = ["prompts.txt", *given(model, "--output", "run"), "--resume"]
    return words, read_back


def window_file(rng: random.Random, model: Path) -> Case:
    path = Path("window.safetensors")
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    part = rng.choice(("file", "header", "own header"))
    if part == "own header":
        entry = json.loads(header)
        own = entry["__metadata__"]["header"].encode()
        entry["__metadata__"]["header"] = damaged(own, rng).decode(errors="ignore")
        header = json.dumps(entry).encode()
    elif part == "header":
        header = damaged(header, rng)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    if part == "file":
        damage(path, rng)
    return ["cat", *given(model, "--output", "new", "--window-in", str(path))], None


def damage(path: Path, rng: random.Random) -> None:
    path.write_bytes(damaged(path.read_bytes(), rng))


def damaged(content: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randint(0, len(content)) for _ in range(2))
        end = min(end, at + 50) if rng.random() < 0.8 else end
        content = rng.choice(
            (
                content[:at] + content[end:],
                content[:at],
                content[:at] + rng.choice(TOKENS) + content[at:],
                content[:at] + rng.choice(TOKENS) + content[end:],
                content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
                content[:end] + content[at:],
            )
        )
    return content


def prepare(place: Path, model: Path) -> None:
    """Valid files of every kind, and a file that no run may touch."""
    (place / "prompts.txt").write_text("a cat\n\na dog\na café\n")
    lines = [json.dumps({"prompt": text, "id": 3}) for text in ("a cat", "a\ndog", "🐈")]
    (place / "prompts.jsonl").write_text("\n".join(lines))
    (place / "prompts.csv").write_text('id,prompt\n1,cat\n2,"a ""big"" dog,\nasleep"\n')
    words = ["prompts.txt", *given(model, "--output", "run", "--window-out", "window.safetensors")]
    status, output = run(words)
    if status:
        raise click.ClickException(output)
    (place.parent / "outside").mkdir()
    (place.parent / "outside" / "precious").write_text("untouched")
    shutil.copytree(place, place.parent / "kept")


def restore(place: Path) -> None:
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(place.parent / "kept", place, dirs_exist_ok=True)


def read_back() -> None:
    """Read the run folder as `evaluate` does."""
    try:
        list(as_batch(Path("run")).images)
    except (ValueError, OSError) as error:
        print(f"Error: {error}")


def run(words: list[str], after: Callable[[], None] | None = None) -> tuple[int, str]:
    """Exit status and output of `generate`, then `after`, in a new process."""

    def act() -> None:
        used = int(sum(os.times()[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS + 1, used + SECONDS + 1))
        try:
            generate.main(words)
        finally:
            if after is not None:
                after()

    log = Path("../log")
    log.unlink(missing_ok=True)
    status = wait(fork(act, log), PATIENCE)
    return status, log.read_text(errors="replace")


def wrong(status: int, output: str, place: Path) -> str | None:
    if status not in (0, 2):
        return f"exit status {status}"
    if "Traceback" in output:
        return "a traceback"
    if status == 2 and "Error: " not in output:
        return "no reason given"
    above = {path.name for path in place.parent.iterdir()}
    if above - {"place", "kept", "outside", "log"}:
        return f"files outside: {above}"
    outside = {path.name: path.read_text() for path in (place.parent / "outside").iterdir()}
    return None if outside == {"precious": "untouched"} else "files outside changed"


if __name__ == "__main__":
    main()
