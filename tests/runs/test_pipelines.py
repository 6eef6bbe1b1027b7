"""The pipeline class for a model, its sampling parameters, the order of images, and `vendi-guidance
generate` with a tiny model of each kind."""

import json
import re
from pathlib import Path

import diffusers
import numpy as np
import pytest
from click.testing import Result
from diffusers.utils import DummyObject
from hypothesis import given, settings, strategies as st

from tests.helpers.commands import assert_refused, invoke
from tests.helpers.runs import made
from tests.helpers.tiny_folders import FOLDERS, save
from vendi_guidance import VendiGuidedFluxPipeline
from vendi_guidance.commands import generate
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.pipelines import GUIDED, guided_class, sampling_of, stock_class
from vendi_guidance.runs.plan import Manifest, Plan, RunOptions, Sampling
from vendi_guidance.runs.setup import check_prompts_are_seen
from vendi_guidance.storage.prompt_files import open_prompts

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
OWN_SIZE = ["SD 1.5", "PixArt-alpha", "PixArt-Sigma", "Sana", "HunyuanDiT"]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:diffusers.*")


def generated(model: object, output: Path, *options: object) -> Result:
    words = ["cat", "--model", model, "--output", output, "--device", "cpu", *options]
    return invoke(generate.main, *words)


def test_our_own_class_is_used_if_there_is_one_else_the_callback():
    assert guided_class(stock_class("FluxPipeline")) is VendiGuidedFluxPipeline
    assert all(guided_class(stock) is guided for stock, guided in GUIDED.items())
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
    rows = re.findall(r"(?m)^\| .*? \| (.*?) \| (`\w+Pipeline`.*) \|$", PAGE.read_text())
    return {kind: word for word, kinds in rows for kind in re.findall(r"`(\w+Pipeline)`", kinds)}


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


def test_a_pipeline_without_prompt_embeddings_is_refused_if_prompts_are_compared():
    guided = guided_class(diffusers.KandinskyV22Pipeline)  # only its prior reads prompts
    with pytest.raises(ValueError, match="KandinskyV22Pipeline gives guidance no prompt embedd"):
        check_prompts_are_seen(guided, Rounds())
    check_prompts_are_seen(guided, Rounds(objective="vendi"))
    check_prompts_are_seen(guided, Rounds(diversity=0.0))
    check_prompts_are_seen(guided_class(diffusers.StableDiffusion3Pipeline), Rounds())


def sampled(pipeline="StableDiffusionXLPipeline", folder=Path("no/such/folder"), **options):
    return sampling_of(getattr(diffusers, pipeline), folder, RunOptions(**options))


TURBO, DEMO = "stabilityai/sdxl-turbo", "assets/demo-sdxl"
CHANGE = "; --steps and --guidance-scale change it"


@pytest.mark.parametrize(
    ("options", "steps", "scale", "remark"),
    [
        ({}, 50, 5.0, "50 steps, guidance scale 5: the defaults of StableDiffusionXLPipeline"),
        ({"model": TURBO, "steps": 2, "guidance_scale": 3.0}, 2, 3.0, None),
    ],
)
def test_given_options_hold_and_defaults_are_reported(options, steps, scale, remark):
    found = sampled(**options)
    expected = {"prompt": ["cat"], "num_inference_steps": steps, "guidance_scale": scale}
    assert found.arguments(["cat"]) == expected
    assert found.remarks == (() if remark is None else (remark + CHANGE,))


LCM = {"scheduler/scheduler_config.json": {"_class_name": "LCMScheduler"}}
TAKES_SCALE = {"unet/config.json": {"time_cond_proj_dim": 256}}
DISTILLED, KREA = {"is_distilled": True}, {"_class_name": "Krea2Pipeline"}
PLAIN_FLUX = {"_class_name": "FluxTransformer2DModel", "guidance_embeds": False}


