"""What belongs to one pipeline call dies with it."""

import pytest
import torch

from tests.guidance.test_callback import batch, denoise, pipeline, published
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance


@pytest.fixture
def sdxl():
    return CASES["SDXL"].make()


def draw(pipe, **given):
    return pipe(**CASES["SDXL"].arguments([0, 1], guided=True) | given)[0]


def test_a_scheduler_is_let_go_of_after_the_last_step(sdxl):
    guidance = VendiGuidance()
    given = guidance.on(sdxl)
    assert "step" in vars(sdxl.scheduler)
    draw(sdxl, **given)
    assert "step" not in vars(sdxl.scheduler)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_scheduler_is_let_go_of_when_a_call_raises(sdxl, error):
    guidance = VendiGuidance()
    with pytest.raises(error), guidance.attached(sdxl):
        assert "step" in vars(sdxl.scheduler)
        raise error
    assert "step" not in vars(sdxl.scheduler)
    assert len(guidance.window) == 0


def test_attached_gives_the_arguments_of_on(sdxl):
    one, other = VendiGuidance(), VendiGuidance()
    with other.attached(sdxl, torch.Generator().manual_seed(1)) as given:
        attached = draw(sdxl, **given)
        assert len(other.window) == 0  # until the call has succeeded
    assert torch.equal(draw(sdxl, **one.on(sdxl, torch.Generator().manual_seed(1))), attached)
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
