"""Rounds at one noise level, through real pipelines and schedulers."""

import logging
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionXLPipeline

from tests.adapter import test_denoiser as denoiser
from tests.adapter.test_guided_spaces import draw, spied
from tests.guidance.test_engine import Network as AnyNetwork, diversity, seeded
from tests.helpers import tiny_pipelines
from tests.helpers.launches import Launches
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.denoiser import Network
from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.score import OF_LARGEST, between, spread
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.ways import budget
from vendi_guidance.guidance.ways.budget import CFG_STOP

DEMO = Path(__file__).parents[2] / "assets" / "demo-sdxl"
PROMPTS = [0, 0, 1]
ROUNDS = 3
SCHEDULERS = [kind for kind in denoiser.SCHEDULERS if not kind.startswith(("KDPM2", "TCD"))]
DETERMINISTIC = ["DDIM", "EulerDiscrete", "DPMSolverMultistep", "UniPCMultistep", "HeunDiscrete"]

with_scheduler = partial(tiny_pipelines.with_scheduler, skip_prk_steps=True)  # as SD's PNDM


def making(rounds=ROUNDS, **options):
    return VendiGuidance(**{"rounds": rounds, "proposal": "gradient"} | options)


def evaluations(pipe, guidance=None, **how):
    """The rows of each evaluation of the network in a call."""
    with tiny_pipelines.evaluations(pipe.unet) as rows:
        draw(pipe, guidance, **how)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "guided"), [(4, True), (10, False)])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_rounds_are_made_once_near_the_level_and_every_scheduler_goes_on(sdxl, kind, steps, guided):
    pipe = with_scheduler(sdxl, kind)
    guidance = making()
    spy = spied(pipe, guidance, steps=steps, guided=guided)
    [made] = spy.changed
    level = math.log(guidance.settings.level * math.prod(CASES["SDXL"].latent) ** 0.5)
    distances = [abs(math.log(start.ratio) - level) for start, _ in spy.levels]
    assert abs(made - distances.index(min(distances))) <= 1 + (pipe.scheduler.order > 1)
    assert spy.after[-1].isfinite().all()
    assert len(guidance.window) == 3 and guidance.skipped == 0
    assert "step" not in vars(pipe.scheduler) and "forward" not in vars(pipe.unet)


@pytest.mark.parametrize(
    ("options", "steps", "made"),
    [({"level": 1e6}, 6, 1), ({}, 2, 0)],
    ids=["a later step has signal", "all is decided at the next"],
)
def test_rounds_wait_for_signal_unless_all_is_decided_at_the_next_step(options, steps, made):
    how = {"name": "SD3", "guided": True, "steps": steps}
    spy = spied(CASES["SD3"].make(), making(**options), **how)
    assert spy.changed == [made]
    assert spy.levels[0][0].signal == 0 and (spy.levels[0][1].ratio < CFG_STOP) == (made == 0)


