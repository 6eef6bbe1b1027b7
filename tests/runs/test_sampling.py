"""How models want to be sampled."""

import json
from pathlib import Path

import diffusers
import pytest

from vendi_guidance.runs.sampling import SamplingOptions, sampling_of

SDXL = diffusers.StableDiffusionXLPipeline
NOWHERE = Path("no/such/folder")


def test_a_pipeline_without_more_to_go_by_is_called_by_its_defaults():
    found = sampling_of(SDXL, NOWHERE, "me/mine")
    assert found.call == {"num_inference_steps": 50, "guidance_scale": 5.0}
    assert found.remark == "50 steps, guidance scale 5: the defaults of StableDiffusionXLPipeline"


def test_what_is_given_holds_and_is_not_remarked_on():
    asked = SamplingOptions(steps=2, guidance_scale=3.0)
    found = sampling_of(SDXL, NOWHERE, "stabilityai/sdxl-turbo", asked)
    assert found.call == {"num_inference_steps": 2, "guidance_scale": 3.0}
    assert found.remark is None
    found = sampling_of(SDXL, NOWHERE, "stabilityai/sdxl-turbo", SamplingOptions(steps=2))
    assert found.remark == "guidance scale 0 (no CFG): usual for models named 'turbo'"


@pytest.mark.parametrize(
    ("pipeline", "name", "steps", "scale"),
    [
        ("StableDiffusionXLPipeline", "stabilityai/sdxl-turbo", 4, 0.0),
        ("StableDiffusionXLPipeline", "me/SDXL-Lightning-8step", 8, 0.0),
        ("StableDiffusion3Pipeline", "stabilityai/stable-diffusion-3.5-large-turbo", 4, 0.0),
        ("FluxPipeline", "black-forest-labs/FLUX.1-schnell", 4, 0.0),
        ("FluxPipeline", "black-forest-labs/FLUX.1-dev", 28, 3.5),
        ("ZImagePipeline", "Tongyi-MAI/Z-Image-Turbo", 9, 0.0),
        ("StableDiffusionPipeline", "SimianLuo/LCM_Dreamshaper_v7", 4, 1.0),
        ("StableDiffusionXLPipeline", "folders/turbo/of-mine/base", 50, 5.0),
    ],
)
def test_distilled_models_take_few_steps_and_no_cfg(pipeline, name, steps, scale):
    found = sampling_of(getattr(diffusers, pipeline), NOWHERE, name)
    assert (found.steps, found.guidance_scale) == (steps, scale)


def test_a_loras_name_says_more_than_its_models():
    asked = SamplingOptions(lora="assets/demo-sdxl-turbo-lora")
    found = sampling_of(SDXL, NOWHERE, "assets/demo-sdxl", asked)
    assert (found.steps, found.guidance_scale) == (4, 0.0)
    found = sampling_of(SDXL, NOWHERE, "assets/demo-sdxl", SamplingOptions(lora="me/watercolours"))
    assert (found.steps, found.guidance_scale) == (16, 5.0)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("scheduler/scheduler_config.json", {"_class_name": "LCMScheduler"}, (4, 1.0)),
        ("model_index.json", {"is_distilled": True}, (4, 1.0)),
        (
            "transformer/config.json",
            {"_class_name": "FluxTransformer2DModel", "guidance_embeds": False},
            (4, 0.0),
        ),
        ("transformer/config.json", ["not", "a", "configuration"], (28, 3.5)),
    ],
)
def test_parts_tell_too(file, content, expected, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(json.dumps(content))
    found = sampling_of(diffusers.FluxPipeline, tmp_path, "mine")
    assert (found.steps, found.guidance_scale) == expected


@pytest.mark.parametrize(("width", "scale"), [(None, 1.0), (256, 7.5)])
def test_a_scale_that_an_lcm_takes_as_an_input_is_the_pipelines(tmp_path, width, scale):
    parts = {"scheduler/scheduler_config.json": {"_class_name": "LCMScheduler"}}
    parts["unet/config.json"] = {"time_cond_proj_dim": width}
    for name, content in parts.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps(content))
    found = sampling_of(diffusers.StableDiffusionPipeline, tmp_path, "mine")
    assert (found.steps, found.guidance_scale) == (4, scale)


def test_the_scale_of_true_cfg_needs_a_negative_prompt():
    kind = diffusers.QwenImagePipeline
    found = sampling_of(kind, NOWHERE, "Qwen/Qwen-Image")
    assert found.call == {"num_inference_steps": 50, "true_cfg_scale": 4.0}
    assert found.negative_prompt == " "
    found = sampling_of(kind, NOWHERE, "Qwen/Qwen-Image", SamplingOptions(guidance_scale=1.0))
    assert found.negative_prompt is None


def test_what_a_pipeline_does_not_take_is_refused():
    with pytest.raises(ValueError, match="--negative-prompt"):
        asked = SamplingOptions(negative_prompt="blurred")
        sampling_of(diffusers.SanaSprintPipeline, NOWHERE, "mine", asked)
    with pytest.raises(ValueError, match="--guidance-scale"):
        sampling_of(diffusers.DDPMPipeline, NOWHERE, "mine", SamplingOptions(guidance_scale=2.0))
