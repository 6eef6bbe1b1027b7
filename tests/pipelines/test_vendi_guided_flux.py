"""The guided Flux as a tiny model: what its class adds to the plain callback."""

import pytest
import torch
from diffusers import FluxPipeline
from vendi_guidance.pipelines.vendi_guided_flux import VendiGuidedFluxPipeline

from tests.helpers import tiny_transformers as dit
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance.guidance.window import unit_rows

PROMPTS = [0, 1]
EVERY_STEP = {"diversity_preset": "published", "diversity_scale": 0.3, "diversity_every": 1}


def make(kind=VendiGuidedFluxPipeline):
    torch.manual_seed(0)
    pipe = kind(**dit.flux().components)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe, cfg=False, pictures=1, text=False, **more):
    given = CASES["Flux"].arguments(PROMPTS, guided=cfg, pictures=pictures, text=text)
    return pipe(**given | more)[0]


@pytest.mark.parametrize("off", [{"diversity": 0}, {"diversity_scale": 0}])
@pytest.mark.parametrize("cfg", [False, True])
def test_without_diversity_it_is_bit_identical_to_the_stock_pipeline(cfg, off):
    pipe = make()
    assert torch.equal(draw(pipe, cfg, **off), draw(make(FluxPipeline), cfg))
    assert len(pipe.guidance.window) == 0


@pytest.mark.parametrize("cfg", [False, True])
def test_rounds_guide_and_leave_the_transformer_as_it_was(cfg):
    pipe = make()
    guided = draw(pipe, cfg, diversity=1, diversity_rounds=2)
    assert guided.isfinite().all() and pipe.guidance.skipped == 0
    assert not torch.allclose(guided, draw(make(FluxPipeline), cfg), atol=1e-3)
    assert "forward" not in vars(pipe.transformer) and "step" not in vars(pipe.scheduler)


@pytest.mark.parametrize("space", ["latent", "denoised"])
@pytest.mark.parametrize("cfg", [False, True])
def test_prompts_are_told_apart_by_the_pooled_embedding(cfg, space):
    pipe = make()
    plain = draw(make(FluxPipeline), cfg)
    guided = draw(pipe, cfg, **EVERY_STEP, diversity_space=space)
    assert guided.isfinite().all() and not torch.allclose(guided, plain, atol=1e-3)
    pooled = CASES["Flux"].embeddings(PROMPTS)["pooled_prompt_embeds"]
    assert torch.allclose(pipe.guidance.window.prompts, unit_rows(pooled), atol=1e-6)
    assert pipe.guidance.sigma_prompt == 0.3


def test_pictures_of_a_prompt_stand_next_to_one_another():
    pipe = make()
    draw(pipe, pictures=2, text=True)
    prompts = pipe.guidance.window.prompts
    assert torch.equal(prompts[0], prompts[1]) and torch.equal(prompts[2], prompts[3])
    assert not torch.allclose(prompts[0], prompts[2])


def test_a_users_callback_gets_what_it_asks_for():
    seen = []

    def note(pipe, index, timestep, tensors):
        seen.append(sorted(tensors))
        return {}

    pipe = make()
    draw(pipe, callback_on_step_end=note)
    draw(pipe, callback_on_step_end=note, callback_on_step_end_tensor_inputs=["prompt_embeds"])
    assert seen == [["latents"]] * 3 + [["prompt_embeds"]] * 3
    assert len(pipe.guidance.window) == 4


def test_a_users_callback_sees_guided_latents():
    left = {}

    def note(pipe, index, timestep, tensors):
        left[index] = tensors["latents"].clone()
        return {}

    guided = draw(make(), diversity_rounds=2, callback_on_step_end=note)
    assert torch.equal(left[2], guided)
    changed = dict(left)
    draw(make(FluxPipeline), callback_on_step_end=note)
    assert torch.equal(changed[0], left[0])  # at flow time 1 there is no signal and no round
    assert not torch.allclose(changed[1], left[1], atol=1e-3)


def test_the_stock_class_is_left_as_it_was():
    assert "pooled_prompt_embeds" not in FluxPipeline._callback_tensor_inputs
