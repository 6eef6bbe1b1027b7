"""The same seed gives the same image: alone, anywhere in a batch, and in every program."""

import diffusers
import pytest
import torch
from diffusers.modular_pipelines.stable_diffusion_xl.modular_blocks_stable_diffusion_xl import (
    StableDiffusionXLCoreDenoiseStep,
)

from integrations.comfyui.memory import MemoryStore
from integrations.comfyui.sampling import DiverseSampling
from tests.adapter.test_mixins import generate, make
from tests.guidance.test_engine import seeded
from tests.helpers import tiny_unets as unet
from tests.helpers.tiny_pipelines import CASES
from tests.integrations.test_comfyui_sampling import Guider, Noise, Sampler, euler
from vendi_guidance import VendiGuidance, guide_loops
from vendi_guidance.guidance.settings import Rounds

PROMPTS = [0, 1]
STEPS = 12
SIZE = {"height": 16, "width": 16}
SETTINGS = {"rounds": 2, "level": 9.5, "sigma_prompt": 0.3}  # at the first step


@pytest.fixture(scope="module")
def stock():
    scheduler = diffusers.EulerDiscreteScheduler(timestep_spacing="linspace")
    return make("SDXL", guided=False, vae=unet.vae(), scheduler=scheduler).to(torch.empty(0).device)


def called(pipe, seed=0, **given):
    latents = torch.randn(2, 4, 8, 8, generator=seeded(seed))
    given |= {"num_inference_steps": STEPS, "latents": latents, **SIZE}
    return generate(pipe, "SDXL", **given)


def by_callback(stock):
    guidance = VendiGuidance(**SETTINGS)
    return called(stock, generator=None, **guidance.on(stock))


def by_mixin(stock):
    guided = make("SDXL", **stock.components)
    return called(guided, **{f"diversity_{name}": value for name, value in SETTINGS.items()})


def by_blocks(stock):
    blocks = StableDiffusionXLCoreDenoiseStep()
    guide_loops(blocks, VendiGuidance(**SETTINGS))
    pipe = blocks.init_pipeline()
    guider = diffusers.ClassifierFreeGuidance(guidance_scale=1.0)
    names = ("unet", "vae", "scheduler")
    pipe.update_components(guider=guider, **{name: stock.components[name] for name in names})
    given = {**CASES["SDXL"].embeddings(PROMPTS), "num_inference_steps": STEPS, **SIZE}
    return pipe(**given, generator=seeded(), output="latents")


def by_comfyui(stock, tmp_path):
    scheduler, given = stock.scheduler, CASES["SDXL"].embeddings(PROMPTS)
    scheduler.set_timesteps(STEPS)
    sizes = torch.tensor([[16.0, 16, 0, 0, 16, 16]] * 2)
    added = {"text_embeds": given["pooled_prompt_embeds"], "time_ids": sizes}

    class Sampling(Noise):
        sigma_max = scheduler.sigmas[0]

    class Unet(Guider):
        @torch.no_grad()
        def evaluate(self, x, sigma):
            at = (scheduler.sigmas - sigma[0]).abs().argmin()
            scaled = x / (sigma[0] ** 2 + 1) ** 0.5
            tokens, timestep = given["prompt_embeds"], scheduler.timesteps[at]
            return x - sigma[0] * stock.unet(scaled, timestep, tokens, added_cond_kwargs=added)[0]

    guider, noise = Unet(Sampling, cfg=1.0), torch.randn(2, 4, 8, 8, generator=seeded())
    guider.conds = {"positive": [{"pooled_output": given["pooled_prompt_embeds"]}]}
    store = MemoryStore("this batch", "test", tmp_path)
    args = (guider, scheduler.sigmas, {"seed": 0}, None, noise, torch.zeros_like(noise))
    return DiverseSampling(Rounds(**SETTINGS), store)(Sampler(euler), *args)


def test_a_seed_gives_the_same_image_by_callback_mixin_blocks_and_comfyui(stock, tmp_path):
    expected = by_callback(stock)
    assert torch.equal(by_mixin(stock), expected)
    torch.testing.assert_close(by_blocks(stock), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(by_comfyui(stock, tmp_path), expected, rtol=1e-3, atol=1e-3)
    plain = called(stock)
    assert not torch.allclose(plain, expected, atol=0.1)


@pytest.mark.parametrize("steps", [4, STEPS])
def test_an_image_does_not_depend_on_its_place_in_the_batch(stock, steps):
    def draw(order, **settings):
        guidance = VendiGuidance(rounds=4, **settings)
        given = CASES["SDXL"].arguments([[0, 0, 1][i] for i in order])
        given |= {"generator": [seeded(i) for i in order], "num_inference_steps": steps, **SIZE}
        return stock(**given, **guidance.on(stock))[0]

    first = draw([0, 1, 2])
    torch.testing.assert_close(draw([2, 0, 1]), first[[2, 0, 1]], rtol=1e-3, atol=1e-3)
    # samples that hardly move apart are those of other calls
    together = draw([0, 1, 2], diversity=1e-9, proposal="gradient")
    others = [draw([i, 2 - i], diversity=1e-9, proposal="gradient")[:1] for i in (0, 2)]
    torch.testing.assert_close(together[[0, 2]], torch.cat(others), rtol=1e-3, atol=1e-3)
