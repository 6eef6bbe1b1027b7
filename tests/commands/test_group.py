"""`vendi-guidance`, the group of commands."""

import sys

import pytest
from click.testing import CliRunner

from vendi_guidance import commands
from vendi_guidance.commands.cli import DEBUG


def test_help_lists_every_command_without_importing_any(monkeypatch):
    for name in commands.COMMANDS:
        monkeypatch.setitem(sys.modules, f"vendi_guidance.commands.{name}", None)
    result = CliRunner().invoke(commands.main, ["--help"])
    assert result.exit_code == 0, result.output
    for name, help_text in commands.COMMANDS.items():
        assert f"  {name}  " in result.output
        assert help_text in result.output


@pytest.mark.parametrize("name", list(commands.COMMANDS))
def test_each_command_has_help_of_its_own(name):
    result = CliRunner().invoke(commands.main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"{name} [OPTIONS]" in result.output


def test_an_unknown_command_is_named():
    result = CliRunner().invoke(commands.main, ["paint"])
    assert result.exit_code == 2
    assert "No such command 'paint'" in result.output


def test_a_traceback_is_there_for_those_who_ask(monkeypatch):
    words = ["evaluate", "no-such-folder", "--output", "report"]
    result = CliRunner().invoke(commands.main, words)
    assert result.exit_code == 2 and "Error: " in result.output
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(FileNotFoundError, match="no-such-folder"):
        CliRunner().invoke(commands.main, words, catch_exceptions=False)
