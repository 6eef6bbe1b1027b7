"""The callback on tiny pipelines of nearly every kind that diffusers has."""

from contextlib import nullcontext
from functools import partial
from itertools import product

import diffusers
import pytest
import torch

from tests.adapter.test_denoiser import PROMPTS, module_of, pipeline
from tests.adapter.test_mixins import make
from tests.helpers.tiny_pipelines import CASES, evaluations
from tests.helpers.tiny_unets import stable_diffusion_xl_pag
from vendi_guidance.adapter import cfg
from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.prompts import prompt_inputs
from vendi_guidance.guidance.samples import unit_rows

CFG = [False, True]
published = partial(VendiGuidance, preset="published", every=1)
IN_PLACE = [name for name, case in CASES.items() if not case.callback]  # need guided classes
WITHOUT_PROMPTS = ["Kandinsky 2.2"]  # its prior has read them
WITH_PROMPTS = [name for name in CASES if name not in WITHOUT_PROMPTS]
WITH_SEVERAL_PICTURES = [name for name in WITH_PROMPTS if CASES[name].per_prompt]
UNKNOWN_SCHEDULER = ["CogVideoX"]
RETURNS_OTHER_LATENTS = ["Flux 2 Klein"]  # in the units of its VAE

# They hand a diffusers callback only what the call asks for, whatever the callback asks for.
DEAF = ["Flux", "Chroma", "AuraFlow", "Lumina", "Lumina2", "Qwen-Image", "Z-Image", "AnimateDiff"]
DEAF += ["Qwen-Image 2.1", "Krea 2", "Flux 2", "Flux 2 Klein", "Ovis-Image"]


def latents_of(name, guidance=None, pipe=None, **how):
    """Of a call with `guidance.on`, of a guided class, or of the stock pipeline."""
    pipe, given = pipe or pipeline(name), {}
    if guidance is not None and name in IN_PLACE:
        pipe = make(name)
        pipe.guidance = guidance
    elif guidance is not None:
        given = guidance.on(pipe)
    return pipe(**CASES[name].arguments(PROMPTS, **how), **given)[0]


def guidance_for(name, scale=0.3):
    return published(objective="rke" if name in WITHOUT_PROMPTS else "conditional-rke", scale=scale)


def means_of_tokens(name, mask):
    """Over the tokens that the mask shows."""
    given = CASES[name].embeddings(PROMPTS)
    pairs = zip(given["prompt_embeds"], given[mask], strict=True)
    return torch.stack([tokens[shown].flatten(1).mean(dim=0) for tokens, shown in pairs])


def given_features(name):
    """What tells prompts apart in the embeddings that the pipeline is called with."""
    if name in IN_PLACE:
        return means_of_tokens(name, "prompt_attention_mask")
    argument = prompt_inputs(pipeline(name))[0].replace("add_text_embeds", "pooled_prompt_embeds")
    rows = CASES[name].embeddings(PROMPTS)[argument]
    return torch.stack([row if row.ndim == 1 else row.flatten(1).mean(dim=0) for row in rows])


