"""Short runs of the two scripts that stress commands."""

import os

import pytest
from click.testing import CliRunner, Result

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="they fork")


@pytest.fixture
def soak(tiny_sdxl_folder, tmp_path, monkeypatch):
    """Run a script with the tiny model, its files in tmp_path: `soak(command, *options)`."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)  # one of them changes it

    def run(command, *options: object) -> Result:
        words = ("--model", tiny_sdxl_folder, *options)
        return CliRunner().invoke(command, [str(word) for word in words])

    return run


def test_a_run_killed_before_any_write_ends_as_an_uninterrupted_one(soak):
    from scripts.stress.soak_resume import main

    words = ("--every-write", "--pictures", 1, "--batch-size", 1, "--steps", 1)
    result = soak(main, *words)
    assert result.exit_code == 0, result.output
    assert int(result.output.split()[0]) > 15


def test_runs_killed_at_random_end_as_an_uninterrupted_one(soak):
    from scripts.stress.soak_resume import main

    result = soak(main, "--runs", 2)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["generate", "evaluate", "tune", "compare"])
def test_whatever_it_is_given_a_command_ends_well(soak, command):
    from scripts.stress.fuzz import main

    result = soak(main, "--command", command, "--trials", 24)
    assert result.exit_code == 0, result.output
    assert "24 trials" in result.output
