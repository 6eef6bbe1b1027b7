"""Moves at the sampler's own steps in ComfyUI's node, with a network that needs CFG."""

import math
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise, repeat

import pytest
import torch
from torch import nn

from integrations.comfyui import sampling
from integrations.comfyui.sampling import DiverseSampling
from tests.integrations.test_comfyui_sampling import (
    CFG,
    SIGMAS,
    Guider,
    Masking,
    Noise,
    Velocity,
    _new_session,  # noqa: F401
    diversity,
    draw as with_rounds,
    euler,
    heun,
    in_two_runs,
    lone,
    memory,
    noise_of,
    writes_into_its_sigmas,
)
from vendi_guidance.guidance import choose
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Prediction, Step
from vendi_guidance.guidance.ways import own_steps


@pytest.fixture(autouse=True)
def _needs_cfg(_known_prompts, monkeypatch):
    monkeypatch.setattr(choose, "SPREAD", 0.0)
    monkeypatch.setattr(own_steps, "KNOWN_BELOW", -2.0)
    monkeypatch.setattr(own_steps, "VAGUE_ABOVE", -1.0)
    monkeypatch.setattr(own_steps, "VAGUE", 1.0)


SHARES = torch.tensor([1.0, 0.8, 0.6, 0.4, 0.0])  # of noise, in a flow model


class Network(nn.Module):
    """Draws images that are much alike. `vague` networks know their prompt with CFG alone."""

    def __init__(self, vague=0.2):
        super().__init__()
        self.vague, self.rows = vague, []

    def forward(self, x, sigma, conditions):
        self.rows.append(conditions.tolist())
        h = (1.5 + x / (1 + sigma.view(-1, 1, 1, 1))).tanh()
        return self.vague * h * (1 + 2 * conditions.view(-1, 1, 1, 1))


class Unet(Guider):
    """Evaluates a network with ComfyUI's batches: `split` into calls where memory is short. Those
    that do not `tell` it evaluate other conditionings than their own, and some negative prompts
    without CFG too: `always`."""

    def __init__(self, sampling=Noise, network=None, split=False, tell=True, always=False, **given):
        super().__init__(sampling, **given)
        self.inner_model.diffusion_model = network or Network()
        self.split, self.tell, self.always = split, tell, always

    def predict_noise(self, x, sigma, model_options=None, seed=None):
        has_cfg, positive = self.cfg != 1, self.conds["positive"]
        negative = [] if has_cfg or self.always else None
        given = [positive if self.tell else [*positive], negative]
        run = self.batches
        options = (model_options or {}).get("transformer_options", {})
        for wrapper in options.get("wrappers", {}).get("calc_cond_batch", {}).values():
            run = partial(wrapper[0], run)
        known, other = run(None, given, x, sigma, model_options)
        return other + self.cfg * (known - other) if has_cfg else known

    def batches(self, model, conds, x, sigma, model_options):
        self.seen.append((float(sigma[0]), self.cfg))
        given = [i for i, cond in enumerate(conds) if cond is not None]
        outputs = [torch.zeros_like(x) for _ in conds]
        for batch in [[it] for it in given] if self.split else [given]:
            rows = torch.tensor([1.0 - it for it in batch]).repeat_interleave(len(x))
            many = len(batch)
            network = self.inner_model.diffusion_model
            answer = network(torch.cat([x] * many), torch.cat([sigma] * many), rows)
            for i, output in zip(batch, answer.chunk(many), strict=True):
                outputs[i] = output
        return outputs


def draw(where, guider=None, **given):
    """Samples of the node as it is, where `where` says; without it for None."""
    if where is not None:
        given.setdefault("node", DiverseSampling(Rounds(), where))
    return with_rounds(where, guider or Unet(), **given)


def level_of(sampling, sigma):
    one, none = torch.ones(()), torch.zeros(())
    mix = sampling.noise_scaling
    return Level(float(mix(sigma, none, one)), float(mix(sigma, one, none)))


