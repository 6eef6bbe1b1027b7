"""What the tests of commands have in common."""

from pathlib import Path

import click
from click.testing import CliRunner, Result

from vendi_guidance.storage.imagefolder import TIMINGS


class Killed(BaseException):
    """What ends a process at once."""


def invoke(command: click.Command, *words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def succeeds(command: click.Command, *words: object) -> Result:
    result = invoke(command, *words)
    said_by(result)
    return result


def said_by(result: Result) -> str:
    """The output of a command, which succeeded."""
    assert result.exit_code == 0, result.output
    return result.output


def judged_runs(model: Path, prompts: Path, *more: object) -> list[str]:
    """Words of `tune` or `compare` with a tiny model, and judges that need no other weights."""
    words = [prompts, "--model", model, "--device", "cpu", "--steps", 2, *more]
    words += ["--image-embedder", "pixels:4", "--prompt-embedder", f"sdxl:{model}"]
    return [str(word) for word in [*words, "--faithfulness", "own-model"]]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def repeatable(folder: Path) -> dict[str, bytes]:
    """All files of a run but the timings, which never come out the same."""
    return {name: content for name, content in contents(folder).items() if name != TIMINGS}


def assert_refused(result: Result, *words: str) -> None:
    """One sentence with these words, exit status 2, no traceback."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    sentence = result.output[result.output.index("Error: ") :].strip()
    assert "\n" not in sentence
    for word in words:
        assert word in sentence
