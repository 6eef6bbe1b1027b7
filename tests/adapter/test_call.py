"""What belongs to one pipeline call dies with it."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from tests.adapter.test_callback import batch, pipeline, published
from tests.adapter.test_mixins import generate, make
from tests.guidance.test_engine import seeded
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.mixins import GuidedInPlace

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


def guiding(pipe, guidance):
    """The arguments of a call with this guidance; of the stock pipeline's for None."""
    if not isinstance(pipe, GuidedInPlace):
        return {} if guidance is None else guidance.on(pipe)
    pipe.guidance = guidance or VendiGuidance(diversity=0)
    return {}


def twenty(name, pipe, guidance):
    """A function that makes 20 calls, stock ones too: their latents."""
    arguments = CASES[name].arguments([0, 1], guided=True)  # on a device that threads do not know

    def one(n):
        guided = guiding(pipe, None if n % 4 == 3 else guidance)
        return pipe(**arguments | {"generator": seeded(n)}, **guided)[0]

    return lambda: list(map(one, range(20)))


def check_in_threads(work):
    """Calls made in a thread each have the results of those made one after the other."""
    expected = [twenty(*each)() for each in work()]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(len(expected)) as pool:
            found = [*pool.map(lambda calls: calls(), [twenty(*each) for each in work()])]
    finally:
        sys.setswitchinterval(before)
    for one, other in zip(found, expected, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("others", [True, False], ids=["both guided", "one stock"])
@pytest.mark.parametrize(
    ("name", "shared"), [("SDXL", False), ("SDXL", True), ("PixArt-Sigma", False)]
)
def test_calls_in_two_threads_on_one_network_are_those_of_one_thread(name, shared, others):
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


def test_arguments_of_an_earlier_call_are_said_to_be_for_one(sdxl, caplog):
    given = VendiGuidance(rounds=2).on(sdxl)
    for said in ([], ["are for one call"]):
        draw(sdxl, **given)
        assert len(caplog.messages) == len(said) and all(it in caplog.text for it in said)


def test_arguments_for_one_pipeline_are_said_not_to_be_for_another(sdxl, caplog):
    draw(sharing(sdxl), **VendiGuidance(rounds=2).on(sdxl))
    assert "are for one call of that pipeline" in caplog.text


def test_arguments_may_wait_while_other_calls_are_made(sdxl, caplog):
    """Each call gets the guidance that was meant for it, or none."""
    made = {dial: VendiGuidance(rounds=2, diversity=dial) for dial in (0.25, 1.0)}
    expected = [draw(sdxl, generator=seeded(5), **each.on(sdxl)) for each in made.values()]
    stock = draw(sdxl, generator=seeded(5))
    waiting = {dial: VendiGuidance(rounds=2, diversity=dial).on(sdxl) for dial in made}
    assert torch.equal(draw(sdxl, generator=seeded(5)), stock)
    found = [draw(sdxl, generator=seeded(5), **each) for each in waiting.values()]
    assert all(map(torch.equal, found, expected)) and not caplog.messages


def test_an_undistilled_network_makes_no_step_of_a_stock_call(sdxl):
    stock, other = draw(sdxl, generator=seeded(5)), copy.deepcopy(sdxl.unet)
    other.conv_out.weight.data *= 2
    waiting = VendiGuidance(undistilled=other).on(sdxl)
    assert torch.equal(draw(sdxl, generator=seeded(5)), stock)
    assert not torch.equal(draw(sdxl, generator=seeded(5), **waiting), stock)


class Bar:
    """A progress bar of a user's own, which cannot be closed."""

    __slots__ = ()
    update = __exit__ = lambda self, *_: None
    __enter__ = lambda self: self  # noqa: E731


def test_any_progress_bar_will_do(sdxl, monkeypatch):
    expected = draw(sdxl, generator=seeded(5), **VendiGuidance(rounds=2).on(sdxl))
    monkeypatch.setattr(sdxl, "progress_bar", lambda **_: Bar(), raising=False)
    found = draw(sdxl, generator=seeded(5), **VendiGuidance(rounds=2).on(sdxl))
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
