"""`vendi-guidance compare` on tiny random pipelines."""

import json
import re
import shutil
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from tests.helpers.commands import (
    Killed,
    assert_refused,
    contents,
    invoke,
    judged_runs,
    repeatable,
    said_by,
)
from tests.helpers.runs import read_run
from vendi_guidance.commands import compare, generate, scoring_options
from vendi_guidance.runs.runner import Runner

RUNS = ("unguided", "ours-0.5", "ours-1", "seed-variance-8", "limited-interval-0.3", "select-2")
METHODS = [
    word
    for method in ("ours=0.5,1", "seed-variance=8", "limited-interval=0.3", "select=2")
    for word in ("--method", method)
]


@pytest.fixture(scope="module")
def words(tiny_sdxl_folder, tmp_path_factory) -> list[str]:
    """A comparison, all but its folder and methods."""
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    prompts.write_text("a cat\na dog\n<b>a</b> fox\n")
    sizes = ("--images-per-prompt", 3, "--batch-size", 3)
    return judged_runs(tiny_sdxl_folder, prompts, *sizes, "--keep", 0.1)


def compared(words: list[str], output: Path, *more: object) -> Result:
    return invoke(compare.main, *words, "--output", output, *more)


@pytest.fixture(scope="module")
def peace(words, tmp_path_factory) -> Path:
    """The folder of a comparison that was not interrupted."""
    folder = tmp_path_factory.mktemp("compare") / "peace"
    said_by(compared(words, folder, *METHODS))
    return folder


def rows_of(folder: Path) -> dict[str, dict]:
    content = json.loads((folder / "comparison.json").read_text())
    return {row["folder"]: row for row in content["runs"]}


def test_every_method_generates_other_images_of_the_same_prompts_and_seeds(peace):
    runs = [read_run(peace / name).rows for name in RUNS]
    assert {tuple((row["prompt"], row["seed"]) for row in rows) for rows in runs} == {
        tuple((row["prompt"], row["seed"]) for row in runs[0])
    }
    assert [row["method_strength"] for row in runs[3]] == [8.0] * 9
    plain, *others = [[image.tobytes() for image in read_run(peace / name).images] for name in RUNS]
    assert all(other != plain for other in others)


def test_the_unguided_and_ours_are_as_generate_makes_them(words, peace, tmp_path):
    model = words[words.index("--model") + 1]
    for name, strength in (("unguided", "0"), ("ours-0.5", "0.5")):
        given = [words[0], "--model", model, "--device", "cpu", "--steps", "2", "--batch-size", "3"]
        given += ["--images-per-prompt", "3", "--diversity", strength, "--output", tmp_path / name]
        assert invoke(generate.main, *given).exit_code == 0
        made, found = read_run(tmp_path / name).images, read_run(peace / name).images
        assert [one.tobytes() for one in made] == [one.tobytes() for one in found]


def test_costs_are_the_rows_that_the_network_evaluated(peace):
    evaluations = {name: row["evaluations_per_image"] for name, row in rows_of(peace).items()}
    assert evaluations["unguided"] == 4  # two steps, each with the prompt and without it
    assert evaluations["seed-variance-8"] == 4
    assert evaluations["limited-interval-0.3"] == 3
    assert evaluations["select-2"] == 8
    assert evaluations["ours-0.5"] > 4
    assert all(row["seconds_per_image"] > 0 for row in rows_of(peace).values())
    plain = rows_of(peace)["unguided"]
    assert plain["diversity"] == plain["kept"] == 1  # what others are compared with


def test_the_page_needs_no_other_file_and_no_prompt_is_markup(peace):
    page = (peace / "comparison.html").read_text()
    assert "<script" not in page and "<b>a</b> fox" not in page
    assert "&lt;b&gt;a&lt;/b&gt; fox" in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.count("<img") == 3 * len(RUNS) * 3
    for title in ("unguided", "Vendi guidance (diversity 0.5)", "select from more (pool 2)"):
        assert title in page


def test_a_comparison_that_was_killed_generates_only_what_is_missing(
    words, peace, tmp_path, monkeypatch
):
    rounds, made = Runner.rounds, []

    def dying(self):
        for count in rounds(self):
            made.append(count)
            if len(made) == 11:  # some of the fourth run
                raise Killed
            yield count

    monkeypatch.setattr(Runner, "rounds", dying)
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        compare.main([*words, *METHODS, "--output", str(folder)], standalone_mode=False)
    assert not (folder / "comparison.json").exists()
    said_by(compared(words, folder, *METHODS))
    assert sum(made) == len(RUNS) * 9
    for name in RUNS:
        whole, again = repeatable(peace / name), repeatable(folder / name)
        assert whole == again


