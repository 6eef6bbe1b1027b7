"""The undistilled network makes the rounds, the pipeline's own with its LoRA the rest."""

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import accelerate
import pytest
import torch
from peft import LoraConfig
from peft.tuners.tuners_utils import BaseTunerLayer

from tests.adapter.test_call import sharing
from tests.adapter.test_denoiser import watching
from tests.helpers import tiny_unets as unet
from tests.helpers.tiny_pipelines import CASES, evaluations
from vendi_guidance import Published, VendiGuidance
from vendi_guidance.adapter import denoiser
from vendi_guidance.guidance import choose

LATENTS = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(3))


def base(name="SDXL"):
    return CASES[name].make()


def distilled(*names, weight=0.5):
    """The base pipeline with LoRAs of random weights, the last one active at this weight."""
    pipe = base()
    config = LoraConfig(r=2, target_modules=["to_q", "to_k"], init_lora_weights=False)
    for seed, name in enumerate(names or ["lightning"]):
        torch.manual_seed(seed)
        pipe.unet.add_adapter(config, name)
    pipe.unet.set_adapters([name], [weight])
    return pipe


def draw(pipe, at_step=lambda index: None, guide=None, **changes):
    """Latents of a call of 4 steps; `at_step(index)` after each."""

    def callback(pipe, index, timestep, tensors):
        at_step(index)
        return tensors

    given = {"callback_on_step_end": callback} if guide is None else guide(callback)
    given |= {"num_inference_steps": 4, **changes}
    return pipe(**CASES["SDXL"].arguments([0, 1]) | given)[0]


def predictions(pipe, undistilled=None):
    """At each step, what the rounds would be told; and the call's latents."""
    found = []
    with watching(pipe, undistilled=undistilled) as (network, _):
        latents = draw(pipe, lambda index: found.append(network.denoise(LATENTS)))
    return found, latents


def state(pipe):
    """What a call may not leave changed."""
    layers = [it for it in pipe.unet.modules() if isinstance(it, BaseTunerLayer)]
    weights = [(name, it.requires_grad) for name, it in pipe.unet.named_parameters()]
    about = [(it.disable_adapters, it.active_adapters, dict(it.scaling)) for it in layers]
    return about, weights, [*vars(pipe.unet)], [*vars(pipe.scheduler)]


def compiled_in_place(pipe):
    pipe.unet.compile(backend="eager", fullgraph=True)


def compiled(pipe):
    pipe.unet = torch.compile(pipe.unet, backend="eager")


def offloaded(pipe):
    accelerate.cpu_offload(pipe.unet, pipe.device)


@pytest.mark.parametrize("change", [lambda pipe: None, compiled_in_place, compiled, offloaded])
@pytest.mark.parametrize("undistilled", ["adapters", "module"])
def test_the_rounds_are_told_what_the_undistilled_network_predicts(undistilled, change):
    expected, _ = predictions(base())
    with_lora, stock = predictions(distilled())
    assert not torch.allclose(expected[1], with_lora[1], rtol=1e-3)
    pipe, other = distilled(), base()
    change(pipe)
    change(other)
    before = dict(vars(pipe.unet))
    found, latents = predictions(pipe, other.unet if undistilled == "module" else undistilled)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(latents, stock)
    assert vars(pipe.unet) == before


@pytest.mark.parametrize("undistilled", ["adapters", "module"])
def test_with_cfg_the_undistilled_network_makes_the_first_step(undistilled):
    pipe, other, number = distilled(), base().unet, count()
    given = undistilled if undistilled == "adapters" else other
    with watching(pipe, undistilled=given):
        latents = draw(pipe, guidance_scale=5.0)
    own = pipe.unet.forward
    pipe.unet.forward = lambda *args, **kwargs: (own if next(number) else other)(*args, **kwargs)
    torch.testing.assert_close(latents, draw(pipe, guidance_scale=5.0))


@pytest.mark.parametrize("phase", ["first step", "rounds", "last step", "decoder"])
@pytest.mark.parametrize("undistilled", ["adapters", "module"])
def test_an_error_in_any_phase_leaves_all_as_it_was(undistilled, phase, monkeypatch):
    pipe, other = distilled("style", "lightning"), base().unet
    pipe.unet.requires_grad_(False)
    stock, before = draw(pipe), state(pipe)
    given = "adapters" if undistilled == "adapters" else other
    told, steps = [], []

    def reached(here):
        if phase == here:
            raise KeyboardInterrupt

    def in_rounds(*_):
        if given is other or state(pipe)[0][0][0]:
            told.append(len(steps))
            reached("rounds")

    def at_step(index):
        steps.append(index)
        reached({0: "first step", 3: "last step"}.get(index))

    observed = other if given is other else pipe.unet.mid_block
    hook = observed.register_forward_hook(in_rounds)
    guidance = VendiGuidance(rounds=2, level=0.02)
    pipe.register_modules(vae=unet.vae().to(pipe.device))
    monkeypatch.setattr(pipe.vae, "decode", lambda *_, **__: reached("decoder"))

    def guided(callback):
        return stack.enter_context(guidance.attached(pipe, undistilled=given, callback=callback))

    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        draw(pipe, at_step, guided, output_type="pil" if phase == "decoder" else "latent")
    hook.remove()
    assert bool(told) == (phase != "first step") and 0 not in told
    assert state(pipe) == before and guidance.undistilled == "auto"
    assert len(guidance.window) == 0
    assert torch.equal(draw(pipe), stock)