def same_rows(a, b):
    return a.shape == b.shape and torch.allclose(unit_rows(a), unit_rows(b), atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_guidance_changes_what_comes_out_and_none_changes_nothing(name):
    plain, guided = latents_of(name), latents_of(name, guidance_for(name))
    assert torch.equal(plain, latents_of(name, guidance_for(name, scale=0)))
    if name in UNKNOWN_SCHEDULER:
        with pytest.raises(ValueError, match='DDIMScheduler: use preset="published"'):
            VendiGuidance().on(pipeline(name))
    elif name in WITH_PROMPTS:
        guidance = VendiGuidance(proposal="gradient")
        latents_of(name, guidance)
        by_rounds = latents_of(name, guidance)
        assert by_rounds.isfinite().all() and not torch.allclose(by_rounds, plain, atol=1e-3)
        assert torch.equal(plain, latents_of(name, VendiGuidance(diversity=0)))
    else:
        with pytest.raises(ValueError, match='use objective "rke" or "vendi"'):
            latents_of(name, published())
    assert guided.shape == plain.shape and guided.isfinite().all()
    assert not torch.allclose(guided, plain, atol=1e-3)


@pytest.mark.parametrize(("name", "guided"), [*product(CASES, CFG)])
def test_every_picture_enters_the_window_after_its_last_step_with_its_prompt(name, guided):
    guidance = guidance_for(name)
    for calls in (1, 2):
        final = latents_of(name, guidance, guided=guided)
        assert len(guidance.window) == len(PROMPTS) * calls
    window = guidance.window
    assert window.latent_shape == CASES[name].latent
    if name not in RETURNS_OTHER_LATENTS:
        assert same_rows(window.features[-len(PROMPTS) :], final.flatten(1))
    if name in WITH_PROMPTS:
        assert same_rows(window.prompts, given_features(name).repeat(2, 1))


@pytest.mark.parametrize(("name", "guided"), [*product(WITH_SEVERAL_PICTURES, CFG)])
def test_pictures_of_a_prompt_enter_it_next_to_one_another(name, guided):
    text, guidance = not CASES[name].repeats, guidance_for(name)
    latents_of(name, guidance, text=text)
    single = guidance.window.prompts.clone()
    assert not torch.allclose(*single)
    latents_of(name, guidance, guided=guided, images=2, text=text)
    assert same_rows(guidance.window.prompts[len(PROMPTS) :], single.repeat_interleave(2, dim=0))


@pytest.mark.parametrize("name", [name for name in WITH_PROMPTS if name not in IN_PLACE])
def test_a_plain_callback_gets_what_it_needs_or_the_call_must_say_it(name):
    pipe = pipeline(name)
    [best, *_] = prompt_inputs(pipe)
    message = rf"{best}.* call it with \*\*guidance.on\(pipe\)"
    guidance = published(prompt_input=None if name in DEAF else best)
    with pytest.raises(ValueError, match=message) if name in DEAF else nullcontext():
        pipe(**CASES[name].arguments(PROMPTS), callback_on_step_end=guidance)
        assert same_rows(guidance.window.prompts, given_features(name))


@pytest.mark.parametrize(
    ("name", "guided", "rows"),
    [("SDXL img2img", True, [4]), ("SDXL img2img", False, [2, 2, 2]), ("SD3", True, [4])],
)
def test_one_step_is_guided_unless_with_cfg_from_low_or_pure_noise(name, guided, rows, caplog):
    one = {"num_inference_steps": 2, "strength": 0.5} if "img2img" in name else {}
    pipe, found = pipeline(name), []
    for guidance in (VendiGuidance(diversity=0), VendiGuidance()):
        given = CASES[name].arguments(PROMPTS, guided=guided) | {"num_inference_steps": 1} | one
        with evaluations(module_of(pipe)) as seen:
            found.append(pipe(**given, **guidance.on(pipe))[0])
    assert seen == rows and torch.equal(*found) == (rows == [4])
    assert ("raise strength" in caplog.text) == (rows == [4] and "img2img" in name)


class Wrapper(torch.nn.Module):
    """As a `PeftModel` is, which passes any arguments on."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        inner = super().__getattr__("inner")
        return inner if name == "inner" else getattr(inner, name)

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class Renaming(Wrapper):
    """As in diffusers' recipe for tracing."""

    def forward(self, latent_model_input, t, encoder_hidden_states, **kwargs):
        return self.inner(latent_model_input, t, encoder_hidden_states, **kwargs)


COMPILE = partial(torch.compile, backend="eager")


@pytest.mark.parametrize(
    ("name", "network", "wrap"),
    [
        *product(["SDXL"], ["unet"], [COMPILE, Wrapper, Renaming]),
        *product(["SD3"], ["transformer"], [COMPILE, Wrapper]),
    ],
)
def test_a_wrapped_network_is_guided_as_it_is_without(name, network, wrap):
    pipe, guidance = CASES[name].make(), VendiGuidance(memory="call", proposal="gradient")
    expected = latents_of(name, guidance, pipe)
    setattr(pipe, network, wrap(getattr(pipe, network)))
    torch.testing.assert_close(latents_of(name, guidance, pipe), expected)


class Halves:
    """A processor that treats the halves of CFG itself, as StyleAligned and prompt-to-prompt do."""

    def __init__(self, inner, seen):
        self.inner, self.seen = inner, seen

    def __call__(self, attn, hidden_states, *args, **kwargs):
        first, second = hidden_states.chunk(2)
        self.seen.append((len(first), len(second)))
        return self.inner(attn, hidden_states, *args, **kwargs)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["SDXL", "SD3", "Sana"])
