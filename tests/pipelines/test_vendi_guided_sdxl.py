"""The guided SDXL pipeline, and the plain callback, on a tiny random SDXL."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback

from vendi_guidance import VendiGuidance, VendiGuidedSDXLPipeline
from vendi_guidance.guidance.settings import Rounds

PROMPTS = ["a cat", "a cat", "a dog"]


@pytest.fixture(scope="module")
def stock(tiny_sdxl_folder):
    return StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)


@pytest.fixture
def guided(stock):
    return VendiGuidedSDXLPipeline(**stock.components)


def draw(pipe, prompts=PROMPTS, seed=0, **options):
    seeds = [torch.Generator().manual_seed(seed + i) for i in range(len(prompts))]
    options = {"num_inference_steps": 4, "generator": seeds, "output_type": "np"} | options
    return pipe(prompts, **options).images


def test_options_of_a_call_hold_for_that_call(guided):
    draw(guided, diversity_objective="rke", diversity_rounds=1)
    assert guided.guidance.settings == Rounds()
    draw(guided, diversity=1)
    assert guided.guidance.settings == Rounds()
    draw(guided, diversity_window=2)  # prompts were remembered, though "rke" did not look at them
    assert guided.guidance.window.size == len(guided.guidance.window) == 2


CHANGES = {"preset": "published", "objective": "rke", "rounds": 2, "level": 0.05, "truncation": 1}
CHANGES |= {"cfg": 0.0, "space": "latent", "sigma_latent": 0.2, "sigma_prompt": 5.0}


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_every_option_has_an_effect(guided, name, value):
    usual = draw(guided)
    guided.guidance.window.clear()
    images = draw(guided, **{f"diversity_{name}": value})
    assert np.isfinite(images).all() and not np.array_equal(images, usual)


@pytest.mark.parametrize(
    ("name", "nearest"), [("diversty", "diversity"), ("guidance_scal", "guidance_scale")]
)
def test_an_argument_that_does_not_exist_is_named_with_the_nearest(guided, name, nearest):
    with pytest.raises(TypeError, match=f"takes no {name!r}: did you mean {nearest!r}"):
        draw(guided, **{name: 0.5})


@pytest.mark.parametrize("form", ["class", "on", "MultiPipelineCallbacks"])
def test_a_users_callback_comes_after_guidance_and_has_the_last_word(guided, stock, form):
    kept, plain = [], []

    class Keep(PipelineCallback):
        tensor_inputs: ClassVar = ["latents"]

        def callback_fn(self, pipe, index, timestep, tensors):
            kept.append(tensors["latents"].clone())
            return {"latents": torch.zeros_like(tensors["latents"])} if index == 3 else {}

    def note(pipe, index, timestep, tensors):
        plain.append(tensors["latents"].clone())
        return tensors

    draw(stock, callback_on_step_end=note)
    users = MultiPipelineCallbacks([Keep()]) if form == "MultiPipelineCallbacks" else Keep()
    pipe, given = guided, {"callback_on_step_end": users}
    if form != "class":
        pipe, given = stock, VendiGuidance().on(stock, callback=users)
    images = draw(pipe, **given, output_type="latent")
    assert not torch.equal(kept[-1], plain[-1])  # guided, before the user's came
    assert len(kept) == 4 and not images.any()


def test_latents_left_to_a_refiner_are_not_remembered(guided):
    for end, remembered in ((0.5, 0), (1.0, 3)):
        draw(guided, denoising_end=end, output_type="latent")
        assert len(guided.guidance.window) == remembered


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diversity_level": -1}, "^diversity_level must be .* got -1"),
        ({"diversity_memory": "x"}, "^diversity_memory must be one of session, call, got 'x'"),
        ({"diversity_undistilled": "x"}, '^diversity_undistilled must be "auto", "adapters"'),
        ({"diversity_undistilled": 3}, "^diversity_undistilled must be .* got 3"),
        ({"diversity": 1.1}, "^diversity must be between 0 .* got 1.1"),
    ],
)
def test_a_bad_option_of_a_call_is_named_and_changes_nothing(guided, options, message):
    draw(guided)
    with pytest.raises(ValueError, match=message):
        draw(guided, **options)
    assert len(guided.guidance.window) == 3
    assert guided.guidance.settings == Rounds() and guided.guidance.keeps == "session"
    assert "step" not in vars(guided.scheduler) and "forward" not in vars(guided.unet)