def by_hand(noise, sampling=Noise, sigmas=SIGMAS, cfg=CFG, of_target=1.0, first=None):
    """What the pipelines' adapter makes of this noise with DDIM, which is Euler's method: the
    clean latents of each step are moved, and keep their noise."""
    networks, prompts = chain([first or Network()], repeat(Network())), torch.ones(len(noise), 3)
    score = Memory(window=9).score(Rounds(), prompts)
    target = of_target * Rounds().diversity ** 0.5
    x = sampling.noise_scaling(sigmas[0], noise, torch.zeros_like(noise))
    for sigma, after in pairwise(sigmas):
        start, end = level_of(sampling, sigma), level_of(sampling, after)
        network = next(networks)
        known, other = (network(x, sigma.expand(len(x)), torch.full((len(x),), i)) for i in (1, 0))
        clean = other + cfg * (known - other)
        kept = (x - start.signal * clean) / start.noise
        if start.ratio > own_steps.ABOVE and after > 0:
            rows = known.flatten(1)
            apart = torch.cdist(rows, rows).fill_diagonal_(math.nan) / lengths(known)
            median = apart.nanquantile(0.5, dim=1, keepdim=True, interpolation="lower")
            if first is not None and sigma == sigmas[0]:
                target = own_steps.BEYOND * median * Rounds().diversity ** 0.5
            lack = target - median
            step = Step(0, 9, x, prompts=prompts, prediction=Prediction(known, *end))
            length = own_steps.OUTWARD * lengths(clean) * lack.clamp(min=0)
            clean = clean + (length * score.gradient(step)).view_as(clean)
        x = end.mix(clean, kept)
    return x


def untouched(guider):
    network = guider.inner_model.diffusion_model
    return "forward" not in vars(network) and guider.cfg == CFG


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("sampling", "sigmas"), [(Noise, SIGMAS), (Velocity, SHARES)])
def test_samples_are_moved_at_high_noise_as_in_pipelines(tmp_path, sampling, sigmas, split):
    how, noise = {"sigmas": sigmas}, noise_of(0)
    guider, plain = Unet(sampling, split=split), Unet(sampling)
    samples, stock = draw(memory(tmp_path), guider, **how), draw(None, plain, **how)
    torch.testing.assert_close(samples, by_hand(noise, sampling, sigmas))
    assert diversity(samples) > 1.1 * diversity(stock) and untouched(guider)
    first = [(float(sigmas[0]), 1.0)]  # without CFG, to decide
    assert guider.seen == first + plain.seen
    assert ([0.0] * 8 in guider.inner_model.diffusion_model.rows) == split


def test_the_undistilled_model_makes_the_first_step(tmp_path, monkeypatch):
    swapped, guider, base = [], Unet(), Network(vague=0.5)

    @contextmanager
    def swap(guider, undistilled, latents):
        own = guider.inner_model.diffusion_model
        swapped.append(undistilled)
        guider.inner_model.diffusion_model = undistilled or own
        yield
        guider.inner_model.diffusion_model = own

    monkeypatch.setattr(sampling, "model_swapped", swap)
    node = DiverseSampling(Rounds(), memory(tmp_path), base)
    samples = draw(True, guider, node=node)
    assert swapped[:2] == [base, base] and not any(swapped[2:])
    torch.testing.assert_close(samples, by_hand(noise_of(0), first=base))


def test_no_evaluation_is_added_without_cfg(tmp_path):
    sigmas, guider = torch.tensor([14.6, *torch.linspace(8, 0, 12)]), Unet(cfg=1.0)
    guider.inner_model.diffusion_model = Joint()
    samples = draw(memory(tmp_path), guider, sigmas=sigmas)
    torch.testing.assert_close(
        samples, by_hand(noise_of(0), sigmas=sigmas, cfg=1.0, of_target=own_steps.UNRESTORED)
    )
    assert guider.sigmas == sigmas[:-1].tolist()


class Block(nn.Module):
    def forward(self, image, text) -> tuple[torch.Tensor, torch.Tensor]:
        return image, text


