"""Default sampling parameters of models."""

import json
from pathlib import Path

import diffusers
import pytest

from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.sampling import sampling_of


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
def test_names_and_configurations_identify_few_step_models(
    pipeline, options, files, expected, tmp_path
):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    found = sampled(f"{pipeline}Pipeline", tmp_path, **options)
    assert (found.about["steps"], found.about["guidance_scale"]) == expected


@pytest.mark.parametrize("can_clean", [True, False])
def test_pixart_does_not_clean_captions_if_libraries_are_missing(monkeypatch, can_clean):
    for name in ("is_bs4_available", "is_ftfy_available"):
        monkeypatch.setattr(f"vendi_guidance.runs.sampling.{name}", lambda: can_clean)
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
def test_a_negative_prompt_or_a_scale_is_reported_to_have_no_effect(
    tmp_path, pipeline, option, scale, has_effect
):
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(PLAIN_FLUX))
    given = {"negative_prompt": "blurred"} if option == "negative_prompt" else {}
    options = given | {"steps": 4, "guidance_scale": scale}
    said = sampled(f"{pipeline}Pipeline", tmp_path, **options).remarks
    assert ["no effect" in remark for remark in said] == [True] * (not has_effect)


@pytest.mark.parametrize(
    ("pipeline", "option", "value"),
    [("SanaSprintPipeline", "negative_prompt", "blurred"), ("DDPMPipeline", "guidance_scale", 2.0)],
)
def test_options_that_the_pipeline_does_not_take_are_refused(pipeline, option, value):
    with pytest.raises(ValueError, match=f"leave --{option.replace('_', '-')} out"):
        sampled(pipeline, **{option: value})