@pytest.mark.parametrize("kind", DETERMINISTIC)
def test_rounds_are_made_in_the_last_step_if_no_earlier_one_is_low_enough(sdxl, kind):
    spy = spied(with_scheduler(sdxl, kind), making(level=1e-6), steps=3)
    assert spy.changed == [len(spy.before) - 1]


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_network_is_evaluated_once_a_step_and_once_a_round(sdxl, rounds):
    assert evaluations(sdxl, making(rounds)) == [3] * (6 + rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steps"), [("DDIM", 12), ("DDIM", 40), ("EulerDiscrete", 12)])
def test_cfg_is_off_before_rounds_and_down_to_low_noise_after(sdxl, kind, steps):
    pipe, guidance = with_scheduler(sdxl, kind), making(level=0.25)
    spy = spied(pipe, guidance, steps=steps, guided=True)
    [made] = spy.changed
    after = [6 if start.ratio > CFG_STOP else 3 for start, _ in spy.levels[made + 1 :]]
    assert made > 1 and 2 < after.count(6) < len(after)
    how = {"steps": steps, "guided": True}
    before = [6] + [3] * made
    assert evaluations(pipe, guidance, **how) == before + [3] * ROUNDS + after
    without = evaluations(pipe, making(level=0.25, cfg=0.0), **how)
    assert without == before + [3] * (ROUNDS + len(after))
    low = evaluations(pipe, making(level=0.25, diversity=0.25), **how)
    assert low == [6] * (made + 1) + [3] * ROUNDS + after


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_call_takes_fewer_evaluations_than_the_stock_call_and_says_its_rounds(sdxl, kind, caplog):
    caplog.set_level("INFO", "vendi_guidance")
    pipe = with_scheduler(sdxl, kind)
    how = {"steps": 20, "guided": True}
    stock, usual, more = (
        sum(evaluations(pipe, guidance, **how)) / 3
        for guidance in (None, *(making(it, level=0.25) for it in (None, 12)))
    )
    assert usual <= stock and usual == more - 12 + budget.USUAL
    ours = [it.getMessage() for it in caplog.records if it.name.startswith("vendi_guidance")]
    rounds = [it.partition(" at noise")[0] for it in ours if " rounds at" in it]
    assert rounds == [f"{budget.USUAL} rounds", "12 rounds"]


def test_a_short_call_with_cfg_has_as_many_rounds_as_a_longer_one_without(sdxl):
    guidance = VendiGuidance(proposal="gradient", level=0.25)
    short = evaluations(sdxl, guidance, steps=5, guided=True)
    assert 3 * (5 + budget.USUAL) <= sum(short) <= 3 * (2 * 5 + budget.USUAL)
    rows = evaluations(sdxl, guidance, steps=12)
    assert rows == [3] * (12 + budget.USUAL)


def test_a_guided_call_reads_few_numbers_beside_those_of_the_stock_call(sdxl):
    with Launches() as stock:
        draw(sdxl, steps=16, guided=True)
    with Launches() as guided:
        draw(sdxl, VendiGuidance(), steps=16, guided=True)
    assert guided.waits <= stock.waits + 150


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["vendi", "rke", "conditional-vendi", "conditional-rke"])
@pytest.mark.parametrize("space", ["latent", "denoised"])
@pytest.mark.parametrize("exemplars", [None, torch.ones(4, *CASES["SDXL"].latent)])
def test_every_objective_and_space_can_be_raised_in_rounds(sdxl, objective, space, exemplars):
    guidance = making(objective=objective, space=space, exemplars=exemplars)
    first, second = (draw(sdxl, guidance) for _ in range(2))
    assert first.isfinite().all() and second.isfinite().all() and guidance.skipped == 0
    assert not torch.allclose(first, draw(sdxl), atol=1e-2) and len(guidance.window) == 6


def test_with_the_memory_of_a_call_the_window_given_still_counts(sdxl):
    session, own = making(), making(memory="call")
    draw(sdxl, session)
    seen = session.window
    guidance = making(memory="call", window=seen)
    first = draw(sdxl, guidance)
    assert torch.equal(draw(sdxl, guidance), first) and len(seen) == 3
    assert not torch.equal(draw(sdxl, own), first)


def spoil(pipe, monkeypatch, value, at=None, samples=0):
    """The network says NaN or infinity for these samples, at evaluation `at` or at all."""
    forward, made = pipe.unet.forward, []

    def broken(*args, **kwargs):
        made.append(1)
        [output] = forward(*args, **kwargs)
        if at is None or len(made) == at:
            output = output.clone()
            output[samples, 0, 0, 0] = value
        return (output,)

    monkeypatch.setattr(pipe.unet, "forward", broken)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(("at", "broken"), [*((at, 1) for at in (None, 1, 2, 3, 6)), (None, 3)])
