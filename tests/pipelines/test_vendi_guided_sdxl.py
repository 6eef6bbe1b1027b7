"""The guided SDXL pipeline, and the plain callback, on a tiny random SDXL."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback

from vendi_guidance import SlidingWindow, VendiGuidance, VendiGuidedSDXLPipeline
from vendi_guidance.guidance.settings import Rounds

PROMPTS = ["a cat", "a cat", "a dog"]


@pytest.fixture(scope="module")
def parts(tiny_sdxl_folder):
    return StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder).components


@pytest.fixture
def guided(parts):
    return quiet(VendiGuidedSDXLPipeline(**parts))


@pytest.fixture
def stock(parts):
    return quiet(StableDiffusionXLPipeline(**parts))


def quiet(pipe):
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe, prompts=PROMPTS, seed=0, **options):
    seeds = [torch.Generator().manual_seed(seed + i) for i in range(len(prompts))]
    options = {"num_inference_steps": 4, "generator": seeds, "output_type": "np"} | options
    return pipe(prompts, **options).images


def test_options_of_a_call_hold_for_that_call(guided):
    draw(guided, diversity_scale=0.5, diversity_objective="rke", diversity_every=1)
    assert guided.guidance.settings == Rounds()
    draw(guided, diversity=1)
    assert guided.guidance.settings == Rounds()
    draw(guided, diversity_window=2)  # prompts were remembered, though "rke" did not look at them
    assert guided.guidance.window.size == len(guided.guidance.window) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"diversity": 0.9},
        {"diversity_preset": "published"},
        {"diversity_objective": "rke"},
        {"diversity_scale": 0.1},
        {"diversity_rounds": 2},
        {"diversity_level": 0.05},
        {"diversity_cfg": 0.0},
        {"diversity_space": "latent"},
        {"diversity_sigma_latent": 0.2},
        {"diversity_sigma_prompt": 5.0},
        {"diversity_truncation": 1},
    ],
    ids=str,
)
def test_every_option_has_an_effect(guided, options):
    usual = draw(guided)
    guided.guidance.window.clear()
    images = draw(guided, **options)
    assert np.isfinite(images).all() and not np.array_equal(images, usual)


def test_a_session_remembers_and_a_call_does_not(guided):
    first = draw(guided)
    assert not np.array_equal(draw(guided), first)
    draw(guided, diversity_memory="call")
    assert len(guided.guidance.window) == 6 and guided.guidance.keeps == "session"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("diversty", "diversity"),
        ("diversity_scal", "diversity_scale"),
        ("guidance_scal", "guidance_scale"),
    ],
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
    users, pipe = Keep(), guided if form == "class" else stock
    if form == "MultiPipelineCallbacks":
        users = MultiPipelineCallbacks([users])
    key = "callback_on_step_end"
    given = {key: users} if form == "class" else VendiGuidance().on(stock, callback=users)
    images = draw(pipe, **given, output_type="latent")
    assert not torch.equal(kept[-1], plain[-1])  # guided, before the user's came
    assert len(kept) == 4 and not images.any()


def test_latents_left_to_a_refiner_are_not_remembered(guided):
    draw(guided, denoising_end=0.5, output_type="latent")
    assert len(guided.guidance.window) == 0
    draw(guided, denoising_end=1.0, output_type="latent")
    assert len(guided.guidance.window) == 3


def test_each_image_size_has_a_memory_of_its_own_that_is_saved_with_the_others(guided, tmp_path):
    def of_size(size):
        return draw(guided, height=size, width=size)

    first = of_size(16)
    large = of_size(32)
    window = guided.guidance.window
    assert window.shapes == [(4, 16, 16), (4, 8, 8)] and len(window) == 3
    fresh = VendiGuidance(prompt_input="add_text_embeds")
    guided.guidance, known = fresh, guided.guidance
    assert np.array_equal(of_size(32), large)  # what is remembered of another size has no effect
    window.save(tmp_path / "window")
    guided.guidance = VendiGuidance(
        prompt_input="add_text_embeds", window=SlidingWindow.load(tmp_path / "window")
    )
    again = of_size(16)
    guided.guidance = known
    assert np.allclose(of_size(16), again, atol=1e-4) and not np.allclose(again, first, atol=1e-3)


@pytest.mark.parametrize("size", [None, 2, 5])
def test_a_call_that_fails_while_decoding_leaves_the_window_as_it_was(guided, monkeypatch, size):
    draw(guided)
    window = guided.guidance.window
    before = window.features.clone()

    def fail(*args, **kwargs):
        raise RuntimeError("out of memory")

    options = {} if size is None else {"diversity_window": size}
    with monkeypatch.context() as inner, pytest.raises(RuntimeError, match="out of memory"):
        inner.setattr(guided.vae, "decode", fail)
        draw(guided, seed=5, **options)
    assert window.size == 300 and torch.equal(window.features, before)
    draw(guided, seed=5)
    assert len(window) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diversity_scale": -1.0}, "^diversity_scale must be .* got -1.0"),
        ({"diversity_level": -1}, "^diversity_level must be .* got -1"),
        ({"diversity_every": 0}, "every must be .* got 0"),
        ({"diversity_window": 0}, "^diversity_window must be .* got 0"),
        ({"diversity_objective": "x"}, "objective must be .* got 'x'"),
        ({"diversity_memory": "x"}, "^diversity_memory must be one of session, call, got 'x'"),
        ({"diversity_undistilled": "x"}, '^diversity_undistilled must be "adapters" or a network'),
        ({"diversity": 1.1}, "^diversity must be between 0, .* got 1.1"),
        ({"diversity": "high"}, "^diversity must be between 0, .* got 'high'"),
        ({"diversity": 0.5, "diversity_preset": "published"}, "^diversity_preset .* got diversity"),
    ],
)
def test_a_bad_option_of_a_call_is_named_and_changes_nothing(guided, options, message):
    draw(guided)
    with pytest.raises(ValueError, match=message):
        draw(guided, **options)
    assert len(guided.guidance.window) == 3
    assert guided.guidance.settings == Rounds() and guided.guidance.keeps == "session"
    assert "step" not in vars(guided.scheduler) and "forward" not in vars(guided.unet)
