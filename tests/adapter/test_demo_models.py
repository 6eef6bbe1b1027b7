"""Guidance, as it is by default, on trained models that its settings were not found on."""

from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusion3Pipeline, StableDiffusionXLPipeline
from peft import LoraConfig

from vendi_guidance import Gaussian, VendiGuidance, VendiGuidedPixArtSigmaPipeline, vendi
from vendi_guidance.features.probe import load_probe

pytestmark = pytest.mark.as_measured
ASSETS = Path(__file__).parents[2] / "assets"
MODELS = {
    "demo-sdxl-turbo-lora": (StableDiffusionXLPipeline, "demo-probe", "waving hand", 4, 0.0),
    "demo-faces-turbo-lora": (StableDiffusion3Pipeline, "demo-faces-probe", "portrait", 4, 0.0),
    "demo-pixart": (VendiGuidedPixArtSigmaPipeline, "demo-probe", "waving hand", 8, 4.0),
    "demo-faces": (StableDiffusion3Pipeline, "demo-faces-probe", "portrait", 8, 4.0),
}
IMAGES = 8


def load(kind, name):
    base = name.removesuffix("-turbo-lora")
    pipe = kind.from_pretrained(ASSETS / base)
    if base != name:
        pipe.load_lora_weights(ASSETS / name)
        if kind is StableDiffusionXLPipeline:
            config = pipe.scheduler.config
            pipe.scheduler = type(pipe.scheduler).from_config(config, timestep_spacing="trailing")
    return pipe


def draw(pipe, prompts, steps, scale, **given):
    generator = torch.Generator().manual_seed(0)
    given |= {"num_inference_steps": steps, "guidance_scale": scale, "generator": generator}
    return pipe(prompts, **given).images


@pytest.mark.parametrize("name", MODELS)
def test_the_default_makes_a_prompts_images_differ_and_keeps_what_they_show(name, caplog):
    if not (ASSETS / name).is_dir():
        pytest.skip(f"this copy has no assets/{name}")
    caplog.set_level("INFO", "vendi_guidance")
    kind, probe_name, prompt, steps, scale = MODELS[name]
    pipe, probe = load(kind, name), load_probe(ASSETS / probe_name)

    def diversity(value):
        if kind is VendiGuidedPixArtSigmaPipeline:
            given = {"diversity": value, "use_resolution_binning": False}
        else:
            given = VendiGuidance(diversity=value).on(pipe)
        images = draw(pipe, [prompt] * IMAGES, steps, scale, **given)
        # rounding differs between versions of PyTorch, which may cost the student an image
        assert sum(concept == prompt for concept, *_ in probe.looks(images)) >= IMAGES - 1
        return float(vendi(probe.embed(images), Gaussian(4.0)))

    without, default = diversity(0.0), diversity(0.5)
    assert default > 1.2 * without
    if name == "demo-sdxl-turbo-lora":
        assert "the undistilled network answers" in caplog.text


def test_a_lora_of_a_style_on_a_distilled_network_is_not_taken_for_a_distillation(caplog):
    caplog.set_level("INFO", "vendi_guidance")
    pipe = load(StableDiffusionXLPipeline, "demo-sdxl-turbo-lora")
    pipe.fuse_lora()
    pipe.unload_lora_weights()
    pipe._merged_adapters = set()  # as if it had been saved and loaded again
    targets = ["to_q", "to_k", "to_v", "to_out.0"]
    pipe.unet.add_adapter(LoraConfig(r=8, target_modules=targets, init_lora_weights=False), "style")
    draw(pipe, ["waving hand"] * 2, 2, 0.0, output_type="latent", **VendiGuidance().on(pipe))
    assert caplog.text and "the undistilled network answers" not in caplog.text
