"""What the command says of what it cannot do, before it draws anything."""

import pytest
from click.testing import CliRunner

from scripts.comparison import compare
from tests.conftest import SCRIPTS

ASSETS = SCRIPTS.parent / "assets"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(compare.main, arguments)
    return result.exit_code, " ".join(result.output.split())


def test_help_says_what_it_does_and_what_comes_out():
    code, said = run("--help")
    assert code == 0
    for word in ("--quick", "comparison.csv", "tables.md", "the same command continues"):
        assert word in said


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--prompts", "cats.txt", "knows no 'a cat', which cats.txt asks for"),
        ("--prompts", "none.txt", "none.txt"),
        ("--probe", "none", "there is no probe in none"),
        ("--model", "none", "there is no model in none"),
        ("--training-pictures", "none", "there are no training pictures"),
        ("--method", "magic", "'magic' is not one of"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, monkeypatch, option, value, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cats.txt").write_text("a cat\n")
    code, said = run(
        *("--model", str(ASSETS / "demo-sdxl"), "--probe", str(ASSETS / "demo-probe")),
        *("--training-pictures", str(ASSETS / "demo-pictures")),
        *("--prompts", str(ASSETS / "prompts" / "demo.txt"), option, value),
    )
    assert code == 2
    assert message in said
    assert "Traceback" not in said
