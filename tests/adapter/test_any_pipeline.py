"""The callback on tiny pipelines of nearly every kind that diffusers has."""

import inspect
from functools import cache, partial
from itertools import product

import pytest
import torch

from tests.helpers.tiny_pipelines import CASES
from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.prompts import prompt_features, prompt_inputs
from vendi_guidance.guidance.samples import unit_rows

PROMPTS = [0, 1]
published = partial(VendiGuidance, preset="published")
WITH_CALLBACK = [name for name, case in CASES.items() if case.callback]
WITHOUT_PROMPTS = ["Kandinsky 2.2"]  # its prior has read them
WITH_PROMPTS = [name for name in WITH_CALLBACK if name not in WITHOUT_PROMPTS]
WITH_SEVERAL_PICTURES = [name for name in WITH_PROMPTS if CASES[name].per_prompt]

# They hand a diffusers callback only what the call asks for, whatever the callback asks for.
DEAF = [
    "Flux",
    "Chroma",
    "AuraFlow",
    "Lumina",
    "Lumina2",
    "Qwen-Image",
    "Z-Image",
    "AnimateDiff",
    "SDXL PAG",
    "Qwen-Image 2.1",
    "Krea 2",
    "Flux 2",
    "Flux 2 Klein",
    "Ovis-Image",
]

RETURNS_OTHER_LATENTS = ["Flux 2 Klein"]  # in the units of its VAE

# What stands in their denoising loops but is not offered to callbacks.
HIDDEN = {
    "Flux": "pooled_prompt_embeds",
    "Chroma": "prompt_attention_mask",
    "Sana": "prompt_attention_mask",
    "AuraFlow": "prompt_attention_mask",
    "Lumina2": "prompt_attention_mask",
    "HunyuanDiT": "prompt_attention_mask",
    "LTX": "prompt_attention_mask",
    "Qwen-Image": "prompt_embeds_mask",
    "Qwen-Image 2.1": "prompt_embeds_mask",
    "Krea 2": "prompt_embeds_mask",
}

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:diffusers.*")


@cache
def pipeline(name):
    return CASES[name].make()


def latents_of(name, callback=None, inputs=("latents",), pipe=None, **how):
    given = CASES[name].arguments(PROMPTS, **how)
    if callback is not None:
        given["callback_on_step_end"] = callback
        given["callback_on_step_end_tensor_inputs"] = list(inputs)
    return (pipe or pipeline(name))(**given)[0]


def guidance_for(name, scale=0.3):
    if name in WITHOUT_PROMPTS:
        return published("rke", scale, every=1)
    return published(scale=scale, every=1)


def guided_latents(name, guidance, **how):
    return pipeline(name)(**CASES[name].arguments(PROMPTS, **how), **guidance.on(pipeline(name)))[0]


def features_of(name, pipe=None, **how):
    """What prompts.py makes of what the pipeline's callback is given at the last step."""
    pipe = pipe or pipeline(name)
    seen = {}

    def remember(pipe, index, timestep, tensors):
        seen["features"] = prompt_features(pipe, tensors)
        return {}

    latents_of(name, remember, ["latents", *prompt_inputs(pipe)], pipe, **how)
    return seen["features"]


def given_features(name):
    """The same, of the embeddings the pipeline is called with."""
    argument = prompt_inputs(pipeline(name))[0].replace("add_text_embeds", "pooled_prompt_embeds")
    rows = CASES[name].embeddings(PROMPTS)[argument]
    return torch.stack([row if row.ndim == 1 else row.flatten(1).mean(dim=0) for row in rows])


def same_rows(a, b):
    return a.shape == b.shape and torch.allclose(unit_rows(a), unit_rows(b), atol=1e-5)


def with_and_without_cfg(names):
    return list(product(names, [False, True]))


@pytest.mark.parametrize("name", WITH_CALLBACK)
def test_guidance_changes_what_comes_out_and_scale_zero_does_not(name):
    plain = latents_of(name)
    assert torch.equal(plain, guided_latents(name, guidance_for(name, scale=0)))
    guided = guided_latents(name, guidance_for(name))
    assert guided.shape == plain.shape and guided.isfinite().all()
    assert not torch.allclose(guided, plain, atol=1e-3)


UNKNOWN_SCHEDULER = ["CogVideoX"]


