"""The guided Flux as a tiny model: what its class adds to the plain callback."""

import torch
from diffusers import FluxPipeline
from vendi_guidance.pipelines.vendi_guided_flux import VendiGuidedFluxPipeline

from tests.helpers import tiny_transformers as dit
from tests.helpers.tiny_pipelines import CASES

PROMPTS = [0, 1]


def make(kind=VendiGuidedFluxPipeline):
    torch.manual_seed(0)
    pipe = kind(**dit.flux().components)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe, cfg=False, images=1, text=False, **more):
    given = CASES["Flux"].arguments(PROMPTS, guided=cfg, images=images, text=text)
    return pipe(**given | more)[0]


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
    assert not torch.allclose(changed[1], left[1], atol=1e-3)


def test_the_stock_class_is_left_as_it_was():
    assert "pooled_prompt_embeds" not in FluxPipeline._callback_tensor_inputs
