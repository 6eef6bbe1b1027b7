"""`vendi-guidance`, the group of commands."""

import sys
from importlib import import_module

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


@pytest.mark.parametrize("name", ["app", "compare", "evaluate", "generate", "score", "tune"])
def test_commands_compute_on_a_gpu_if_there_is_one(name, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for part in ("run_options", name):  # import them as on such a machine, for this test alone
        module = f"vendi_guidance.commands.{part}"
        monkeypatch.setattr(commands, part, import_module(module))
        monkeypatch.delitem(sys.modules, module)
    command = import_module(f"vendi_guidance.commands.{name}").main
    [device] = [parameter for parameter in command.params if parameter.name == "device"]
    assert device.default == "cuda"


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
