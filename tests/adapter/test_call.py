"""What belongs to one pipeline call dies with it."""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from tests.adapter.test_callback import batch, pipeline, published
from tests.adapter.test_mixins import generate, make
from tests.guidance.test_engine import seeded
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance

draw = partial(generate, name="SDXL", cfg=True)


def test_free_init_is_refused():
    pipe = make("AnimateDiff", guided=False)
    pipe.enable_free_init()
    with pytest.raises(ValueError, match=r"call disable_free_init\(\)"):
        VendiGuidance().on(pipe)


def test_a_users_callback_may_be_given_embeddings_with_a_graph():
    pipe, given = make("SD3", guided=False), CASES["SD3"].arguments([0, 1])
    given["prompt_embeds"] = 1.0 * given["prompt_embeds"].requires_grad_()
    inputs = ["latents", "prompt_embeds"]
    guided = VendiGuidance().on(pipe, callback=lambda *_: {}, callback_tensor_inputs=inputs)
    assert pipe(**given, **guided)[0].isfinite().all()


def test_a_pipeline_whose_steps_a_copy_of_its_scheduler_makes_is_told_what_to_use(sdxl, caplog):
    other = copy.deepcopy(sdxl.scheduler)
    other.set_timesteps(3)
    # in the loop, as a pipeline does that copies its scheduler
    sdxl.unet.register_forward_pre_hook(lambda *_: setattr(sdxl.scheduler, "step", other.step))
    draw(sdxl, **VendiGuidance().on(sdxl))
    [said], made = caplog.messages, "its DDIMScheduler made no step, perhaps a copy did"
    assert said.endswith(f'{made}: use preset="published"') and sdxl.scheduler.step == other.step


def sharing(pipe, *, scheduler=False):
    """Another pipeline of the same network, and if asked for of the same scheduler."""
    parts = dict(pipe.components)
    if not scheduler:
        parts["scheduler"] = type(pipe.scheduler).from_config(pipe.scheduler.config)
    return type(pipe)(**parts)


@pytest.mark.parametrize("shared", [False, True], ids=["network", "scheduler too"])
@pytest.mark.parametrize("guided", [False, True])
def test_a_call_in_another_thread_with_a_network_being_guided_is_refused(sdxl, guided, shared):
    other = sharing(sdxl, scheduler=shared)
    # on a device that threads do not know
    given = CASES["SDXL"].arguments([0, 1]) | (VendiGuidance().on(other) if guided else {})

    def meanwhile(pipe, index, *_):
        with ThreadPoolExecutor(1) as pool:
            error = pool.submit(other, **given).exception()
        assert index == 2 or "give each thread a pipeline" in str(error)  # then the call is over
        return {}

    expected = draw(sdxl, generator=seeded(5), **VendiGuidance(rounds=2).on(sdxl))
    told = VendiGuidance(rounds=2).on(sdxl, callback=meanwhile)
    assert torch.equal(draw(sdxl, generator=seeded(5), **told), expected)
    assert "forward" not in vars(sdxl.unet) and "step" not in vars(sdxl.scheduler)


def test_arguments_made_in_one_thread_guide_a_call_in_another(sdxl):
    expected = draw(sdxl, generator=seeded(5), **VendiGuidance(rounds=2).on(sdxl))
    given = VendiGuidance(rounds=2).on(sdxl)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(draw, sdxl, generator=seeded(5), **given).result()
    assert torch.equal(found, expected)


def test_a_stock_call_from_within_a_guided_one_is_a_stock_one(sdxl):
    other, within = sharing(sdxl), []
    stock = draw(other, generator=seeded(1))

    def preview(pipe, index, timestep, tensors):
        within.append(draw(other, generator=seeded(1)))
        return {}

    expected = draw(sdxl, generator=seeded(5), **VendiGuidance(rounds=2).on(sdxl))
    given = VendiGuidance(rounds=2).on(sdxl, callback=preview)
    assert torch.equal(draw(sdxl, generator=seeded(5), **given), expected)
    assert all(torch.equal(each, stock) for each in within) and within


def test_one_guidance_in_two_threads_at_once_is_refused():
    guidance, (latents, prompts) = published(), batch()
    tensors = {"latents": latents, "prompt_embeds": prompts}
    guidance(pipeline(), 0, 0, tensors)
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="each thread a Vendi"):
        pool.submit(guidance, pipeline(), 1, 1, tensors).result()
