"""The two guided PixArt, which have only the older `callback`, as tiny models."""

import diffusers
import pytest
import torch

from tests.adapter.test_mixins import GUIDED, PIXART, PROMPTS, generate, make
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.guidance.samples import unit_rows

TRAINED = {"num_train_timesteps": 1000, "beta_schedule": "linear"}


@pytest.fixture(params=PIXART)
def name(request):
    return request.param


def scheduler_named(kind):
    return getattr(diffusers, f"{kind}Scheduler")(**TRAINED)


def test_models_of_sizes_that_pixart_has_no_bins_for_need_no_argument(name):
    plain = generate(make(name), name)
    given = CASES[name].arguments(PROMPTS)
    del given["use_resolution_binning"]
    with pytest.raises(ValueError, match="Invalid sample size"):
        make(name, guided=False)(**given)
    assert torch.equal(make(name)(**given)[0], plain)


@pytest.mark.parametrize("cfg", [False, True])
@pytest.mark.parametrize("kind", ["DDIM", "DPMSolverMultistep"])
def test_rounds_are_made_in_place(name, kind, cfg):
    def latents(pipe, **more):
        seen = []
        more |= {"callback": lambda step, timestep, latents: seen.append(latents.clone())}
        final = generate(pipe, name, cfg, num_inference_steps=6, **more)
        return [*seen, final]

    pipe = make(name, scheduler=scheduler_named(kind))
    guided = latents(pipe, diversity_rounds=2)
    plain = latents(make(name, guided=False, scheduler=scheduler_named(kind)))
    assert torch.equal(guided[-1], guided[-2]) and guided[-1].isfinite().all()
    changed = [not torch.equal(*pair) for pair in zip(guided, plain, strict=True)]
    assert changed == sorted(changed) and changed[-1]  # from the rounds on
    assert len(pipe.guidance.window) == 2 and pipe.guidance.skipped == 0
    assert "forward" not in vars(pipe.transformer) and "step" not in vars(pipe.scheduler)


@pytest.mark.parametrize("kind", ["DDIM", "HeunDiscrete", "PNDM"])
@pytest.mark.parametrize("callback_steps", [1, 2, 3])
def test_a_users_callback_is_called_when_the_stock_pipeline_calls_it(name, kind, callback_steps):
    calls = {True: [], False: []}
    for guided, seen in calls.items():
        pipe = make(name, guided, scheduler=scheduler_named(kind))
        given = {"num_inference_steps": 7, "callback_steps": callback_steps}
        generate(pipe, name, **given, callback=lambda *about, to=seen: to.append(about[:2]))
    assert calls[True] == calls[False] != []


def test_a_users_callback_may_change_latents_too(name):
    plain = generate(make(name), name, callback=lambda step, timestep, latents: latents.zero_())
    assert torch.equal(plain, torch.zeros_like(plain))


@pytest.mark.parametrize("callback_steps", [0, 1.5, None])
def test_a_bad_callback_steps_is_named(name, callback_steps):
    with pytest.raises(ValueError, match=f"callback_steps must be .* got {callback_steps}"):
        generate(make(name), name, callback_steps=callback_steps)


def test_a_single_step_is_remembered_as_it_comes_out(name):
    pipe = make(name)
    final = generate(pipe, name, num_inference_steps=1)
    assert torch.allclose(pipe.guidance.window.features, unit_rows(final.flatten(1)), atol=1e-6)


def test_a_stock_pipeline_whose_callback_gets_no_prompts_is_refused(name):
    stock = make(name, guided=False)
    own, ours = type(stock).__name__, GUIDED[type(stock)].__name__
    with pytest.raises(ValueError, match=f"{own} gives its callback no prompts: use {ours}"):
        VendiGuidance().on(stock)
