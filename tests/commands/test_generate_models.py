"""`vendi-guidance generate` with tiny models of the kinds in docs/pipelines.md, from folders."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from tests.helpers.commands import assert_refused, invoke
from tests.helpers.runs import made
from tests.helpers.tiny_folders import FOLDERS, save
from vendi_guidance.commands import generate

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
OWN_SIZE = ["SD 1.5", "SDXL PAG", "PixArt-alpha", "PixArt-Sigma", "Sana", "HunyuanDiT"]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:diffusers.*")


def generated(model: object, output: Path, *options: object) -> Result:
    words = ["cat", "--model", model, "--output", output, "--device", "cpu", *options]
    return invoke(generate.main, *words)


@pytest.mark.parametrize("name", list(FOLDERS))
def test_a_model_is_recognised_and_guided(name, tmp_path):
    save(name, tmp_path / "model")
    options = ["--images-per-prompt", 2, "--steps", 2, "--diversity-rounds", 1]
    if name not in OWN_SIZE:  # the others' defaults are for a megapixel
        options += ["--height", 64, "--width", 64]
    out, plain = tmp_path / "out", tmp_path / "plain"
    guided = made(generated(tmp_path / "model", out, *options), out)
    index = json.loads((tmp_path / "model" / "model_index.json").read_text())
    assert {row["pipeline"] for row in guided.rows} == {index["_class_name"]}
    if name == "HunyuanDiT":  # it draws megapixels, whatever is asked for: once is enough
        return
    unguided = made(generated(tmp_path / "model", plain, *options, "--diversity", 0), plain)
    assert not np.array_equal(guided.pixels, unguided.pixels)


def rows_of_the_page() -> dict[str, str]:
    """What the table of docs/pipelines.md says of `generate`, by class."""
    rows = re.findall(r"^\| .*? \| `(\w+)` \|.*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def test_the_page_says_which_models_generate_takes(tmp_path):
    served = {save_index(name, tmp_path / name) for name in FOLDERS} | {"StableDiffusionXLPipeline"}
    said = rows_of_the_page()
    assert served == {kind for kind, word in said.items() if word == "yes"}


def save_index(name: str, folder: Path) -> str:
    """The class of a tiny pipeline."""
    return type(FOLDERS[name][0]()).__name__


@pytest.mark.parametrize(
    ("kind", "words"),
    [(kind, word) for kind, word in rows_of_the_page().items() if word.startswith("no: ")],
)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(kind, words, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model_index.json").write_text(json.dumps({"_class_name": kind}))
    assert_refused(generated(model, tmp_path / "out"), kind, words.removeprefix("no: "))
    assert not (tmp_path / "out").exists()