@pytest.mark.parametrize("name", [name for name in WITH_CALLBACK if name not in WITHOUT_PROMPTS])
def test_so_do_the_default_settings_where_the_scheduler_is_known(name):
    guidance = VendiGuidance()
    if name in UNKNOWN_SCHEDULER:
        with pytest.raises(ValueError, match='DDIMScheduler: use preset="published"'):
            guidance.on(pipeline(name))
        return
    guided_latents(name, guidance)
    plain = guided_latents(name, VendiGuidance(scale=0))
    guided = guided_latents(name, guidance)
    assert guided.isfinite().all() and not torch.allclose(guided, plain, atol=1e-3)


@pytest.mark.parametrize(("name", "guided"), with_and_without_cfg(WITH_CALLBACK))
def test_every_picture_enters_the_window_after_its_last_step_with_its_prompt(name, guided):
    guidance = guidance_for(name)
    for calls in (1, 2):
        final = guided_latents(name, guidance, guided=guided)
        assert len(guidance.window) == len(PROMPTS) * calls
    window = guidance.window
    assert window.latent_shape == CASES[name].latent
    if name not in RETURNS_OTHER_LATENTS:
        assert same_rows(window.features[-len(PROMPTS) :], final.flatten(1))
    if name in WITH_PROMPTS:
        assert same_rows(window.prompts, given_features(name).repeat(2, 1))


@pytest.mark.parametrize("name", WITH_SEVERAL_PICTURES)
def test_so_does_every_picture_of_a_prompt(name):
    guidance = guidance_for(name)
    guided_latents(name, guidance, images=2, text=not CASES[name].repeats)
    assert len(guidance.window) == 2 * len(PROMPTS)


@pytest.mark.parametrize(("name", "guided"), with_and_without_cfg(WITH_SEVERAL_PICTURES))
def test_pictures_of_a_prompt_stand_next_to_one_another(name, guided):
    text = not CASES[name].repeats
    single = features_of(name, text=text)
    assert not torch.allclose(*single)
    features = features_of(name, guided=guided, images=2, text=text)
    assert same_rows(features, single.repeat_interleave(2, dim=0))


@pytest.mark.parametrize("name", [name for name in WITH_PROMPTS if name not in DEAF])
def test_most_pipelines_ask_a_diffusers_callback_what_it_needs(name):
    [best, *_] = prompt_inputs(pipeline(name))
    guidance = published(every=1, prompt_input=best)
    pipeline(name)(**CASES[name].arguments(PROMPTS), callback_on_step_end=guidance)
    assert same_rows(guidance.window.prompts, given_features(name))


@pytest.mark.parametrize("name", DEAF)
def test_for_the_others_the_call_must_say_it(name):
    asked = prompt_inputs(pipeline(name))[0]
    with pytest.raises(ValueError, match=rf"{asked}.* call it with \*\*guidance.on\(pipe\)"):
        latents_of(name, guidance_for(name))


@pytest.mark.parametrize("name", WITHOUT_PROMPTS)
def test_a_pipeline_without_prompts_says_so_to_a_conditional_objective(name):
    assert prompt_inputs(pipeline(name)) == []
    with pytest.raises(ValueError, match="prompt_embeds"):  # by diffusers
        latents_of(name, published(every=1), ["latents", "prompt_embeds"])
    with pytest.raises(ValueError, match='use objective "rke" or "vendi"'):
        latents_of(name, published(every=1).callback_fn)


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize(("name", "hidden"), HIDDEN.items())
def test_what_a_pipeline_does_not_offer_is_used_if_it_is_made_to(name, hidden, guided):
    pipe = CASES[name].make()
    pipe._callback_tensor_inputs = [*pipe._callback_tensor_inputs, hidden]
    embeddings = CASES[name].embeddings(PROMPTS)
    expected = embeddings[hidden]
    if "mask" in hidden:
        pairs = zip(embeddings["prompt_embeds"], embeddings[hidden], strict=True)
        expected = torch.stack([tokens[mask].flatten(1).mean(dim=0) for tokens, mask in pairs])
    assert same_rows(features_of(name, pipe, guided=guided), expected)


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITH_CALLBACK])
def test_a_pipeline_with_only_the_old_callback_is_left_to_a_pipeline_of_its_own(name):
    parameters = inspect.signature(pipeline(name).__call__).parameters
    assert "callback_on_step_end" not in parameters and "callback" in parameters
    assert latents_of(name, guided=True).shape == (len(PROMPTS), *CASES[name].latent)