def test_other_judges_and_methods_more_need_no_image_that_is_there(words, peace):
    before = {name: contents(peace / name) for name in RUNS}
    asked = ("cads=1", "seed-variance=8:tokens_from=0.5:stop=0.5", "select=2:preview_steps=1")
    more = [word for one in asked for word in ("--method", one)]
    said_by(compared(words, peace, *METHODS, *more, "--image-embedder", "pixels:2"))
    assert {name: contents(peace / name) for name in RUNS} == before
    names = "seed-variance-8-stop-0.5-tokens_from-0.5", "select-2-preview_steps-1"
    rows = rows_of(peace)
    assert [*rows] == [*RUNS, "cads-1", *names]
    assert rows[names[0]]["settings"] == {"stop": 0.5, "tokens_from": 0.5}
    assert rows[names[1]]["evaluations_per_image"] == 2 * 2 + 4
    assert read_run(peace / names[0]).rows[0]["method_stop"] == 0.5
    page = (peace / "comparison.html").read_text()
    assert "seed-variance noise, stop 0.5, tokens_from 0.5 (strength 8)" in page
    assert compared(words, peace, *METHODS).exit_code == 0


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("seed-variance:share=2", "0 <= share <= 1 must hold, got 2"),
        ("seed-variance=8:stp=1", "got 'stp' (did you mean 'stop'?)"),
        ("select:pool=2", "the settings of select are preview_steps, guidance_scale, got 'pool'"),
        ("seed-variance:stop=0.5:stop=0.9", "gives a setting more than once"),
        ("cads:tau1=low", "tau1 is a number, true or false, got 'low'"),
        ("ours:scale=1", "it has no settings, got 'scale'"),
        ("undistilled-first=0.5", "steps must be a whole number"),
        ("undistilled-first", "has none loaded: load one"),
    ],
)
def test_what_a_method_cannot_be_given_is_refused(words, tmp_path, method, named):
    assert_refused(compared(words, tmp_path / "out", "--method", method), named)
    assert not (tmp_path / "out").exists()


def test_an_undistilled_network_adds_its_method_and_predicts_in_the_rounds(words, tmp_path):
    model = words[words.index("--model") + 1]
    few = ["--guidance-scale", 0, "--images-per-prompt", 2, "--steps", 3]
    said_by(compared(words, tmp_path / "out", *few, "--undistilled", model))
    rows = rows_of(tmp_path / "out")
    assert rows["undistilled-first-1"]["evaluations_per_image"] == 3
    assert rows["ours-0.5"]["evaluations_per_image"] == 6
    first, plain = (
        [image.tobytes() for image in read_run(tmp_path / "out" / name).images]
        for name in ("undistilled-first-1", "unguided")
    )
    assert first == plain  # by the model's own network, loaded once more


def test_attributes_are_counted_for_every_method(words, peace, tmp_path, monkeypatch):
    file = tmp_path / "attributes.json"
    file.write_text('{"fur": ["red", "grey"]}')
    monkeypatch.setattr(scoring_options, "open_judge", lambda *_: _halves)
    said_by(compared(words, peace, *METHODS, "--attributes", file))
    for row in rows_of(peace).values():  # of three coins all are alike once in four times
        [spread] = row["effective_values"]
        entropy = 0.75 * (log(3) - log(4) / 3)
        assert spread["value"] == pytest.approx(exp(entropy), abs=0.15)
    page = (peace / "comparison.html").read_text()
    assert "effective values" in page


def test_an_attribute_of_no_prompt_is_refused_before_anything_is_generated(
    words, tmp_path, monkeypatch
):
    file = tmp_path / "attributes.json"
    file.write_text('{"attributes": {}, "prompts": {"a cow": {"fur": ["red", "grey"]}}}')
    monkeypatch.setattr(scoring_options, "open_judge", lambda *_: _halves)
    assert_refused(compared(words, tmp_path / "out", "--attributes", file), "'a cow'")
    assert not (tmp_path / "out").exists()


def _halves(images: Sequence[Any], *_: Any) -> torch.Tensor:
    return torch.full((len(images), 2), 0.5)


def test_what_a_model_cannot_do_is_left_out_or_refused_if_asked_for(words, tmp_path):
    bare = [*words, "--guidance-scale", "1"]
    said = said_by(compared(bare, tmp_path / "out", "--images-per-prompt", 2))
    assert "limited-interval-0.3 is left out" in said
    assert "limited-interval-0.3" not in rows_of(tmp_path / "out")
    refused = compared(bare, tmp_path / "other", "--method", "limited-interval")
    assert_refused(refused, "--method limited-interval", "CFG is off, or")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("vae/config.json", {"block_out_channels": None}, ("cannot be loaded",)),
        ("unet/config.json", {"mid_block_scale_factor": [1]}, ("cannot be sampled",)),
    ],
)
def test_a_broken_model_is_not_blamed_on_a_method(
    words, tiny_sdxl_folder, tmp_path, file, change, named
):
    model = tmp_path / "model"
    shutil.copytree(tiny_sdxl_folder, model)
    config = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(config | change))
    for more in ([], METHODS):
        refused = compared(words, tmp_path / "out", "--model", model, *more)
        assert_refused(refused, "the model", *named)
        assert "--method" not in refused.output
    assert not (tmp_path / "out").exists()


def test_a_comparison_goes_on_only_with_the_sampling_that_it_began_with(words, peace):
    before = contents(peace)
    assert_refused(compared(words, peace, *METHODS, "--steps", 3), "--steps is 3, was 2")
    assert contents(peace) == before
