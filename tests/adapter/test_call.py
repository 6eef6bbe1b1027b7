"""What belongs to one pipeline call dies with it."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.adapter.test_callback import batch, denoise, pipeline, published
from tests.adapter.test_mixins import make
from tests.guidance.test_engine import seeded
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.mixins import GuidedInPlace


def draw(pipe, **given):
    return pipe(**CASES["SDXL"].arguments([0, 1], guided=True) | given)[0]


def test_attached_gives_the_arguments_of_on(sdxl):
    one, other = VendiGuidance(), VendiGuidance()
    with other.attached(sdxl) as given:
        attached = draw(sdxl, **given)
        assert len(other.window) == 0  # until the call has succeeded
    assert torch.equal(draw(sdxl, **one.on(sdxl)), attached)
    assert torch.equal(one.window.features, other.window.features)


def test_a_call_after_one_that_was_cut_short_is_as_after_none():
    fresh, again = published(scale=0.3, every=4), published(scale=0.3, every=4)
    latents, prompts = batch()
    for index in range(3):  # stops in the middle
        again(pipeline(), index, index, {"latents": latents, "prompt_embeds": prompts})
    results = [denoise(each, latents, prompts) for each in (fresh, again)]
    assert torch.equal(*results)


@pytest.mark.parametrize("last", [0, 1])
def test_a_stock_call_after_one_that_was_cut_short_is_the_stock_pipelines(sdxl, last):
    stock, guidance = draw(sdxl), VendiGuidance(rounds=2)

    def fail(pipe, index, timestep, tensors):
        tensors = guidance(pipe, index, timestep, tensors)
        if index == last:
            raise KeyboardInterrupt
        return tensors

    with pytest.raises(KeyboardInterrupt):
        draw(sdxl, **guidance.on(sdxl) | {"callback_on_step_end": fail})
    assert torch.equal(draw(sdxl), stock)


@pytest.mark.parametrize("at", [2, 3, 4, 5])  # in steps and in rounds
def test_after_an_interrupted_evaluation_another_pipeline_of_the_network_is_stock(sdxl, at):
    other, evaluated = sharing(sdxl), []
    stock = draw(other)

    def interrupt(*_):
        evaluated.append(1)
        if len(evaluated) == at:
            raise KeyboardInterrupt

    given = VendiGuidance(rounds=2, candidates=1).on(sdxl)
    hook = sdxl.unet.mid_block.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        draw(sdxl, **given)
    hook.remove()
    assert torch.equal(draw(other), stock) and "forward" not in vars(sdxl.unet)


def test_samples_held_back_enter_in_order_when_they_are_committed():
    guidance = published()
    with guidance.memory.holding() as finished:
        denoise(guidance, *batch(2))
        with guidance.attached(pipeline()):
            denoise(guidance, *batch(3, seed=1))
        assert [len(features) for features, _ in finished] == [2, 3]
        assert len(guidance.window) == 0
    assert len(guidance.window) == 0
    guidance.memory.commit(finished)
    assert len(guidance.window) == 5


def test_a_pipeline_whose_steps_a_copy_of_its_scheduler_makes_is_told_what_to_use(sdxl, caplog):
    given, other = VendiGuidance().on(sdxl), copy.deepcopy(sdxl.scheduler)
    other.set_timesteps(3)
    sdxl.scheduler.step = other.step
    draw(sdxl, **given)
    [said] = caplog.messages
    assert said.endswith(
        'its DDIMScheduler made no step, perhaps a copy did: use preset="published"'
    )


# Several calls at once


def sharing(pipe, *, scheduler=False):
    """Another pipeline of the same network, and if asked for of the same scheduler."""
    parts = dict(pipe.components)
    if not scheduler:
        parts["scheduler"] = type(pipe.scheduler).from_config(pipe.scheduler.config)
    other = type(pipe)(**parts)
    other.set_progress_bar_config(disable=True)
    return other


def guiding(pipe, guidance):
    """The arguments of a call with this guidance; of the stock pipeline's for None."""
    if not isinstance(pipe, GuidedInPlace):
        return {} if guidance is None else guidance.on(pipe)
    pipe.guidance = guidance or VendiGuidance(diversity=0)
    return {}


def twenty(name, pipe, guidance):
    """The latents of 20 calls, stock ones too."""
    arguments = CASES[name].arguments([0, 1], guided=True)
    return [
        pipe(
            **arguments | {"generator": seeded(n)},
            **guiding(pipe, None if n % 4 == 3 else guidance),
        )[0]
        for n in range(20)
    ]


def check_in_threads(work):
    """Calls made in a thread each have the results of those made one after the other."""
    expected = [twenty(*each) for each in work()]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(len(expected)) as pool:
            found = [*pool.map(lambda each: twenty(*each), work())]
    finally:
        sys.setswitchinterval(before)
    for one, other in zip(found, expected, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("others", [True, False], ids=["both guided", "one stock"])
@pytest.mark.parametrize(
    ("name", "shared"), [("SDXL", False), ("SDXL", True), ("PixArt-Sigma", False)]
)
def test_calls_in_two_threads_on_one_network_are_those_made_one_after_the_other(
    name, shared, others
):
    pipe = make(name, guided=name != "SDXL")

    def work():
        guidances = [VendiGuidance(rounds=2), VendiGuidance(rounds=2) if others else None]
        return [(name, sharing(pipe, scheduler=shared), guidance) for guidance in guidances]

    check_in_threads(work)
    network = pipe.components.get("unet") or pipe.transformer
    assert "forward" not in vars(network) and "step" not in vars(pipe.scheduler)


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


def test_a_loop_without_a_pipeline_is_guided_and_a_later_one_is_stock(sdxl):
    def loop(given):
        torch.manual_seed(0)
        tokens, latents = torch.randn(2, 5, 16), torch.randn(2, 4, 8, 8)
        pooled, ids = torch.randn(2, 16), torch.zeros(2, 6)
        sdxl.scheduler.set_timesteps(4)
        for index, t in enumerate(sdxl.scheduler.timesteps):
            added = {"text_embeds": pooled, "time_ids": ids}
            noise = sdxl.unet(latents, t, tokens, added_cond_kwargs=added, return_dict=False)[0]
            latents = sdxl.scheduler.step(noise, t, latents)[0]
            if given:
                tensors = {"latents": latents, "add_text_embeds": pooled}
                sdxl._num_timesteps = 4
                latents = given["callback_on_step_end"](sdxl, index, t, tensors)["latents"]
        return latents

    with torch.no_grad():
        stock = loop({})
        guided = loop(VendiGuidance(rounds=2).on(sdxl))
        assert guided.isfinite().all() and not torch.allclose(guided, stock, atol=1e-3)
        assert torch.equal(loop({}), stock)