@pytest.mark.parametrize("objective", ["conditional-vendi", "rke"])
def test_broken_samples_leave_others_whole(sdxl, monkeypatch, caplog, value, at, broken, objective):
    guidance = making(objective=objective)
    spoil(sdxl, monkeypatch, value, at, samples=slice(broken))
    with caplog.at_level(logging.WARNING):
        final = draw(sdxl, guidance)
    assert final[broken:].isfinite().all()
    assert guidance.skipped > 0
    assert sum("NaN or infinity" in message for message in caplog.messages) == 1
    assert len(guidance.window) == final.flatten(1).isfinite().all(dim=1).sum()
    assert guidance.window.features.isfinite().all()


def test_a_pipeline_that_changes_its_networks_output_is_told_what_to_use(sdxl):
    sdxl.unet.register_forward_hook(lambda module, args, output: (output[0].roll(1, 0),))
    with pytest.raises(ValueError, match=r'use VendiGuidance\(Published\(\)\) or preset="publ'):
        draw(sdxl, making())
    assert draw(sdxl, VendiGuidance(preset="published")).isfinite().all()


@pytest.mark.slow
def test_the_dial_makes_pictures_of_a_prompt_more_diverse():
    pipe = StableDiffusionXLPipeline.from_pretrained(DEMO)

    def call(position):
        guidance = VendiGuidance(proposal="gradient", diversity=position)
        given = {"num_inference_steps": 8, "generator": [seeded(seed) for seed in range(8)]}
        given |= {"output_type": "latent", **guidance.on(pipe)}
        return diversity(pipe(["waving hand"] * 8, **given).images)

    off, low, half, full = map(call, (0, 0.25, 0.5, 1))
    assert 1.2 * off < low < 0.8 * min(half, full)


def test_one_image_that_differs_says_what_a_prompt_leaves_open():
    clean = torch.zeros(6, 1, 1, 2)
    clean[1] = torch.tensor([3.0, 4.0])
    clean[4:] = torch.tensor([torch.nan, torch.inf])  # broken, and so not looked at
    same = torch.ones(6, 6)
    same[3] = same[:, 3] = 0  # for another prompt
    found = spread(between(clean, same)).flatten()
    torch.testing.assert_close(found[:3], torch.full((3,), OF_LARGEST * 5))
    assert found[3:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", ["LMSDiscrete", "PNDM", "DDIM"])
def test_one_broken_prediction_breaks_no_sample_of_any_dtype(sdxl, kind, dtype, monkeypatch):
    pipe, predicted = with_scheduler(sdxl.to(dtype=dtype), kind), []

    def broken(network, *args, inner=Network.denoise, **kwargs):
        clean = inner(network, *args, **kwargs)
        predicted.append(clean)
        clean[0] = torch.nan if len(predicted) == ROUNDS else clean[0]
        return clean

    monkeypatch.setattr(Network, "denoise", broken)
    given = CASES["SDXL"].arguments(PROMPTS, guided=True)
    tensors = {name: it.to(dtype) for name, it in given.items() if torch.is_tensor(it)}
    spy = spied(pipe, making(), guided=True, **tensors)
    [made] = spy.changed
    assert torch.equal(spy.before[made][0], spy.after[made][0]) and len(predicted) == ROUNDS
    assert spy.after[-1].isfinite().all()
    assert {latents.dtype for latents in (*spy.before, *spy.after)} == {dtype}


@pytest.mark.parametrize(
    ("cfg", "count", "settings", "expected"),
    [
        (2, 16, {}, 8),
        (2, 16, {"diversity": 0.75}, 12),
        (2, 16, {"diversity": 1.0}, 16),
        (2, 16, {"diversity": 1e-9}, 1),
        (2, 2, {"diversity": 1.0}, 4),
        (2, 16, {"rounds": 3}, 3),
        *((1, n, {}, it) for n, it in ((2, 2), (4, 4), (9, 4), (10, 8))),
    ],
)
def test_the_dial_and_short_calls_decide_how_many_rounds_are_made(cfg, count, settings, expected):
    network, settings = AnyNetwork(9.0, 8.0), Rounds(**settings)
    network.evaluations_per_step = cfg
    step = Step(2, count, torch.ones(2, 4), network=network)
    facts = Facts.of(step, Memory(9).score(settings, None), settings)
    assert budget.affordable(facts, settings) == expected
