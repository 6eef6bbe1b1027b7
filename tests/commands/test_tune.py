"""`vendi-guidance tune` on a tiny random SDXL."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest
from click.testing import Result
from PIL import Image

from tests.helpers.commands import Killed, assert_refused, contents, invoke, judged_runs, said_by
from tests.helpers.runs import read_run
from vendi_guidance import load_settings
from vendi_guidance.commands import generate, tune
from vendi_guidance.runs.runner import Runner
from vendi_guidance.tuning import study
from vendi_guidance.tuning.study import JOURNAL

TRIALS = 5
IMAGES = 4 * 2 * (TRIALS + 3)  # four prompts, two images of each


@pytest.fixture(scope="module")
def words(tiny_sdxl_folder, tmp_path_factory) -> list[str]:
    """A search, all but its folder."""
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    prompts.write_text("\n".join("abcdefgh"))
    budget = ("--images-per-prompt", 2, "--trials", TRIALS, "--images", IMAGES)
    return judged_runs(tiny_sdxl_folder, prompts, *budget, "--keep", 0.1)


def search(words: list[str], output: Path, *more: object) -> Result:
    return invoke(tune.main, *words, "--output", output, *more)


@pytest.fixture(scope="module")
def peace(words, tmp_path_factory) -> Path:
    """The folder of a search that was not interrupted."""
    folder = tmp_path_factory.mktemp("tune") / "peace"
    said = said_by(search(words, folder))
    assert "on new seeds" in said
    return folder


def tried(folder: Path) -> list[dict]:
    """The settings of every trial, as its run says."""
    rows = [read_run(run).rows[0] for run in sorted(folder.glob("trial-*"))]
    return [row["diversity"] for row in rows]


def test_the_default_strength_is_tried_first_and_the_budget_is_kept(peace):
    runs = [path for path in peace.iterdir() if path.is_dir() and path.name[0] != "."]
    assert len(runs) == TRIALS + 3
    assert sum(len(read_run(run).rows) for run in runs) == IMAGES
    assert {len(set(read_run(run).prompts)) for run in runs} == {4}
    scales = tried(peace)
    assert scales[1] == 2 * scales[0] == 4 * scales[2]
    assert len(set(scales)) == TRIALS


def test_what_was_found_is_checked_on_other_seeds(peace):
    seeds = [
        {row["seed"] for row in read_run(peace / run).rows}
        for run in ("unguided", "trial-000", "check-unguided", "check-tuned")
    ]
    assert seeds[0] == seeds[1] and seeds[2] == seeds[3]
    assert not seeds[0] & seeds[2]


def test_the_settings_are_those_of_the_most_diverse_run_that_keeps_enough(peace):
    content = json.loads((peace / "settings.json").read_text())
    assert content["about"]["search"]["kept"] >= 0.1
    assert content["about"]["check"]["conditional_vendi"] > 0
    assert 0 < load_settings(peace / "settings.json")["diversity"] <= 1
    assert Image.open(peace / "frontier.png").size[0] > 400


def test_generate_reads_them_and_options_take_precedence(peace, words, tmp_path):
    model = words[words.index("--model") + 1]
    given = ["cat", "--model", model, "--device", "cpu", "--steps", "2", "--settings"]
    given += [str(peace / "settings.json"), "--output"]
    strength = load_settings(peace / "settings.json", prefix="")["diversity"]
    for name, more, value in (("a", [], strength), ("b", ["--diversity", "0.25"], 0.25)):
        said_by(invoke(generate.main, *[*given, str(tmp_path / name), *more]))
        assert read_run(tmp_path / name).rows[0]["diversity"] == value


def test_a_search_that_was_killed_goes_on_where_it_was(words, peace, tmp_path, monkeypatch):
    rounds, left = Runner.rounds, [3]  # the unguided run, a trial, and some of the next

    def dying(self):
        left[0] -= 1
        for made in rounds(self):
            if left[0] == 0:
                raise Killed
            yield made

    monkeypatch.setattr(Runner, "rounds", dying)
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        tune.main([*words, "--output", str(folder)], standalone_mode=False)
    assert not (folder / "settings.json").exists()
    monkeypatch.undo()
    said_by(search(words, folder))
    assert tried(folder) == tried(peace)
    assert search(words, folder).exit_code == 0  # nothing is left to do
    assert contents(folder).keys() == contents(peace).keys()


def test_two_processes_share_the_trials(words, peace, tmp_path):
    folder = tmp_path / "shared"
    command = [sys.executable, "-m", "vendi_guidance", "tune", *words, "--output", str(folder)]
    # not a fork: torch cannot compute gradients in a fork of a process that has
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / JOURNAL).exists() and process.poll() is None:
            sleep(0.01)
        result = search(words, folder)
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert result.exit_code == 0, result.output
    assert len(tried(folder)) == TRIALS
    assert sorted(tried(folder))[-1] == sorted(tried(peace))[-1]  # of the full strength


def test_a_search_ends_when_nothing_new_is_suggested_and_can_be_repeated(
    words, tiny_lora_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(study, "suggest", lambda *_: {"diversity": 0.5})
    folder = tmp_path / "out"
    for _ in range(2):
        said = said_by(search(words, folder, "--lora", tiny_lora_folder))
        made = 4 * IMAGES // (TRIALS + 3)  # one trial, and the three other runs
        assert f"| {made}/{made} " in said  # the progress bar ends
        assert len(tried(folder)) == 1 and (folder / "settings.json").exists()


def test_a_search_goes_on_only_as_it_began(words, peace):
    before = contents(peace)
    assert_refused(search(words, peace, "--keep", 0.5), "--keep is 0.5, was 0.1")
    assert_refused(search(words, peace, "--trials", 2), "--trials")
    assert contents(peace) == before


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        (r"(?s)\A(.{30}).{30}", r"\1\n"),
        ("worker_id", "worker"),
        ('"outcome"', '"income"'),
        (r'("kept": ?)[^,}]+', r'\1"much"'),
        (r'("kept_interval": ?)(null|\[[^]]+\])', r"\1true"),
        (r'("settings": ?{)"diversity"', r'\1"length"'),
        (r'("settings": ?{"diversity": ?)[^,}]+', r'\1"much"'),
        (r'("settings": ?{"diversity": ?)[^,}]+', r"\g<1>2"),
    ],
)
def test_a_damaged_journal_is_named(words, peace, tmp_path, pattern, damage):
    folder = tmp_path / "out"
    shutil.copytree(peace, folder)
    journal = folder / JOURNAL
    content = re.sub(pattern, damage, journal.read_text())
    assert content != journal.read_text()
    journal.write_text(content)
    assert_refused(search(words, folder), "trials.journal is damaged", "another folder")


def test_where_nothing_keeps_enough_that_is_said(words, tmp_path, monkeypatch):
    monkeypatch.setattr(tune.Search, "best", lambda *_: None)
    folder = tmp_path / "out"
    assert_refused(
        search(words, folder, "--trials", 1), "no strength", "--keep", "the closest is 0.5"
    )
    assert not (folder / "settings.json").exists() and (folder / "frontier.png").exists()
