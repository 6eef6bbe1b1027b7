"""Guidance in the loops of modular pipelines: SDXL, and Anima, of which there is no other."""

import pytest
import torch
from diffusers.modular_pipelines.stable_diffusion_xl import StableDiffusionXLAutoBlocks

from tests.helpers import tiny_modular
from vendi_guidance import VendiGuidance, guide_loops
from vendi_guidance.adapter.modular import BEGIN, GUIDE

PROMPTS = [0, 0, 1]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(params=["stable_diffusion_xl", "anima"])
def modular(request):
    return getattr(tiny_modular, request.param)()


def guided(modular, guidance, cfg=3.0):
    guide_loops(modular.blocks, guidance)
    return modular.make(cfg)


def network_of(pipe):
    return pipe.unet if hasattr(pipe, "unet") else pipe.transformer


def unit(x):
    return torch.nn.functional.normalize(x.flatten(1), dim=1)


@pytest.mark.parametrize("preset", [None, "published"])
def test_guidance_changes_what_comes_out_and_strength_0_does_not(modular, preset):
    plain = modular.generate(modular.make(), PROMPTS)
    guidance = VendiGuidance(preset=preset)
    pipe = guided(modular, guidance)
    found = modular.generate(pipe, PROMPTS)
    assert found.isfinite().all() and not torch.allclose(found, plain, atol=1e-3)
    assert guidance.skipped == 0
    guide_loops(modular.blocks, VendiGuidance(strength=0))
    assert torch.equal(modular.generate(modular.make(), PROMPTS), plain)


def test_finished_samples_enter_the_window_with_their_prompts_and_all_is_let_go_of(modular):
    guidance = VendiGuidance()
    pipe = guided(modular, guidance)
    found = torch.cat([modular.generate(pipe, PROMPTS) for _ in range(2)])
    window = guidance.window
    assert window.latent_shape == modular.latent and len(window) == 6
    torch.testing.assert_close(window.features, unit(found), atol=1e-5, rtol=0)
    rows = modular.embeddings(PROMPTS)
    best = rows.get("pooled_prompt_embeds", rows["prompt_embeds"].mean(dim=1))
    torch.testing.assert_close(window.prompts[:3], unit(best), atol=1e-5, rtol=0)
    assert "step" not in vars(pipe.scheduler) and "forward" not in vars(network_of(pipe))


def test_with_the_memory_of_a_call_the_same_seed_gives_the_same_again(modular):
    pipe = guided(modular, VendiGuidance(memory="call"))
    assert torch.equal(*(modular.generate(pipe, PROMPTS) for _ in range(2)))


@pytest.mark.parametrize("cfg", [1.0, 3.0])
def test_cfg_is_off_at_all_steps_but_the_first_until_the_rounds(modular, cfg):
    guidance = VendiGuidance(rounds=2, candidates=1, cfg=0.0, proposal="gradient")
    pipe = guided(modular, guidance, cfg)
    leaf = next(it for it in network_of(pipe).modules() if not [*it.children()])
    evaluated = []
    leaf.register_forward_hook(lambda *_: evaluated.append(1))
    modular.generate(pipe, PROMPTS)
    assert len(evaluated) == 6 + 2 + (cfg > 1)


def test_guidance_that_is_inserted_again_takes_the_place_of_the_first(modular):
    first, second = VendiGuidance(), VendiGuidance()
    guide_loops(modular.blocks, first)
    modular.generate(guided(modular, second), PROMPTS)
    assert (len(first.window), len(second.window)) == (0, 3)


def test_every_loop_of_nested_blocks_is_guided():
    blocks = StableDiffusionXLAutoBlocks()
    assert guide_loops(blocks, VendiGuidance()) == 4
    loop = blocks.sub_blocks["denoise"].sub_blocks["denoise"].sub_blocks["denoise"]
    assert [*loop.sub_blocks] == [BEGIN, "before_denoiser", "denoiser", "after_denoiser", GUIDE]


def test_blocks_without_a_loop_are_refused():
    blocks = StableDiffusionXLAutoBlocks().sub_blocks["decode"]
    with pytest.raises(ValueError, match="DecodeStep has no denoising loop of blocks"):
        guide_loops(blocks, VendiGuidance())


def test_an_image_that_starts_from_another_is_remembered_too():
    modular = tiny_modular.stable_diffusion_xl()
    guidance = VendiGuidance()
    pipe = guided(modular, guidance)
    given = {"image_latents": torch.randn(3, *modular.latent), "strength": 0.5}
    modular.generate(pipe, PROMPTS, **given)
    assert len(guidance.window) == 3