@pytest.mark.parametrize(
    ("pipeline", "options", "files", "expected"),
    [
        ("StableDiffusionXL", {"model": TURBO}, {}, (4, 0.0)),
        ("StableDiffusionXL", {"model": "me/SDXL-Lightning-8step"}, {}, (8, 0.0)),
        ("Flux", {"model": "black-forest-labs/FLUX.1-schnell"}, {}, (4, 0.0)),
        ("Flux", {"model": "black-forest-labs/FLUX.1-dev"}, {}, (28, 3.5)),
        ("ZImage", {"model": "Tongyi-MAI/Z-Image-Turbo"}, {}, (9, 0.0)),
        ("ZImage", {"lora": "me/z-image-lcm"}, {}, (4, 0.0)),  # a scale of 1 has CFG
        ("Krea2", {}, {"model_index.json": DISTILLED | KREA}, (8, 0.0)),
        ("StableDiffusion", {"model": "SimianLuo/LCM_Dreamshaper_v7"}, {}, (4, 1.0)),
        ("StableDiffusionXL", {"model": "folders/turbo/of-mine/base"}, {}, (50, 5.0)),
        # a LoRA's name takes precedence over its model's
        ("StableDiffusionXL", {"model": DEMO, "lora": f"{DEMO}-turbo-lora"}, {}, (4, 0.0)),
        ("StableDiffusionXL", {"model": DEMO, "lora": "me/watercolours"}, {}, (16, 5.0)),
        ("Flux", {}, LCM, (4, 1.0)),
        ("Flux", {}, {"model_index.json": DISTILLED}, (4, 1.0)),
        ("Flux", {}, {"transformer/config.json": PLAIN_FLUX}, (4, 0.0)),
        ("Flux", {}, {"transformer/config.json": ["no", "configuration"]}, (28, 3.5)),
        ("StableDiffusion", {}, LCM, (4, 1.0)),
        ("StableDiffusion", {}, LCM | TAKES_SCALE, (4, 7.5)),  # an input of the network
    ],
)
def test_names_and_configs_identify_few_step_models(pipeline, options, files, expected, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    found = sampled(f"{pipeline}Pipeline", tmp_path, **options)
    assert (found.about["steps"], found.about["guidance_scale"]) == expected


@pytest.mark.parametrize("can_clean", [True, False])
def test_pixart_does_not_clean_captions_if_libraries_are_missing(monkeypatch, can_clean):
    for name in ("is_bs4_available", "is_ftfy_available"):
        monkeypatch.setattr(f"vendi_guidance.runs.pipelines.{name}", lambda: can_clean)
    found = sampled("PixArtSigmaPipeline").arguments(["cat"])
    assert found.get("clean_caption", True) == can_clean


def test_the_scale_of_true_cfg_needs_a_negative_prompt():
    found = sampled("QwenImagePipeline").arguments(["cat", "dog"])
    assert found.pop("prompt") == ["cat", "dog"]
    usual = {"num_inference_steps": 50, "true_cfg_scale": 4.0, "negative_prompt": [" ", " "]}
    assert found == usual
    assert "negative_prompt" not in sampled("QwenImagePipeline", guidance_scale=1.0).about


@pytest.mark.parametrize(
    ("pipeline", "option", "scale", "has_effect"),
    [
        ("StableDiffusionXL", "negative_prompt", 1.0, False),
        ("StableDiffusionXL", "negative_prompt", 1.5, True),
        ("ZImage", "negative_prompt", 0.0, False),
        ("ZImage", "negative_prompt", 1.0, True),
        ("QwenImage", "negative_prompt", 1.0, False),
        ("Flux", "guidance_scale", 3.5, False),
        ("Flux", "guidance_scale", 0.0, True),
    ],
)
def test_options_without_effect_are_reported(tmp_path, pipeline, option, scale, has_effect):
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(PLAIN_FLUX))
    more = {"negative_prompt": "blurred"} if option == "negative_prompt" else {}
    options = more | {"steps": 4, "guidance_scale": scale}
    said = sampled(f"{pipeline}Pipeline", tmp_path, **options).remarks
    assert ["no effect" in remark for remark in said] == [True] * (not has_effect)


@pytest.mark.parametrize(
    ("pipeline", "option", "value"),
    [("SanaSprintPipeline", "negative_prompt", "blurred"), ("DDPMPipeline", "guidance_scale", 2.0)],
)
def test_options_that_the_pipeline_does_not_take_are_refused(pipeline, option, value):
    with pytest.raises(ValueError, match=f"leave --{option.replace('_', '-')} out"):
        sampled(pipeline, **{option: value})


COUNTS = st.integers(1, 7)


def plan_of(folder, prompts, images_per_prompt, at_a_time):
    path = folder / "prompts.txt"
    path.write_text("\n".join(f"prompt {i}" for i in range(prompts)))
    options = RunOptions(images_per_prompt=images_per_prompt, batch_size=at_a_time)
    return Plan(options, open_prompts(str(path)), Sampling({}, {}), Manifest({}, {}))


@settings(deadline=None)  # writing files may be slow
@given(COUNTS, COUNTS, COUNTS, COUNTS, st.integers(0, 60))
def test_each_image_is_planned_once_and_a_resumed_plan_is_the_rest(
    tmp_path_factory, prompts, images_per_prompt, at_a_time, side_by_side, done
):
    plan = plan_of(tmp_path_factory.mktemp("plan"), prompts, images_per_prompt, at_a_time)
    items = list(plan.items(0, side_by_side))
    assert sorted(item.number for item in items) == list(range(plan.total))
    assert all(item.prompt == f"prompt {item.number // images_per_prompt}" for item in items)
    done = min(done, plan.total)
    assert list(plan.items(done, side_by_side)) == items[done:]