class Joint(Network):
    def __init__(self):
        super().__init__()
        self.transformer_blocks = nn.ModuleList([Block()])


def test_a_guider_that_does_not_tell_what_the_prompt_predicts_is_asked(tmp_path):
    guider, plain = Unet(tell=False), Unet()
    samples = draw(memory(tmp_path), guider)
    torch.testing.assert_close(samples, draw(memory(tmp_path), plain))
    early = [float(sigma) for sigma in SIGMAS if sigma > own_steps.ABOVE]
    asked = [sigma for sigma, cfg in guider.seen if cfg == 1]
    # to decide, and for each move
    assert asked == [early[0], *early] and len(guider.seen) == len(plain.seen) + len(early)


@pytest.mark.parametrize("cfg", [1.0, CFG])
def test_a_guider_that_always_evaluates_negative_prompts_is_guided_as_others(tmp_path, cfg):
    guider, plain = Unet(always=True, cfg=cfg), Unet(cfg=cfg)
    samples, expected = (draw(memory(tmp_path), it) for it in (guider, plain))
    torch.testing.assert_close(samples, expected)
    assert guider.seen == plain.seen


def test_other_wrappers_of_comfyui_still_count(tmp_path):
    def darker(executor, *given):
        return [it - 0.1 for it in executor(*given)]

    options = {"transformer_options": {"wrappers": {"calc_cond_batch": {"another": [darker]}}}}
    guider = Unet()
    found = draw(memory(tmp_path), guider, model_options=options)
    assert not torch.allclose(found, by_hand(noise_of(0)))
    [wrappers] = options["transformer_options"]["wrappers"].values()
    assert wrappers == {"another": [darker]}


def test_networks_that_know_their_prompts_make_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "SPREAD", math.inf)
    guider = Unet()
    draw(memory(tmp_path), guider)
    # the first prediction is the sampler's own
    assert guider.sigmas.count(float(SIGMAS[0])) == 1
    assert guider.seen[0][1] == 1.0 and len(guider.seen) > len(SIGMAS) + 3


def test_with_cfg_an_image_that_begins_at_low_noise_is_left_as_it_is(tmp_path, caplog):
    how = {"sigmas": SIGMAS[2:], "latents": noise_of(5)}
    with caplog.at_level("INFO"):
        found = draw(memory(tmp_path), guider := Unet(), **how)
    assert torch.equal(found, draw(None, plain := Unet(), **how)) and guider.seen == plain.seen
    assert "not guided: it begins where the image is decided" in caplog.text


def ancestral(model, x, sigmas, extra_args, callback=None, disable=None):
    return euler(model, x, sigmas, extra_args, callback, churn=0.1)


def test_samplers_make_each_early_step_alone_and_with_noise_of_its_own(tmp_path):
    runs = []

    def watched(model, x, sigmas, extra_args, **how):
        runs.append((sigmas.tolist(), extra_args["seed"]))
        return ancestral(model, x, sigmas, extra_args, **how)

    told, early = [], [float(it) for it in SIGMAS if it > own_steps.ABOVE]
    how = {"function": watched, "callback": lambda i, *rest: told.append((i, rest[-1]))}
    samples = draw(memory(tmp_path), **how)
    parts, seeds = zip(*runs, strict=True)
    assert [it[0] for it in parts[:-1]] == early and parts[-1] == SIGMAS[len(early) :].tolist()
    assert seeds[0] == 0 and len({*seeds}) == len(seeds)
    steps = len(SIGMAS) - 1
    assert [i for i, _ in told] == [*range(steps)]
    assert torch.equal(samples, draw(memory(tmp_path), function=watched))
    assert diversity(samples) > 1.1 * diversity(draw(None, function=ancestral))


def sample_unipc(model, x, sigmas, extra_args, callback=None, disable=None):
    """Uni_pc, which returns its latents after one step as they are."""
    if len(sigmas) > 2:
        return writes_into_its_sigmas(model, x, sigmas, extra_args, callback)
    model(x, sigmas[0].expand(len(x)), **extra_args)
    return x


