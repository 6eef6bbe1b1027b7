"""The methods we compare ours with, on tiny random pipelines."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from diffusers import DDIMScheduler, PixArtSigmaPipeline, StableDiffusionXLPipeline
from PIL import Image
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline
from vendi_guidance.pipelines.vendi_guided_sdxl import VendiGuidedSDXLPipeline

from scripts.comparison import selection
from scripts.comparison.call import Call
from scripts.comparison.initial_noise import (
    contrast,
    contrastive_noise,
    diverse_start,
    pink,
    pink_noise,
)
from scripts.comparison.methods import METHODS
from scripts.comparison.prompt_noise import cads, prompt_mixture, seed_variance
from scripts.comparison.sampling import base_first, limited_interval, particle_guidance, repulsion
from scripts.comparison.selection import POOL_SEED_STEP, group_inference, left, quality, select
from tests.adapter.test_undistilled import distilled, state
from tests.helpers.every_score import normal
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.features.probe import Probe, probe_pixels

STEPS = 10
SCALE = 3.0
PROMPTS = ["a cat", "a cat", "a dog"]

FEW = {"num_inference_steps": 4, "return_dict": True}
STRONG = [(limited_interval, 0.4), (cads, 0.25), (seed_variance, 3.0), (particle_guidance, 5.0)]
STRONG += [(prompt_mixture, 1.0)]
OF_NOISE = [(pink_noise, 1.0), (contrastive_noise, 0.3), (diverse_start, 1.0)]


@pytest.fixture(scope="module")
def pipe(tiny_sdxl_folder):
    return StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)


@pytest.fixture
def seen(pipe, monkeypatch):
    """What the UNet was given and returned, step by step."""
    forward, calls = pipe.unet.forward, []

    def note(sample, timestep, encoder_hidden_states, added_cond_kwargs, **options):
        given = {"encoder_hidden_states": encoder_hidden_states} | options
        result = forward(sample, timestep, added_cond_kwargs=added_cond_kwargs, **given)
        pooled = added_cond_kwargs["text_embeds"].clone()
        found = {"tokens": encoder_hidden_states.clone(), "pooled": pooled}
        calls.append(SimpleNamespace(sample=sample.clone(), output=result[0].clone(), **found))
        return result

    monkeypatch.setattr(pipe.unet, "forward", note)
    return calls


def stock(call, _):
    return call.images()


def draw(pipe, method=stock, value=0.0, prompts=PROMPTS, first_seed=0, scale=SCALE, steps=STEPS):
    arguments = {"prompt": prompts, "guidance_scale": scale, "output_type": "latent"}
    arguments["num_inference_steps"] = steps
    seeds = list(range(first_seed, first_seed + len(prompts)))
    return method(Call(pipe, prompts, seeds, arguments), value)


def correlation(a, b):
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


@pytest.mark.parametrize(("method", "value"), STRONG)
def test_a_method_does_not_change_the_start_of_samples(pipe, seen, method, value):
    draw(pipe)
    start = seen[0].sample[-len(PROMPTS) :]
    seen.clear()
    draw(pipe, method, value)
    assert torch.equal(seen[0].sample[-len(PROMPTS) :], start)


@pytest.mark.parametrize(("method", "value"), STRONG + OF_NOISE)
@pytest.mark.parametrize(
    ("kind", "guided"), [("SD3", True), ("PixArt-Sigma", True), ("SDXL", True), ("SDXL", False)]
)
def test_a_method_changes_samples_of_each_architecture_but_no_pipeline(kind, guided, method, value):
    if method in (limited_interval, diverse_start) and not guided:
        pytest.skip("it needs predictions without the prompt")
    pipe = CASES[kind].make()
    if isinstance(pipe, PixArtSigmaPipeline):
        pipe.__class__, pipe.guidance = VendiGuidedPixArtSigmaPipeline, VendiGuidance(diversity=0)
    if transformer := getattr(pipe, "transformer", None):  # the last block returns no text
        pipe.transformer = transformer.from_config(transformer.config | {"num_layers": 2})
    arguments = CASES[kind].arguments([0, 0, 1], guided=guided) | FEW
    call = Call(pipe, ["p", "p", "q"], [0, 1, 2], arguments)
    plain, changed = call.images(), method(call, value)
    assert changed.isfinite().all() and not torch.allclose(changed, plain, atol=1e-3)
    assert torch.equal(method(call, value), changed)
    if method is not cads:  # a method at its weakest is the stock pipeline
        assert torch.equal(method(call, 0.0), plain)
    assert torch.equal(call.images(), plain)


def test_guidance_is_on_in_its_interval_and_not_evaluated_elsewhere(pipe, seen):
    draw(pipe, limited_interval, 0.3)
    assert [len(call.sample) for call in seen] == [3] * 3 + [6] * 7
    without = draw(pipe, scale=1.0)
    samples = draw(pipe, limited_interval, 1.0)  # an empty interval is no guidance
    torch.testing.assert_close(samples, without, atol=1e-4, rtol=1e-4)


def embeddings_seen(pipe, seen):
    """Of tokens and of pooled ones: what prompts were given at each step, and the prompts' own. No
    method may touch those of negative prompts."""
    with torch.no_grad():
        tokens, _, pooled, _ = pipe.encode_prompt(PROMPTS)
    for kind, plain in (("tokens", tokens), ("pooled", pooled)):
        negative, given = zip(*(getattr(call, kind).chunk(2) for call in seen), strict=True)
        assert all(torch.equal(one, negative[0]) for one in negative)
        yield given, plain


def test_the_network_sees_new_noise_at_each_step_down_to_tau1_and_then_the_prompt(pipe, seen):
    draw(pipe, lambda call, scale: cads(call, scale, tau1=0.5, tau2=0.8), 0.25)
    for given, plain in embeddings_seen(pipe, seen):
        # t is 1, 0.9, ..., and gamma 0 at the first three steps
        for before, after in itertools.pairwise(given[:6]):
            assert (before != after).any(dim=-1).all()
        assert all(torch.equal(one, plain) for one in given[5:])
        assert abs(correlation(given[0], given[1])) < 0.4
        assert abs(correlation(given[0], plain)) < 0.4
        assert correlation(given[4], plain) > 0.5


def test_variance_noise_is_uniform_on_half_of_the_entries_at_the_first_steps(pipe, seen):
    draw(pipe, seed_variance, 3.0)
    for given, plain in embeddings_seen(pipe, seen):
        assert all(torch.equal(one, given[0]) for one in given[:2])
        assert all(torch.equal(one, plain) for one in given[2:])
        noise = (given[0] - plain).flatten(1)
        units = noise / plain.flatten(1).std(dim=1, keepdim=True)
        tolerance = 4 / math.sqrt(units.shape[1])
        assert ((units != 0).float().mean(dim=1) - 0.5).abs().max() <= tolerance / 2
        assert abs(correlation(noise[0], noise[1])) < tolerance  # of the same prompt
        assert units.abs().max() <= 3.001
        assert units[units != 0].std() == pytest.approx(3 / math.sqrt(3), rel=0.2)


def test_a_mixture_moves_words_once_by_gamma_and_by_noise(pipe, seen):
    draw(pipe, prompt_mixture, 2.0)
    (tokens, plain), (pooled, plain_pooled) = embeddings_seen(pipe, seen)
    assert all(torch.equal(one, plain_pooled) for one in pooled)
    assert all(torch.equal(one, tokens[0]) for one in tokens)
    moved = (tokens[0] - plain) / (2 * plain.flatten(1).std(dim=1)[:, None, None])
    assert not moved[:, [0, -1]].any()
    width = moved.shape[-1]
    squares = moved[:, 1:-1].square().sum(dim=-1)
    assert float(squares.mean()) == pytest.approx(width + 2.4**2, rel=0.05)
    assert abs(correlation(moved[0, 1:-1], moved[1, 1:-1])) < 0.1  # of the same prompt


@pytest.mark.parametrize("n", [2, 3, 8])
def test_repulsion_is_the_gradient_of_its_potential_and_drives_apart(n):
    x = normal(0, n, 6).requires_grad_()
    pairs = [(i, j) for i in range(n) for j in range(i)]
    distances = torch.stack([(x[i] - x[j]).square().sum() for i, j in pairs])
    bandwidth = distances.detach().sort().values[(len(pairs) - 1) // 2] / math.log(n)
    (-distances / bandwidth).exp().sum().neg().backward()
    push = repulsion(x.detach())
    torch.testing.assert_close(push, x.grad)
    torch.testing.assert_close(push.sum(dim=0), torch.zeros(6, dtype=torch.float64))  # mean stays
    assert torch.pdist(x + 1e-3 * push).square().sum() > torch.pdist(x).square().sum()
    assert torch.equal(repulsion(torch.ones(n, 4)), torch.zeros(n, 4))  # duplicates do not move


def test_particle_guidance_changes_the_predicted_noise_as_the_authors_do(pipe, seen, monkeypatch):
    config = {**pipe.scheduler.config, "prediction_type": "v_prediction"}
    monkeypatch.setattr(pipe, "scheduler", DDIMScheduler.from_config(config))
    draw(pipe, particle_guidance, 5.0, ["a cat"] * 3, steps=2)
    first, timestep = seen[0].sample[:3], pipe.scheduler.timesteps[0]
    alpha_bar = pipe.scheduler.alphas_cumprod[int(timestep)]
    signal, noise = alpha_bar.sqrt(), (1 - alpha_bar).sqrt()
    unconditional, own = seen[0].output.chunk(2)
    output = unconditional + SCALE * (own - unconditional)
    push = 5.0 * noise / signal * repulsion(first.flatten(1)).view_as(first)
    output = output - push / signal  # by way of the noise that the velocity says
    after = pipe.scheduler.step(output, timestep, first).prev_sample
    torch.testing.assert_close(seen[1].sample[:3], after, atol=1e-4, rtol=1e-4)
    assert push.abs().max() > 0.01


@pytest.mark.parametrize(
    ("name", "settings"),
    [("published", {"preset": "published", "scale": 0.3}), ("rounds", {"proposal": "gradient"})],
)
def test_a_method_that_is_a_setting_of_ours_guides_by_it(tiny_sdxl_folder, name, settings):
    def drawn(guidance, *method):
        guided = VendiGuidedSDXLPipeline.from_pretrained(tiny_sdxl_folder)
        guided.guidance = guidance
        return draw(guided, *method)

    found = drawn(VendiGuidance(), METHODS[name].images, 0.3)
    assert torch.equal(found, drawn(VendiGuidance(**settings)))
    assert not torch.allclose(found, drawn(VendiGuidance(diversity=0)), atol=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_the_network_without_its_lora_makes_the_first_steps(steps):
    pipe = distilled("style", "lightning")
    before, off = state(pipe), []
    pipe.unet.mid_block.register_forward_hook(lambda *_: off.append(state(pipe)[0][0][0]))
    arguments = CASES["SDXL"].arguments([0, 0, 1], guided=False) | FEW
    base_first(Call(pipe, ["p"] * 3, [0, 1, 2], arguments), steps)
    assert off == [step < steps for step in range(4)]
    assert state(pipe) == before


FLAT = {name: Image.new("RGB", (64, 64), name) for name in ("red", "blue")}
BLUE = 8 + 2 * POOL_SEED_STEP


@pytest.mark.parametrize("settings", [{}, {"guidance_scale": 2}])
def test_a_pool_has_the_samples_own_seeds_and_others(settings):
    calls = []

    def pipe(prompt, generator, guidance_scale=5):
        seeds = [one.initial_seed() for one in generator]
        calls.append((seeds, guidance_scale))
        return SimpleNamespace(images=[FLAT["blue" if seed == BLUE else "red"] for seed in seeds])

    prompts = ["ear", "ear", "leg"]
    images = select(Call(pipe, prompts, [7, 8, 9], {"prompt": prompts}), 3, **settings)
    assert images == [FLAT["red"], FLAT["blue"], FLAT["red"]]
    pool = [seed for seeds, _ in calls for seed in seeds]
    assert calls[0][0] == [7, 8, 9] and len(set(pool)) == 9
    assert [scale for _, scale in calls] == [settings.get("guidance_scale", 5)] * 3


def test_group_inference_evaluates_what_is_left_and_changes_no_candidate(pipe, seen, monkeypatch):
    last = lambda images, prompt, count: [*range(len(images))][-count:]  # noqa: E731
    monkeypatch.setattr(selection, "worth_most", last)
    found = draw(pipe, group_inference, 4.0, steps=4)
    assert [len(it.sample) // (2 * len(PROMPTS)) for it in seen] == [1] * (4 + 2 + 1 + 1)
    assert torch.equal(found, draw(pipe, first_seed=3 * POOL_SEED_STEP, steps=4))


def test_a_copy_is_dropped_before_what_is_poor_and_that_before_what_is_good():
    distances = 1 - torch.eye(4)
    distances[0, 1] = distances[1, 0] = 0.01
    qualities = torch.tensor([1.0, 0.9, 0.5, 1.0])
    assert left(qualities, distances, 3) == [0, 2, 3]
    assert left(qualities, distances, 2) == [0, 3]
    assert left(torch.tensor([0.0, 9.0, 0.0, 0.0]), distances, 1) == [1]


def test_quality_is_the_probability_of_all_that_a_prompt_names(monkeypatch):
    colours = [("colour", ["red", "blue"])]
    other = Probe(["face"], [("hair", ["long"])], "{concept}, {hair} hair")
    probe = Probe(["cup", "hat"], colours, "a photo of a {colour} {concept}")
    monkeypatch.setattr(selection, "probes", lambda: [other, probe])
    images = [*FLAT.values()]
    logits = probe(torch.stack([probe_pixels(image, 64) for image in images]))
    hat, red = (it.softmax(dim=1)[:, i] for it, i in zip(logits, (1, 0), strict=True))
    torch.testing.assert_close(quality(images, "a photo of a red hat"), (hat * red).detach())
    torch.testing.assert_close(quality(images, "a photo of a hat"), hat.detach())


@pytest.mark.parametrize("exponent", [0.2, 1.0])
def test_pink_noise_has_its_power_and_its_samples_deviation(exponent):
    white = normal(0, 500, 1, 8, 8) * torch.linspace(1, 2, 500)[:, None, None, None]
    coloured = pink(white, exponent)
    stds = [it.flatten(1).std(dim=1) for it in (white, coloured)]
    torch.testing.assert_close(*stds, rtol=1e-4, atol=1e-4)
    before, after = (torch.fft.fft2(it).abs().square().mean(dim=(0, 1)) for it in (white, coloured))
    ratio = after / before
    expected = (math.hypot(1, 1) / math.hypot(2, 3)) ** -exponent
    assert float(ratio[1, 1] / ratio[2, 3]) == pytest.approx(expected, rel=0.1)
    assert float(ratio[0, 0] / ratio[0, 1]) == pytest.approx(1, rel=0.1)


def test_the_contrast_of_two_samples_is_that_of_a_softmax_by_hand():
    maps, held = normal(0, 2, 3, 4, 4), normal(1, 2, 3, 4, 4)  # pooled to one place
    a, b, c, d = (it.mean(dim=(1, 2)) for it in (*maps, *held))
    cosine = torch.nn.functional.cosine_similarity
    across = (cosine(a, b, dim=0) / 0.1).exp()
    own = [(cosine(x, y, dim=0) / 0.1).exp() for x, y in ((a, c), (b, d))]  # gamma is 1
    expected = -sum((it / (it + across)).log() for it in own) / 2
    torch.testing.assert_close(contrast(maps, held), expected)


def test_an_initial_noise_of_low_potential_is_drawn_around_the_prior(pipe, seen):
    found = []
    for temperature in (300.0, -300.0):
        draw(pipe, diverse_start, temperature, steps=2)
        before, after, _ = seen
        without, own = after.output.chunk(2)
        found.append((after.sample[:3], (own - without).flatten(1).norm(dim=1)))
        seen.clear()
    (low, less), (high, more) = found
    assert (less < more).all()
    drawn = ((low + high) / 2 - 0.95 * before.sample[:3]) / math.sqrt(0.1)  # the slope cancels
    assert float(drawn.std()) == pytest.approx(1, abs=0.1)
    assert abs(correlation(drawn, before.sample[:3])) < 0.1


def test_contrastive_noise_needs_a_first_step_with_signal(pipe, monkeypatch):
    how = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}
    config = {**pipe.scheduler.config, **how, "timestep_spacing": "trailing"}
    monkeypatch.setattr(pipe, "scheduler", DDIMScheduler.from_config(config))
    with pytest.raises(ValueError, match="a first step with signal"):
        draw(pipe, contrastive_noise, 0.1)
