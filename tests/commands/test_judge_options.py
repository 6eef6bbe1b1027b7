"""What `vendi-guidance compare` refuses, and leaves alone."""

import pytest

from tests.helpers.commands import assert_refused, contents, invoke, judged_runs
from vendi_guidance.commands import compare

COMMANDS = {"compare": compare.main}

WRONG = [
    (["--keep", "nan"], ("--keep", "nan")),
    (["--faithfulness", "beauty"], ("--faithfulness", "'beauty'", "clip:MODEL")),
    (["--image-embedder", "eyes"], ("eyes",)),
    (["--model", "no/such/model"], ("no/such/model",)),
    (["--offload", "sequential"], ("--offload sequential moves parts", "--device is cpu")),
]
"""Options of both, and what the sentence has to say."""

WRONG_OF = {
    "compare": [
        (["--method", "magic"], ("--method", "'magic'", "seed-variance")),
        (["--method", "ours=2"], ("ours=2", "diversity")),
        (["--method", "ours=nan"], ("ours=nan",)),
        (["--method", "select=0.5"], ("select=0.5", "whole number")),
        (["--method", "cads=a,b"], ("cads=a,b", "numbers")),
        (["--attributes", "none.json"], ("none.json",)),
    ],
}


@pytest.fixture
def refused(tiny_sdxl_folder, tmp_path_factory):
    """Run a command by its name: `refused(name, output, *options)`."""
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    prompts.write_text("a cat\na dog")

    def run(name, output, *more):
        words = judged_runs(tiny_sdxl_folder, prompts, "--images-per-prompt", 2)
        return invoke(COMMANDS[name], *words, "--output", output, *more)

    return run


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [(name, *case) for name in COMMANDS for case in WRONG + WRONG_OF[name]],
)
def test_a_wrong_option_is_named_and_nothing_is_written(refused, tmp_path, name, options, said):
    assert_refused(refused(name, tmp_path / "out", *options), *said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_with_something_else_is_left_alone(refused, tmp_path, name):
    (tmp_path / "notes.md").write_text("mine")
    assert_refused(refused(name, tmp_path), "not empty")
    assert contents(tmp_path) == {"notes.md": b"mine"}
