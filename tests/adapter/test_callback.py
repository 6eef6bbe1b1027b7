"""The callback by itself, on a pipeline that only counts steps."""

import logging
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import diffusers
import pytest
import torch

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.settings import Published
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.scores.bandwidth import median_distance

STEPS = 20

published = partial(VendiGuidance, preset="published")


def pipeline(steps=STEPS):
    return SimpleNamespace(num_timesteps=steps, scheduler=SimpleNamespace())


def batch(count=3, seed=0, dtype=torch.float32):
    """Latents, and embeddings of prompts of 5 tokens each."""
    r = torch.Generator().manual_seed(seed)
    return (
        (4 * torch.randn(count, 4, 8, 8, generator=r)).to(dtype),
        torch.randn(count, 5, 6, generator=r).to(dtype),
    )


def denoise(guidance, latents, prompts, steps=STEPS, at=None):
    """Run the callback through all steps (or the given one), the sampler doing nothing."""
    for index in range(steps) if at is None else [at]:
        given = {"latents": latents, "prompt_embeds": prompts}
        latents = guidance(pipeline(steps), index, index, given)["latents"]
    return latents


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("broken", ["latents", "prompts"])
@pytest.mark.parametrize("objective", ["conditional-rke", "conditional-vendi"])
def test_broken_samples_are_skipped_counted_and_warned_about_once(value, broken, objective, caplog):
    guidance = published(objective=objective, every=5)
    latents, prompts = batch(3)
    (latents if broken == "latents" else prompts)[1, 0, 0] = value
    with caplog.at_level(logging.WARNING):
        moved = denoise(guidance, latents, prompts)
        denoise(guidance, latents, prompts)
    assert torch.equal(moved.nan_to_num(), latents.nan_to_num())
    assert guidance.skipped > 0
    assert sum("NaN or infinity" in message for message in caplog.messages) == 1
    assert len(guidance.window) == 4  # twice the two sound ones
    assert torch.isfinite(guidance.window.features).all()
    assert torch.isfinite(guidance.window.prompts).all()


nan, inf = float("nan"), float("inf")
BAD = {
    "diversity": ("between 0 and 1", -0.1, 1.1, nan, "high", None),
    "scale": ("", -0.1, nan, inf, None),
    "every": ("", 0, 2.5, None),
    "window": ("", 0, -3, 2.5),
    "truncation": ("", 0),
    "sigma_latent": ("", 0.0),
    "sigma_prompt": ("", -1.0),
    "rounds": ("a whole number of at least 1", 0, 1.5),
    "level": ("finite and greater than 0", 0, inf, nan, None),
    "cfg": ("between 0 and 1", -0.1, 1.5, nan, None),
    "beta": ("", -0.1, nan),
    "proposal": ("one of gradient, prompt", "back"),
    "objective": ("", "conditional-vendy", None),
    "memory": ("one of session, call", "forever"),
    "space": ("one of latent, denoised", "pixel", None),
    "preset": ("one of published", "best"),
}
"""Of each option: what it must be, and values that it is not."""


@pytest.mark.parametrize(
    ("name", "wanted", "value"),
    [(name, wanted, value) for name, (wanted, *values) in BAD.items() for value in values],
)
def test_a_value_out_of_range_is_named(name, wanted, value):
    with pytest.raises(ValueError, match=f"^{name} must be {wanted}.*, got {value!r}"):
        VendiGuidance(Published() if name in ("scale", "every") else None, **{name: value})


@pytest.mark.parametrize(
    ("exemplars", "message"),
    [
        ([[0.5, 0.5]], "exemplars must be a tensor .* got no tensor"),
        (torch.empty(0, 4), r"exemplars must .* got shape \(0, 4\)"),
        (torch.full((1, 4), nan), "exemplars hold NaN"),
        (torch.ones(2, 5, 3), r"exemplars of shape \(5, 3\) .* exemplar_features"),
    ],
)
def test_exemplars_that_do_not_fit_are_refused(exemplars, message):
    with pytest.raises(ValueError, match=message):
        denoise(published(objective="rke", exemplars=exemplars), *batch(2), at=0)


