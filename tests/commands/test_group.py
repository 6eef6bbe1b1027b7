"""`vendi-guidance`, the group of commands."""

import sys

import click
import pytest
from click.testing import CliRunner

from tests.helpers.commands import said_by
from vendi_guidance import commands
from vendi_guidance.commands.cli import DEBUG


def invoke(*words: str, width: int = 80) -> str:
    return said_by(CliRunner(env={"COLUMNS": str(width)}).invoke(commands.main, words))


def test_help_lists_every_command_without_importing_any(monkeypatch):
    for name in commands.COMMANDS:
        monkeypatch.setitem(sys.modules, f"vendi_guidance.commands.{name}", None)
    said = invoke("--help")
    for name, help_text in commands.COMMANDS.items():
        assert f"  {name}  " in said and help_text in said


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", list(commands.COMMANDS))
def test_help_fits_a_screen_and_help_all_has_every_option(name, width):
    said = invoke(name, "--help", width=width).splitlines()
    assert f"{name} [OPTIONS]" in said[0]
    assert len(said) <= 40, len(said)
    assert max(map(len, said)) <= 80
    command = commands.main.get_command(click.Context(commands.main), name)
    if not command.common:
        return
    assert sum(line.startswith("    vendi-guidance ") for line in said) in (2, 3)
    assert command.common <= {option.name for option in command.params}
    everything = invoke(name, "--help-all", width=width)
    default = "[default: (the demo model, a small SDXL that generates emoji)]"
    assert (default in " ".join(everything.split())) == ("model" in command.common)
    assert "assets" not in everything
    for option in command.params:
        if isinstance(option, click.Option):
            shown = any(line.startswith(f"  {option.opts[0]} ") for line in said)
            assert shown == (option.name in command.common), option.opts
            assert option.help.split()[0] in everything and f"  {option.opts[0]}" in everything


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("genrate x", "Did you mean 'generate'?"),
        ("generate x --diversty 1", "'--diversity'"),
        ("generate x {output} --diversity-preset publishd", "(did you mean 'published'?)"),
    ],
)
def test_the_nearest_known_name_is_suggested(words, suggestion, tmp_path):
    given = words.format(output=f"--output {tmp_path / 'out'}").split()
    result = CliRunner().invoke(commands.main, given)
    assert result.exit_code == 2
    assert suggestion in result.output


def test_output_in_any_encoding_has_a_mark_for_what_it_lacks(monkeypatch):
    @click.command
    def sigma():
        click.echo("σ = 3")

    monkeypatch.setattr(commands.main, "get_command", lambda context, name: sigma)
    result = CliRunner(charset="cp1252").invoke(commands.main, ["evaluate"])
    assert said_by(result) == "? = 3\n"


def test_a_traceback_is_there_for_those_who_ask(monkeypatch):
    words = ["evaluate", "no-such-folder", "--output", "report"]
    result = CliRunner().invoke(commands.main, words)
    assert result.exit_code == 2 and "Error: " in result.output
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(FileNotFoundError, match="no-such-folder"):
        CliRunner().invoke(commands.main, words, catch_exceptions=False)
