"""The pipeline class for a model, and `vendi-guidance generate` with a tiny model of each kind."""

import json
import re
from pathlib import Path

import diffusers
import numpy as np
import pytest
from click.testing import Result
from diffusers.utils import DummyObject

from tests.helpers.commands import assert_refused, invoke
from tests.helpers.runs import made
from tests.helpers.tiny_folders import FOLDERS, save
from vendi_guidance import VendiGuidedFluxPipeline
from vendi_guidance.commands import generate
from vendi_guidance.runs.pipelines import GUIDED, guided_class, stock_class

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
OWN_SIZE = ["SD 1.5", "PixArt-alpha", "PixArt-Sigma", "Sana", "HunyuanDiT"]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:diffusers.*")


def generated(model: object, output: Path, *options: object) -> Result:
    words = ["cat", "--model", model, "--output", output, "--device", "cpu", *options]
    return invoke(generate.main, *words)


def test_our_own_class_is_used_if_there_is_one_else_the_callback():
    assert guided_class(stock_class("FluxPipeline")) is VendiGuidedFluxPipeline
    assert all(guided_class(guided.stock) is guided for guided in GUIDED)
    guided = guided_class(stock_class("StableDiffusion3Pipeline"))
    assert guided.stock is diffusers.StableDiffusion3Pipeline
    with pytest.raises(TypeError, match="takes no 'diversity_x'"):
        guided.__call__(None, diversity_x=1)


@pytest.mark.parametrize("name", ["NoSuchPipeline", "UNet2DConditionModel", "__version__", "utils"])
def test_a_name_that_is_no_diffusers_pipeline_is_refused(name):
    with pytest.raises(ValueError, match=f"diffusers .* has no '{name}'"):
        stock_class(name)


def test_a_missing_library_is_named(monkeypatch):
    lacking = DummyObject("Lacking", (), {"_backends": ["torch", "onnx"]})
    monkeypatch.setattr(diffusers, "KolorsPipeline", lacking)
    with pytest.raises(ImportError, match="KolorsPipeline needs torch and onnx: pip install"):
        stock_class("KolorsPipeline")


@pytest.mark.parametrize("name", list(FOLDERS))
def test_a_model_is_recognised_and_guided(name, tmp_path):
    save(name, tmp_path / "model")
    options = ["--images-per-prompt", 2, "--steps", 2, "--diversity-rounds", 1]
    if name not in OWN_SIZE:  # the defaults of the others are about a megapixel
        options += ["--height", 64, "--width", 64]
    out, plain = tmp_path / "out", tmp_path / "plain"
    guided = made(generated(tmp_path / "model", out, *options), out)
    index = json.loads((tmp_path / "model" / "model_index.json").read_text())
    assert {row["pipeline"] for row in guided.rows} == {index["_class_name"]}
    if name == "HunyuanDiT":  # it always generates megapixels, so once is enough
        return
    unguided = made(generated(tmp_path / "model", plain, *options, "--diversity", 0), plain)
    assert not np.array_equal(guided.pixels, unguided.pixels)


def rows_of_the_page() -> dict[str, str]:
    """The column "generate" of the table in docs/pipelines.md, by class."""
    return dict(re.findall(r"(?m)^\| .*? \| `(\w+)` \|.*\| (.*?) \|$", PAGE.read_text()))


def test_the_page_says_which_models_generate_takes():
    served = {type(build()).__name__ for build, _ in FOLDERS.values()}
    said = {kind for kind, word in rows_of_the_page().items() if word == "yes"}
    assert served | {"StableDiffusionXLPipeline"} == said


REFUSED = {
    "FluxControlPipeline": "needs control_image",
    "StableCascadeCombinedPipeline": "runs two pipelines",
    "WuerstchenPriorPipeline": "does not generate images",
    "StableAudioPipeline": "does not generate images",
    "IFPipeline": "takes no callback_on_step_end",
    "StableDiffusion3PAGPipeline": "perturbs attention (PAG)",
    "PRXPipeline": "ignores what its callback returns",
}
"""Also those of the page are tested."""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        *REFUSED.items(),
        *((k, w[4:]) for k, w in rows_of_the_page().items() if w.startswith("no: ")),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(kind, words, tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": kind}))
    refused = generated(tmp_path, tmp_path / "out")
    assert_refused(refused, f"cannot be used: {kind} {words}")
    assert not (tmp_path / "out").exists()