@pytest.mark.parametrize("wrong", [None, "sdxl", 3, diffusers.StableDiffusionXLPipeline])
def test_what_is_no_pipeline_is_named(wrong):
    with pytest.raises(TypeError, match=r"needs the diffusers pipeline .*, got [N'3<]"):
        published().on(wrong)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (1, "it has one step, after which nothing is left to guide: use more steps"),
        (0, "the pipeline did not call its callback"),
    ],
)
def test_a_call_without_one_guided_step_says_so_once(caplog, steps, reason):
    guidance = published()
    for _ in range(2):
        with guidance.attached(pipeline()):
            denoise(guidance, *batch(2), steps=steps)
    assert caplog.messages == [f"no step of this call was guided: {reason}"]


def bandwidth_for(prompts):
    return 0.3 * median_distance(unit_rows(prompts.mean(dim=1)))


SEVERAL = batch(6)[1]


@pytest.mark.parametrize(
    ("prompts", "sigma"),
    [
        (SEVERAL, bandwidth_for(SEVERAL)),
        (SEVERAL[[0, 0, 0, 1]], bandwidth_for(SEVERAL[:2])),  # the same prompt again counts once
        (SEVERAL[[0, 0, 0, 0]], 0.3),  # one alone gets the published bandwidth
    ],
)
def test_an_unknown_prompt_bandwidth_is_a_share_of_the_median_distance(prompts, sigma):
    guidance, expected = published(scale=0.3), published(scale=0.3, sigma_prompt=sigma)
    latents = batch(len(prompts))[0]
    steps = [denoise(each, latents, prompts, at=0) for each in (guidance, expected)]
    torch.testing.assert_close(*steps, rtol=1e-3, atol=1e-3)
    assert guidance.sigma_prompt is None  # too few to settle
    assert expected.sigma_prompt == sigma


def test_the_bandwidth_settles_at_ten_prompts_of_this_call_and_earlier_ones():
    guidance = published(every=1)
    prompts = batch(16)[1]
    denoise(guidance, batch(6)[0], prompts[:6])
    assert guidance.sigma_prompt is None
    denoise(guidance, batch(4)[0], prompts[6:10], at=0)
    settled = guidance.sigma_prompt
    assert settled == pytest.approx(bandwidth_for(prompts[:10]), rel=1e-3)
    denoise(guidance, batch(6)[0], 10 + prompts[10:])
    assert guidance.sigma_prompt == settled


@pytest.mark.parametrize("objective", ["conditional-rke", "rke", "conditional-vendi", "vendi"])
def test_a_step_turns_by_its_scale_along_the_score_less_the_share_of_exemplars(objective):
    r = torch.Generator().manual_seed(0)
    z, exemplars = (torch.randn(n, 2, 2, 2, generator=r, dtype=torch.float64) for n in (2, 3))
    prompts = batch(2, dtype=torch.float64)[1]
    options = {"scale": 0.1, "every": 1, "sigma_prompt": 0.5}
    guidance = published(objective=objective, exemplars=exemplars, beta=0.7, **options)
    built = guidance.settings.build_objective(0.5)
    others = SlidingWindow(3, dtype=torch.float64)
    others.append(exemplars)

    alone = replace(built, kernel_prompt=None).gradient(z, None, others).gradient
    gradient = built.gradient(z, prompts.mean(dim=1), SlidingWindow(3)).gradient - 0.7 * alone
    inputs = {"latents": z, "prompt_embeds": prompts}
    moved = guidance(pipeline(), 0, 0, inputs)["latents"].flatten(1)
    z, gradient = z.flatten(1), gradient.flatten(1)
    expected = unit_rows(unit_rows(z) + 0.1 * unit_rows(gradient)) * z.norm(dim=1, keepdim=True)
    torch.testing.assert_close(moved, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("objective", ["rke", "conditional-rke"])
def test_a_step_of_the_rke_pair_waits_for_no_device_wherever_its_window_is(objective, dtype):
    # nothing can be read from this device, so whatever would make a CPU wait for a GPU raises
    window = SlidingWindow(9, dtype=torch.float16, device="cpu")
    latents, prompts = batch(4)
    window.append(latents, None if objective == "rke" else prompts.mean(dim=1))
    guidance = published(objective=objective, sigma_prompt=0.3, window=window)
    latents, prompts = (x.to("meta") for x in batch(3, dtype=dtype))
    for _ in range(2):
        moved = denoise(guidance, latents, prompts, at=0)
        assert (moved.device.type, moved.shape) == ("meta", latents.shape)
        assert moved.dtype == dtype
