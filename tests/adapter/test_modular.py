"""Guidance in the loops of modular pipelines: SDXL, and Anima, of which there is no other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffusers
import pytest
import torch
from diffusers.modular_pipelines.anima import before_denoise as anima_steps, denoise as anima_loop
from diffusers.modular_pipelines.stable_diffusion_xl import StableDiffusionXLAutoBlocks
from diffusers.modular_pipelines.stable_diffusion_xl.modular_blocks_stable_diffusion_xl import (
    StableDiffusionXLCoreDenoiseStep,
)

from tests.adapter.test_denoiser import module_of
from tests.helpers.tiny_pipelines import CASES, NEGATIVE, WORDS, Case, evaluations
from tests.helpers.tiny_transformers import network
from tests.helpers.tiny_unets import XL, scheduler, unet, vae
from vendi_guidance import VendiGuidance, guide_loops
from vendi_guidance.adapter.modular import BEGIN, GUIDE
from vendi_guidance.guidance.samples import unit_rows

PROMPTS = [0, 0, 1]


@dataclass
class Modular:
    """Blocks from embeddings to latents, and what to call them with."""

    blocks: Any  # before `init_pipeline`; they may be changed
    components: Callable[[], dict[str, Any]]
    case: Case
    size: int  # of images, in pixels

    def make(self, cfg=3.0):
        """The pipeline, with the same weights each time."""
        torch.manual_seed(0)
        pipe = self.blocks.init_pipeline()
        guider = diffusers.ClassifierFreeGuidance(guidance_scale=cfg)
        pipe.update_components(guider=guider, **self.components())
        return pipe.to(torch.empty(0).device)

    def generate(self, pipe, **more):
        """Latents of a call of 6 steps from seed 0."""
        negative = self.case.embeddings([NEGATIVE] * len(PROMPTS)).items()
        given = self.case.embeddings(PROMPTS) | {f"negative_{key}": it for key, it in negative}
        given |= {"num_inference_steps": 6, "generator": torch.Generator().manual_seed(0)}
        given |= {"output": "latents", "height": self.size, "width": self.size}
        return pipe(**given | more)


def stable_diffusion_xl():
    def components():
        return {"unet": unet(**XL), "vae": vae(), "scheduler": scheduler()}

    return Modular(StableDiffusionXLCoreDenoiseStep(), components, CASES["SDXL"], 16)


def anima():
    def components():
        config = {"attention_head_dim": 16, "adaln_lora_dim": 4, "extra_pos_embed_type": None}
        config |= {"mlp_ratio": 2, "max_size": (4, 16, 16), "rope_scale": (1.0, 1.0, 1.0)}
        transformer = network("CosmosTransformer3DModel", **config)
        flow = diffusers.FlowMatchEulerDiscreteScheduler()
        return {"transformer": transformer, "scheduler": flow}

    # its text conditioner would need real token ids
    steps = {
        "input": anima_steps.AnimaTextInputStep(),
        "prepare_latents": anima_steps.AnimaPrepareLatentsStep(),
        "set_timesteps": anima_steps.AnimaSetTimestepsStep(),
        "denoise": anima_loop.AnimaDenoiseStep(),
    }
    blocks = diffusers.SequentialPipelineBlocks.from_blocks_dict(steps)
    return Modular(blocks, components, Case(anima, WORDS, latent=(4, 1, 8, 8)), 64)


@pytest.fixture(params=[stable_diffusion_xl, anima], ids=lambda make: make.__name__)
def modular(request):
    return request.param()


def guided(modular, guidance, cfg=3.0):
    guide_loops(modular.blocks, guidance)
    return modular.make(cfg)


@pytest.mark.parametrize("preset", [None, "published"])
def test_guidance_changes_what_comes_out_and_diversity_0_does_not(modular, preset):
    plain = modular.generate(modular.make())
    guidance = VendiGuidance(preset=preset)
    pipe = guided(modular, guidance)
    found = modular.generate(pipe)
    assert found.isfinite().all() and not torch.allclose(found, plain, atol=1e-3)
    assert guidance.skipped == 0
    guide_loops(modular.blocks, VendiGuidance(diversity=0))
    assert torch.equal(modular.generate(modular.make()), plain)


def test_finished_samples_enter_the_window_with_their_prompts_and_all_is_let_go_of(modular):
    guidance = VendiGuidance()
    pipe = guided(modular, guidance)
    found = torch.cat([modular.generate(pipe) for _ in range(2)])
    window = guidance.window
    assert window.latent_shape == modular.case.latent and len(window) == 6
    torch.testing.assert_close(window.features, unit_rows(found.flatten(1)), atol=1e-5, rtol=0)
    rows = modular.case.embeddings(PROMPTS)
    best = rows.get("pooled_prompt_embeds", rows["prompt_embeds"].mean(dim=1))
    torch.testing.assert_close(window.prompts[:3], unit_rows(best), atol=1e-5, rtol=0)
    assert "step" not in vars(pipe.scheduler) and "forward" not in vars(module_of(pipe))


@pytest.mark.parametrize("cfg", [1.0, 3.0])
def test_cfg_is_off_at_all_steps_but_the_first_until_the_rounds(modular, cfg):
    guidance = VendiGuidance(rounds=2, cfg=0.0, proposal="gradient")
    pipe = guided(modular, guidance, cfg)
    with evaluations(module_of(pipe)) as rows:
        modular.generate(pipe)
    assert len(rows) == 6 + 2 + (cfg > 1)


def test_guidance_that_is_inserted_again_takes_the_place_of_the_first(modular):
    first, second = VendiGuidance(), VendiGuidance()
    guide_loops(modular.blocks, first)
    modular.generate(guided(modular, second))
    assert (len(first.window), len(second.window)) == (0, 3)


def test_every_loop_of_nested_blocks_is_guided_and_blocks_without_one_are_refused():
    blocks = StableDiffusionXLAutoBlocks()
    assert guide_loops(blocks, VendiGuidance()) == 4
    loop = blocks.sub_blocks["denoise"].sub_blocks["denoise"].sub_blocks["denoise"]
    assert [*loop.sub_blocks] == [BEGIN, "before_denoiser", "denoiser", "after_denoiser", GUIDE]
    with pytest.raises(ValueError, match="DecodeStep has no denoising loop of blocks"):
        guide_loops(blocks.sub_blocks["decode"], VendiGuidance())


def test_an_image_that_starts_from_another_is_remembered_too():
    modular = stable_diffusion_xl()
    guidance = VendiGuidance()
    pipe = guided(modular, guidance)
    given = {"image_latents": torch.randn(3, *modular.case.latent), "strength": 0.5}
    modular.generate(pipe, **given)
    assert len(guidance.window) == 3