def test_another_threads_call_of_a_network_whose_loras_are_switched_off_is_refused():
    pipe = distilled()
    other, guidance = sharing(pipe), VendiGuidance(undistilled="adapters")
    given = CASES["SDXL"].arguments([0, 1])  # on a device that threads do not know

    def meanwhile(*_):
        with ThreadPoolExecutor(1) as pool:
            errors.append(pool.submit(other, **given).exception())
        return {}

    errors = []
    assert torch.equal(
        draw(pipe, guide=lambda _: guidance.on(pipe, callback=meanwhile)),
        draw(pipe, guide=lambda _: VendiGuidance(undistilled="adapters").on(pipe)),
    )
    assert "give each thread a network" in str(errors[0]) and errors[-1] is None


def fused():
    pipe = distilled()
    pipe.fuse_lora()
    return pipe


def fused_and_unloaded():
    pipe = fused()
    pipe.unload_lora_weights()
    return pipe


def off(pipe):
    pipe.unet.disable_adapters()
    return pipe


def refused(guidance, pipe, message):
    before = vars(pipe.scheduler).keys() | vars(pipe.unet).keys()
    with pytest.raises(ValueError, match=message):
        guidance.on(pipe)
    assert vars(pipe.scheduler).keys() | vars(pipe.unet).keys() == before


@pytest.mark.parametrize(
    ("pipe", "undistilled", "message"),
    [
        (base, "adapters", r"StableDiffusionXLPipeline has none loaded: load one, by pipe"),
        (fused, "adapters", r"fused into the weights, lightning: call pipe.unfuse_lora\(\)"),
        (fused_and_unloaded, "adapters", "fused into the weights, lightning"),
        (base, lambda: base("SD 1.5").unet, "undistilled has cross_attention_dim|addition_embed"),
        (base, lambda: base("SD3").transformer, "is a SD3Transformer2DModel, and .* UNet2DCond"),
        (
            base,
            lambda: unet.unet(in_channels=8, **unet.XL),
            "undistilled has in_channels 8 and the pipeline's network 4",
        ),
    ],
)
def test_what_cannot_make_the_rounds_is_refused_before_the_call(pipe, undistilled, message):
    given = undistilled if isinstance(undistilled, str) else undistilled()
    refused(VendiGuidance(undistilled=given), pipe(), message)


def test_other_values_are_refused():
    wanted = '^undistilled must be "auto", "adapters", None or a network, .* got '
    for value in ("a/b", 3):
        with pytest.raises(ValueError, match=f"{wanted}{value!r}"):
            VendiGuidance(undistilled=value)
    pipe, published = distilled(), VendiGuidance(Published(), undistilled="adapters")
    refused(VendiGuidance(undistilled=pipe.unet), pipe, "is the pipeline's own network")
    refused(published, pipe, "guidance as published makes none")
    VendiGuidance(diversity=0, undistilled="adapters").on(base())  # does nothing


def guided(pipe, undistilled, **changes):
    """Latents of a guided call, and how many rows of latents its network was given."""
    guidance = VendiGuidance(undistilled=undistilled)
    with evaluations(pipe.unet) as rows:
        latents = draw(pipe, guide=lambda callback: guidance.on(pipe, callback=callback), **changes)
    return latents, sum(rows)


@pytest.mark.parametrize(
    ("share", "same_as"), [(math.inf, "adapters"), (0.0, None), (math.nan, None)]
)
def test_auto_turns_loras_off_if_predictions_blur_without_them(share, same_as, monkeypatch, caplog):
    monkeypatch.setattr(denoiser, "BLURRED", share)
    monkeypatch.setattr(choose, "VARIED", math.inf)
    pipe = distilled()
    before = state(pipe)
    with caplog.at_level("INFO", "vendi_guidance"):
        latents, rows = guided(pipe, "auto")
    way = "guided in rounds" if same_as else "guided by a perturbed prompt"
    assert caplog.messages[0].startswith(f"{way}: ")
    expected, usual = guided(pipe, same_as)
    assert torch.equal(latents, expected) and rows == usual + 1
    assert state(pipe) == before


ELSEWHERE = {
    "CFG": (distilled, {"guidance_scale": 5.0}),
    "many steps": (distilled, {"num_inference_steps": 10}),
    "one step": (distilled, {"num_inference_steps": 1}),
    "weight 0": (lambda: distilled(weight=0.0), {}),
    "switched off": (lambda: off(distilled()), {}),
    "fused": (fused, {}),
    "unloaded": (fused_and_unloaded, {}),
    "no LoRA": (base, {}),
}


@pytest.mark.parametrize(("make", "changes"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_auto_is_the_pipelines_own_network_elsewhere(make, changes, monkeypatch):
    monkeypatch.setattr(denoiser, "BLURRED", 0.999)
    pipe = make()
    before = state(pipe)
    found = [guided(pipe, undistilled, **changes)[0] for undistilled in ("auto", None)]
    assert torch.equal(*found) and state(pipe) == before
