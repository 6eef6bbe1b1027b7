"""The methods we compare ours with, on a tiny random SDXL."""

import itertools
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    StableDiffusionXLPipeline,
)

from vendi_guidance.comparison.baselines import (
    LimitedInterval,
    ParticleGuidance,
    UndistilledFirst,
    repulsion,
)
from vendi_guidance.comparison.embedding_noise import CADS, SeedVariance
from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.comparison.selection import Select

STEPS = 10
SCALE = 3.0
PROMPTS = ["a cat", "a cat", "a dog"]

STRONG = [LimitedInterval(0.3, 0.7), CADS(), SeedVariance(3.0), ParticleGuidance(5.0)]
WEAKEST = [
    LimitedInterval(0, 1),
    CADS(scale=0),
    CADS(tau1=1, tau2=1),
    SeedVariance(0),
    SeedVariance(3.0, share=0),
    SeedVariance(3.0, stop=0),
    SeedVariance(3.0, tokens_to=0, pooled=False),
    ParticleGuidance(0),
]


@pytest.fixture(scope="module")
def pipe(tiny_sdxl_folder):
    loaded = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    loaded.set_progress_bar_config(disable=True)
    return loaded


@pytest.fixture(params=[DDIMScheduler, EulerDiscreteScheduler])
def either(request, pipe, monkeypatch):
    """The pipeline with this scheduler."""
    monkeypatch.setattr(pipe, "scheduler", request.param.from_config(pipe.scheduler.config))
    return pipe


@pytest.fixture
def seen(pipe, monkeypatch):
    """What the UNet was given and returned, step by step."""
    forward, calls = pipe.unet.forward, []

    def note(sample, timestep, encoder_hidden_states, added_cond_kwargs, **options):
        given = {"encoder_hidden_states": encoder_hidden_states} | options
        result = forward(sample, timestep, added_cond_kwargs=added_cond_kwargs, **given)
        calls.append(
            SimpleNamespace(
                sample=sample.clone(),
                timestep=timestep,
                tokens=encoder_hidden_states.clone(),
                pooled=added_cond_kwargs["text_embeds"].clone(),
                output=result[0].clone(),
            )
        )
        return result

    monkeypatch.setattr(pipe.unet, "forward", note)
    return calls


def seeds(first, count):
    return [torch.Generator().manual_seed(first + i) for i in range(count)]


def draw(pipe, method, prompts=PROMPTS, first_seed=0, guidance_scale=SCALE, steps=STEPS):
    call = PipelineCall(pipe, prompts, seeds(first_seed, len(prompts)))
    options = {"num_inference_steps": steps, "output_type": "latent", "generator": call.generators}
    with nullcontext({}) if method is None else method.attached(call) as given:
        return pipe(prompts, guidance_scale=guidance_scale, **given, **options).images


def stock(pipe, *given, **options):
    return draw(pipe, None, *given, **options)


def own_embeddings(pipe, prompts=PROMPTS):
    with torch.no_grad():
        tokens, _, pooled, _ = pipe.encode_prompt(prompts)
    return tokens, pooled


def named(methods):
    return [pytest.param(method, id=str(method)) for method in methods]


@pytest.mark.parametrize("method", named([Method(), *WEAKEST]))
def test_at_its_weakest_a_method_is_the_stock_pipeline_bit_by_bit(pipe, method):
    assert torch.equal(draw(pipe, method), stock(pipe))


@pytest.mark.parametrize("method", named(STRONG))
def test_a_method_changes_samples_but_neither_their_start_nor_pipeline_and_generators(
    either, seen, method
):
    pipe, plain = either, stock(either)
    start = seen[0].sample[-len(PROMPTS) :]
    seen.clear()
    generators, untouched = seeds(0, 3), seeds(0, 3)
    with method.attached(PipelineCall(pipe, PROMPTS, generators)):
        states = zip(generators, untouched, strict=True)
        assert all(torch.equal(a.get_state(), b.get_state()) for a, b in states)
    changed = draw(pipe, method)
    assert torch.equal(seen[0].sample[-len(PROMPTS) :], start)
    assert changed.isfinite().all() and not torch.allclose(changed, plain, atol=1e-3)
    assert pipe.guidance_scale == SCALE
    assert torch.equal(draw(pipe, method), changed)
    assert torch.equal(stock(pipe), plain)