def test_a_users_processor_always_sees_both_halves_of_cfg(name, count, caplog):
    cfg.say_rows_are_kept.cache_clear()  # said once
    pipe, seen = CASES[name].make(), []
    for layer in module_of(pipe).modules():
        if hasattr(layer, "processor"):
            layer.processor = Halves(layer.processor, seen)

    def latents(pipe):
        given = CASES[name].arguments([0] * count, guided=True) | {"num_inference_steps": 12}
        return pipe(**given, **VendiGuidance(proposal="gradient").on(pipe))[0]

    found = latents(pipe)
    assert set(seen) == {(count, count)} and "Halves may compare rows of a batch" in caplog.text
    torch.testing.assert_close(found, latents(CASES[name].make()), rtol=1e-3, atol=1e-3)


CACHES = [
    diffusers.FirstBlockCacheConfig(threshold=0.1),
    diffusers.TaylorSeerCacheConfig(),
    diffusers.MagCacheConfig(num_inference_steps=3, mag_ratios=torch.ones(3)),
    diffusers.PyramidAttentionBroadcastConfig(
        spatial_attention_block_skip_range=2, current_timestep_callback=lambda: 500
    ),
]


@pytest.mark.parametrize("config", CACHES, ids=lambda config: type(config).__name__)
def test_a_cache_between_steps_is_refused_where_the_network_would_be_asked_and_else_works(config):
    pipe, case = CASES["Flux"].make(), CASES["Flux"]
    pipe.transformer.enable_cache(config)
    with pytest.raises(ValueError, match=r"has a cache between steps .* disable_cache\(\)"):
        VendiGuidance().on(pipe)
    stock = pipe(**case.arguments(PROMPTS))[0]
    off = VendiGuidance(diversity=0).on(pipe)
    assert torch.equal(pipe(**case.arguments(PROMPTS), **off)[0], stock)
    found = pipe(**case.arguments(PROMPTS), **published(scale=0.3).on(pipe))[0]
    assert found.isfinite().all() and not torch.allclose(found, stock)
    pipe.transformer.disable_cache()
    assert pipe(**case.arguments(PROMPTS), **VendiGuidance().on(pipe))[0].isfinite().all()


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize("same", [[0, 1, 2], [2], []])
@pytest.mark.parametrize(("name", "diversity"), [("SDXL", 0.25), ("Sana", 1.0)])
def test_samples_are_guided_too_whose_prompt_is_the_negative_prompt(name, diversity, same):
    pipe, found = pipeline(name), []
    given = CASES[name].arguments([0, 0, 1], guided=True)
    for argument in CASES[name].takes:
        given[f"negative_{argument}"][same] = given[argument][same]
    for dial in (0.0, diversity):
        guidance = VendiGuidance(diversity=dial, proposal="steps")
        given["generator"].manual_seed(0)
        found.append(pipe(**given, **guidance.on(pipe))[0])
    changes = (found[1] - found[0]).flatten(1).norm(dim=1) / found[0].flatten(1).norm(dim=1)
    assert (changes > 1e-3).all()