def test_second_order_samplers_and_one_that_makes_no_lone_step_are_guided(tmp_path):
    found = draw(memory(tmp_path), function=sample_unipc, sigmas=SIGMAS.clone())
    torch.testing.assert_close(found, by_hand(noise_of(0)))
    guider, plain = Unet(), Unet()
    found = draw(memory(tmp_path), guider, function=heun)
    assert diversity(found) > 1.02 * diversity(draw(None, plain, function=heun))
    assert guider.seen[1:] == plain.seen


def hooked(model, x, sigmas, extra_args, callback=None, disable=None):
    """A sampler that puts a hook of its own into the model, as CFG++ does."""
    own = {**extra_args["model_options"], "sampler_post_cfg_function": [print]}
    return euler(model, x, sigmas, {**extra_args, "model_options": own})


def test_a_sampler_with_hooks_is_given_its_own_predictions(tmp_path):
    found = draw(memory(tmp_path), function=hooked)
    torch.testing.assert_close(found, by_hand(noise_of(0)))


def test_what_a_mask_keeps_is_no_part_of_the_distance(tmp_path, monkeypatch):
    seen = []

    def move(moves, step):
        seen.append(step.network.denoised)
        return step

    monkeypatch.setattr(own_steps.OwnSteps, "on_step", move)
    draw(memory(tmp_path), sampler=Masking(euler))
    assert len(seen) == 2
    assert all((it[..., :2] == 0.5).all() and (it[..., 2:] != 0.5).all() for it in seen)


@pytest.mark.parametrize("kind", ["session", "file"])
def test_images_one_at_a_time_differ_from_those_of_the_session(tmp_path, kind):
    said, first, second = [], lone(0), lone(0)
    stock = draw(None, plain := Unet(), **first)
    nodes = [DiverseSampling(Rounds(), memory(tmp_path, kind), None, said.append) for _ in "12"]
    guiders = Unet(), Unet()
    assert torch.equal(draw(True, guiders[0], node=nodes[0], **first), stock)
    assert guiders[0].seen == plain.seen and said == [f"{sampling.ALONE}1 remembered"]
    moved = draw(True, guiders[1], node=nodes[1], **second)
    assert not torch.allclose(moved, stock, atol=1e-3)
    # to decide, and of another image of the prompt, which tells how varied they are
    top = float(SIGMAS[0])
    assert guiders[1].seen == [(top, 1.0), (top, 1.0), *plain.seen]
    assert all(map(untouched, guiders)) and said[1] == "2 remembered"


@pytest.mark.parametrize("cut", range(1, len(SIGMAS) - 1))
def test_a_later_run_goes_on_with_the_moves_of_the_first(tmp_path, cut):
    one, two = Unet(), Unet()
    expected = draw(memory(tmp_path), one)
    node = DiverseSampling(Rounds(), memory(tmp_path))
    found = in_two_runs(memory(tmp_path), SIGMAS, cut, draw, guider=two, node=node)
    assert torch.equal(found, expected) and one.seen == two.seen
    # ComfyUI may take the first run from its cache
    first = draw(None, Unet(), sigmas=SIGMAS[: cut + 1])
    later = {"sigmas": SIGMAS[cut:], "noise": torch.zeros_like(first), "latents": first}
    again = draw(memory(tmp_path), guider := Unet(), node=node, **later)
    assert guider.sigmas == SIGMAS[cut:-1].tolist() and again.isfinite().all()


def test_nan_and_interrupts_leave_the_model_as_it_was(tmp_path):
    noise = noise_of(0)
    noise[0] = math.nan
    guider = Unet()
    samples, stock = draw(memory(tmp_path), guider, noise=noise), draw(None, noise=noise)
    assert samples[0].isnan().all() and untouched(guider)
    torch.testing.assert_close(samples[1:], stock[1:])  # the score has no gradient

    def interrupt(i, *_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw(memory(tmp_path), guider, callback=interrupt)
    assert untouched(guider)