@pytest.mark.parametrize("method", named(STRONG[:3]))
def test_a_sample_does_not_depend_on_the_batch_it_is_drawn_in(pipe, method):
    together = draw(pipe, method)
    alone = [draw(pipe, method, [prompt], i) for i, prompt in enumerate(PROMPTS)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("method", named(STRONG[1:]))
def test_a_method_works_without_classifier_free_guidance(pipe, seen, method):
    images = draw(pipe, method, guidance_scale=1.0)
    assert images.isfinite().all() and len(seen[0].sample) == len(PROMPTS)
    assert not torch.allclose(images, stock(pipe, guidance_scale=1.0), atol=1e-3)


def test_guidance_is_on_in_its_interval_and_not_evaluated_elsewhere(pipe, seen):
    draw(pipe, LimitedInterval(0.3, 0.7))
    rows = [len(call.sample) for call in seen]
    assert rows == [3] * 3 + [6] * 4 + [3] * 3
    reference = DDIMScheduler.from_config(pipe.scheduler.config)
    reference.set_timesteps(STEPS)
    for step in range(STEPS - 1):
        noise = seen[step].output[-3:]
        if 3 <= step < 7:
            unconditional = seen[step].output[:3]
            guided = unconditional + SCALE * (noise - unconditional)
            assert not torch.allclose(guided, noise, atol=1e-3)  # or there were nothing to tell
            noise = guided
        now = seen[step].sample[:3]
        after = reference.step(noise, seen[step].timestep, now).prev_sample
        torch.testing.assert_close(seen[step + 1].sample[:3], after, atol=1e-5, rtol=1e-5)
    without = stock(pipe, guidance_scale=1.0)
    samples = draw(pipe, LimitedInterval(0, 0))  # an empty interval is no guidance
    torch.testing.assert_close(samples, without, atol=1e-4, rtol=1e-4)


def test_the_condition_is_annealed_linearly_between_tau2_and_tau1():
    times = (0, 0.5, 0.6, 0.8, 0.9, 1)
    found = [CADS(tau1=0.5, tau2=0.9).gamma(t) for t in times]
    assert found == pytest.approx([1, 1, 0.75, 0.25, 0, 0])
    assert [CADS(tau1=0.5, tau2=0.5).gamma(t) for t in (0.5, 0.51)] == [1, 0]  # a jump


@pytest.mark.parametrize("gamma", [0, 0.3, 0.9])
def test_annealed_embeddings_keep_each_samples_mean_and_deviation(gamma):
    y, noise = 2 * random(3, 5, 16) + torch.arange(3)[:, None, None], random(3, 5, 16, seed=1)
    annealed = CADS(scale=4.0).anneal(y, noise, gamma)
    assert not torch.allclose(annealed, y, atol=0.1)
    torch.testing.assert_close(annealed.mean(dim=(1, 2)), y.mean(dim=(1, 2)))
    torch.testing.assert_close(annealed.std(dim=(1, 2)), y.std(dim=(1, 2)))


def embeddings_seen(pipe, seen):
    """Of tokens and of pooled ones: what prompts were given at each step, and the prompts' own. No
    method may touch those of negative prompts."""
    for kind, plain in zip(("tokens", "pooled"), own_embeddings(pipe), strict=True):
        negative, given = zip(*(getattr(call, kind).chunk(2) for call in seen), strict=True)
        assert all(torch.equal(one, negative[0]) for one in negative)
        yield given, plain


def test_the_network_sees_new_noise_at_each_step_down_to_tau1_and_then_the_prompt(pipe, seen):
    draw(pipe, CADS(tau1=0.5, tau2=0.8))
    for given, plain in embeddings_seen(pipe, seen):
        # t is 1, 0.9, ..., and gamma 0 at the first three steps
        for before, after in itertools.pairwise(given[:6]):
            assert (before != after).any(dim=-1).all()
        assert all(torch.equal(one, plain) for one in given[5:])
        without_prompt = torch.stack(given[:3]).flatten(2)
        assert abs(correlation(without_prompt[0], without_prompt[1])) < 0.4
        assert abs(correlation(without_prompt[0], plain.flatten(1))) < 0.4
        assert correlation(given[4].flatten(1), plain.flatten(1)) > 0.5


@pytest.mark.parametrize(
    ("stop", "steps", "noised"), [(0.3, 10, 3), (0.2, 4, 1), (0.5, 4, 2), (0.75, 4, 3), (1.0, 4, 4)]
)
def test_variance_noise_is_the_same_at_the_first_steps_and_gone_after_them(
    pipe, seen, stop, steps, noised
):
    draw(pipe, SeedVariance(3.0, stop=stop), steps=steps)
    for given, plain in embeddings_seen(pipe, seen):
        assert not torch.equal(given[0], plain)
        assert all(torch.equal(one, given[0]) for one in given[:noised])
        assert all(torch.equal(one, plain) for one in given[noised:])


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_variance_noise_is_uniform_on_a_share_of_entries_of_each_sample(pipe, seen, share):
    draw(pipe, SeedVariance(3.0, share), steps=1)
    for kind, plain in zip(("tokens", "pooled"), own_embeddings(pipe), strict=True):
        noise = (getattr(seen[0], kind).chunk(2)[1] - plain).flatten(1)
        units = noise / plain.flatten(1).std(dim=1, keepdim=True)
        tolerance = 4 / math.sqrt(units.shape[1])
        chosen = units != 0
        assert (chosen.float().mean(dim=1) - share).abs().max() <= tolerance / 2
        assert not torch.equal(chosen[0], chosen[1]) or share == 1
        assert abs(correlation(noise[:1], noise[1:2])) < tolerance  # of the same prompt
        if kind == "tokens":  # many enough for their moments
            assert 2.9 < units.abs().max() <= 3.001
            drawn = units[chosen]
            assert abs(drawn.mean()) < 0.2
            assert drawn.std() == pytest.approx(3 / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    ("about", "noised"),
    [
        ({"tokens_from": 0.25}, slice(8, 32)),
        ({"tokens_to": 0.5, "pooled": False}, slice(0, 16)),
        ({"tokens_from": 0.2, "tokens_to": 0.4}, slice(6, 13)),
    ],
)
def test_variance_noise_may_leave_some_tokens_and_the_pooled_embedding_alone(
    pipe, seen, about, noised
):
    draw(pipe, SeedVariance(3.0, **about), steps=1)
    tokens, pooled = own_embeddings(pipe)
    changed = (seen[0].tokens.chunk(2)[1] != tokens).any(dim=-1)
    assert changed.shape == (3, 32) and changed[:, noised].all()
    assert changed.sum() == changed[:, noised].numel()
    assert torch.equal(seen[0].pooled.chunk(2)[1], pooled) == ("pooled" in about)


def test_a_methods_noise_is_not_that_of_the_initial_latents(pipe, seen):
    draw(pipe, CADS(), ["a cat"], steps=1)
    latents = seen[0].sample.chunk(2)[1].flatten()
    noise = seen[0].tokens.chunk(2)[1].flatten()[: len(latents)]
    assert abs(correlation(latents[None], noise[None])) < 0.3


@pytest.mark.parametrize("n", [2, 3, 8])
def test_repulsion_is_the_gradient_of_its_potential_and_drives_apart(n):
    x = random(n, 6).requires_grad_()
    pairs = [(i, j) for i in range(n) for j in range(i)]
    distances = torch.stack([(x[i] - x[j]).square().sum() for i, j in pairs])
    bandwidth = distances.detach().sort().values[(len(pairs) - 1) // 2] / math.log(n)
    (-distances / bandwidth).exp().sum().neg().backward()
    push = repulsion(x.detach())
    torch.testing.assert_close(push, x.grad)
    torch.testing.assert_close(push.sum(dim=0), torch.zeros(6, dtype=torch.float64))  # mean stays
    assert torch.pdist(x + 1e-3 * push).square().sum() > torch.pdist(x).square().sum()
    assert torch.equal(repulsion(torch.ones(n, 4)), torch.zeros(n, 4))  # duplicates do not move


def test_particle_guidance_does_to_a_step_what_the_authors_do_to_its_noise(
    either, seen, monkeypatch
):
    pipe, scale, constant = either, 5.0, random(3, 4, 8, 8, seed=9).float()
    forward = pipe.unet.forward  # which notes what it is given
    monkeypatch.setattr(
        pipe.unet,
        "forward",
        lambda *a, **b: (0 * forward(*a, **b)[0] + constant.repeat(2, 1, 1, 1),),
    )
    result = draw(pipe, ParticleGuidance(scale), ["a cat"] * 3)

    reference = type(pipe.scheduler).from_config(pipe.scheduler.config)
    reference.set_timesteps(STEPS)
    latents = torch.cat([torch.randn(1, 4, 8, 8, generator=one) for one in seeds(0, 3)])
    latents = latents * reference.init_noise_sigma
    moved = []
    for step, timestep in enumerate(reference.timesteps):
        alpha_bar = reference.alphas_cumprod[int(timestep)]
        sigma = float((1 / alpha_bar - 1).sqrt())
        unit = reference.scale_model_input(latents, timestep)  # of unit variance, for Euler
        push = repulsion(unit.flatten(1)).view_as(latents)
        moved.append(step > 0 and sigma >= 1)
        noise = constant - scale * sigma * push if moved[-1] else constant
        latents = reference.step(noise, timestep, latents).prev_sample
    assert 2 <= sum(moved) <= STEPS - 3
    torch.testing.assert_close(result, latents, atol=1e-4, rtol=1e-4)
    unmoved = draw(pipe, Method(), ["a cat"] * 3)
    assert not torch.allclose(result, unmoved, atol=0.01)


def test_samples_of_different_prompts_do_not_repel(pipe):
    prompts = ["a cat", "a dog", "a cow"]
    method = ParticleGuidance(5.0)
    assert torch.equal(draw(pipe, method, prompts), stock(pipe, prompts))
    assert torch.equal(draw(pipe, method, ["a cat"]), stock(pipe, ["a cat"]))
    plain, repelled = stock(pipe), draw(pipe, method)
    assert torch.equal(repelled[2], plain[2])
    assert not torch.allclose(repelled[:2], plain[:2], atol=1e-3)


def test_particle_guidance_moves_half_precision_latents_as_it_does_others(pipe):
    latents = 5 * random(3, 4, 96, 96).float()  # their squared distances overflow in half precision
    pipe.scheduler.set_timesteps(STEPS)
    stub = SimpleNamespace(scheduler=pipe.scheduler, num_timesteps=STEPS)
    call = PipelineCall(pipe, ["a cat"] * 3, seeds(0, 3))
    with ParticleGuidance(1e4).attached(call) as given:
        moved = [
            given["callback_on_step_end"](stub, 0, None, {"latents": latents.to(dtype)})["latents"]
            for dtype in (torch.float32, torch.float16)
        ]
    assert moved[1].dtype == torch.float16
    torch.testing.assert_close(moved[1].float(), moved[0], atol=0.02, rtol=1e-2)
    assert (moved[0] - latents).abs().mean() > 0.1


def test_particle_guidance_names_a_scheduler_it_does_not_know(pipe, monkeypatch):
    monkeypatch.setattr(pipe, "scheduler", DPMSolverMultistepScheduler())
    with pytest.raises(ValueError, match="got DPMSolverMultistepScheduler"):
        draw(pipe, ParticleGuidance())


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (LimitedInterval, {"start": 0.6, "stop": 0.5}, "start <= stop.* got 0.6 and 0.5"),
        (LimitedInterval, {"start": -0.1}, "got -0.1 and"),
        (CADS, {"scale": math.inf}, "scale must be .* got inf"),
        (CADS, {"tau1": 0.9, "tau2": 0.8}, "tau1 <= tau2.* got 0.9 and 0.8"),
        (SeedVariance, {"strength": math.nan}, "strength must be .* got nan"),
        (SeedVariance, {"share": 1.5}, "share <= 1 .* got 1.5"),
        (SeedVariance, {"stop": math.nan}, "stop <= 1 .* got nan"),
        (SeedVariance, {"tokens_to": 2.0}, "tokens_from <= tokens_to .* got 0.0 and 2.0"),
        (UndistilledFirst, {"steps": 0}, "steps must .* got 0"),
        (ParticleGuidance, {"scale": -2.0}, "scale must be .* got -2.0"),
        (Select, {"pool": 0}, "pool must .* got 0"),
        (Select, {"preview_steps": 0}, "preview_steps must .* got 0"),
        (Select, {"guidance_scale": -1}, "guidance_scale must .* got -1"),
    ],
)
def test_a_bad_setting_is_named(method, settings, message):
    with pytest.raises(ValueError, match=message):
        method(**settings)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def correlation(a, b):
    """Of two sets of rows, each row taken for itself; the mean."""
    a, b = (rows.double() - rows.double().mean(dim=-1, keepdim=True) for rows in (a, b))
    return float(torch.nn.functional.cosine_similarity(a, b, dim=-1).mean())