def test_copies_become_different_images_by_moves_too():
    pipe, found = pipeline("SDXL"), []
    for dial in (1e-9, 1.0):
        given = CASES["SDXL"].arguments([0, 0])
        given["generator"] = [torch.Generator().manual_seed(0) for _ in range(2)]
        guidance = VendiGuidance(diversity=dial, proposal="gradient", rounds=2)
        found.append(pipe(**given, **guidance.on(pipe))[0])
    assert not torch.allclose(*found, atol=1e-2)


@pytest.mark.usefixtures("far_target")
def test_one_image_and_none_remembered_is_as_without_guidance_which_is_said(caplog):
    pipe, guidance = pipeline("SDXL"), VendiGuidance(proposal="steps")
    given = CASES["SDXL"].arguments([0], guided=True)
    for seed, said in ((0, "not guided: there is no other"), (1, "guided at its own steps")):
        found = []
        with caplog.at_level("INFO"):
            for each in (VendiGuidance(diversity=0), guidance):
                given["generator"].manual_seed(seed)
                found.append(pipe(**given, **each.on(pipe))[0])
        assert torch.equal(*found) == (seed == 0) and caplog.messages[-1].startswith(said)


@pytest.mark.parametrize(
    ("guided", "steps", "strength", "said"),
    [
        (False, 1, 1.0, "rounds cannot follow its last step"),
        (False, 2, 0.5, "rounds cannot follow its last step"),
        (True, 6, 0.7, "raise strength"),
        (False, 2, 1.0, None),
    ],
)
def test_what_a_mask_keeps_stays_and_what_is_not_guided_is_said_once(
    guided, steps, strength, said, caplog
):
    pipe, found, case = pipeline("SDXL inpaint"), [], CASES["SDXL inpaint"]
    given = {"num_inference_steps": steps, "strength": strength}
    with caplog.at_level("INFO"):
        for guidance in (VendiGuidance(diversity=0), VendiGuidance()):
            given = case.arguments([0, 0, 1], guided=guided) | given
            given["generator"].manual_seed(0)
            found.append(pipe(**given, **guidance.on(pipe))[0])
    change = (found[1] - found[0]).abs()
    kept = torch.nn.functional.interpolate(case.fixed["mask_image"], change.shape[2:]) < 0.5
    assert change[kept.expand_as(change)].max() == 0
    assert (change.max() == 0) == (said is not None)
    if said is not None:
        assert [said in it for it in caplog.messages] == [True, True]
        assert [it.levelname for it in caplog.records] == ["INFO", "WARNING"]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_pipeline_that_returns_its_prediction_is_guided_before_its_last_step(steps, caplog):
    parts = pipeline("SD 1.5").components
    network = diffusers.UNet2DConditionModel(**parts["unet"].config | {"time_cond_proj_dim": 8})
    parts = parts | {"unet": network, "scheduler": diffusers.LCMScheduler()}
    pipe = diffusers.LatentConsistencyModelPipeline(**parts, requires_safety_checker=False)
    found, given = [], {"num_inference_steps": steps, "guidance_scale": 3.0}
    for guidance in (VendiGuidance(diversity=0), VendiGuidance()):
        given = CASES["SD 1.5"].arguments([0, 0, 1]) | given
        given["generator"].manual_seed(0)
        found.append(pipe(**given, **guidance.on(pipe))[0])
    assert torch.equal(*found) == (steps == 1)
    assert ("rounds cannot follow its last step" in caplog.text) == (steps == 1)


def test_perturbed_attention_is_refused_unless_guidance_is_off():
    pipe, case = stable_diffusion_xl_pag(), CASES["SDXL"]
    for refused in (VendiGuidance(), published()):
        with pytest.raises(ValueError, match=r"XLPAGPipeline perturbs .* use StableDiffusionXLP"):
            pipe(**case.arguments(PROMPTS), callback_on_step_end=refused)
    expected = pipe(**case.arguments(PROMPTS))[0]
    off = VendiGuidance(diversity=0).on(pipe)
    assert torch.equal(expected, pipe(**case.arguments(PROMPTS), **off)[0])
