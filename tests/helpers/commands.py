"""Shared by the tests of commands."""

from pathlib import Path

import click
from click.testing import CliRunner, Result

from vendi_guidance.storage.imagefolder import TIMINGS


class Killed(BaseException):
    """Stands for a signal that ends a process at once."""


def invoke(command: click.Command, *words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def succeeds(command: click.Command, *words: object) -> Result:
    result = invoke(command, *words)
    said_by(result)
    return result


def said_by(result: Result) -> str:
    """The output of a command; fails the test if the command failed."""
    assert result.exit_code == 0, result.output
    return result.output


def contents(folder: Path) -> dict[str, bytes]:
    """The content of all files below a folder, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def repeatable(folder: Path) -> dict[str, bytes]:
    """All files of a run except the timings, which differ each time."""
    return {name: content for name, content in contents(folder).items() if name != TIMINGS}


def assert_refused(result: Result, *words: str) -> None:
    """Check that a command printed a single-line error with these words and exited with 2."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    sentence = result.output[result.output.index("Error: ") :].strip()
    assert "\n" not in sentence and len("Error: ") < len(sentence) < 2000
    for word in words:
        assert word in sentence
