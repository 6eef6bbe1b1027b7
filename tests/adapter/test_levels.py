"""Levels that a schedule does not have: their timesteps, and what the network predicts there."""

import math

import diffusers
import pytest
import torch

from tests.adapter.test_denoiser import NAMES, SCHEDULERS, call, pipeline, watching
from tests.adapter.test_schedule import (
    DETERMINISTIC,
    EPS,
    EVEN,
    MIDWAY_WRONG,
    STOCHASTIC,
    X0,
    E,
    F,
    V,
    cases,
    perfect_steps,
    ready,
    stated_level,
)
from tests.helpers.tiny_pipelines import CASES, with_scheduler
from vendi_guidance.adapter.schedule import Watch, can_continue, continue_from_here
from vendi_guidance.guidance.step import Level

KARRAS, EXPONENTIAL = {"use_karras_sigmas": True}, {"use_exponential_sigmas": True}
ZERO_SNR = {"rescale_betas_zero_snr": True}
SPACED = [
    *[(name, KARRAS, (E,)) for name in ("HeunDiscrete", "KDPM2Discrete", "LMSDiscrete")],
    *[(name, KARRAS, (E,)) for name in ("DPMSolverSDE", "DEISMultistep", "UniPCMultistep")],
    *[(name, EXPONENTIAL, (E,)) for name in ("EulerDiscrete", "DPMSolverMultistep")],
    ("EulerDiscrete", ZERO_SNR | EVEN, (V,)),
    ("TCD", ZERO_SNR, (V,)),
    ("FlowMatchEulerDiscrete", {"shift": 3.0, "shift_terminal": 0.1}, (F,)),
    ("FlowMatchEulerDiscrete", KARRAS, (F,)),
    ("FlowMatchEulerDiscrete", {"use_dynamic_shifting": True}, (F,)),
]


@pytest.mark.parametrize(
    ("name", "options", "kind"), cases(DETERMINISTIC + STOCHASTIC, 1) + cases(SPACED)
)
def test_each_level_of_the_schedule_has_the_schedules_timestep(name, options, kind):
    scheduler, timesteps = ready(name, options, kind)
    off = 1.0 if options == EXPONENTIAL else 0.5 if options == KARRAS else 0.03
    with Watch(scheduler) as watch:
        for timestep in timesteps:
            scheduler.step(EPS, timestep, X0)
            level = watch.levels[0]
            found = watch.timestep_at(level)
            assert found == pytest.approx(float(timestep), abs=off)
            assert timesteps.is_floating_point() or isinstance(found, int)
            if level.ratio < watch.at(math.inf).ratio:
                assert watch.at(level.ratio) == pytest.approx(level, rel=1e-6)


@pytest.mark.parametrize(("name", "ratio"), [("DDIM", math.inf), ("EulerDiscrete", 4096)])
def test_the_levels_before_a_last_timestep_without_signal_are_finite(name, ratio):
    scheduler, _ = ready(name, ZERO_SNR | EVEN, V)
    watch = Watch(scheduler)
    alpha = float(scheduler.alphas_cumprod[-2])
    level = watch.at(1.5 * math.sqrt(1 / alpha - 1))
    assert watch.at(math.inf).ratio == pytest.approx(ratio) and level.ratio < ratio
    assert 998 <= watch.timestep_at(level) <= 999 == watch.timestep_at(watch.at(math.inf))


REMEMBER = (*MIDWAY_WRONG, "DEISMultistep", "DPMSolverMultistep", "UniPCMultistep")
"""Schedulers that use earlier predictions."""

OTHERS = [row for row in [*DETERMINISTIC, *STOCHASTIC, *SPACED] if row[0] not in REMEMBER]
MULTISTEP = [row for row in [*DETERMINISTIC, *SPACED] if row[0] in REMEMBER]


def inserted(name, options, kind):
    """A scheduler after its first steps and an insertion, the timesteps left, and the latents."""
    scheduler, timesteps = ready(name, options, kind)
    clean, noise = X0.flip(-1), EPS.flip(-1)
    with Watch(scheduler) as watch:
        for index, _ in enumerate(perfect_steps(scheduler, timesteps, kind)):
            if index > 1 and can_continue(scheduler):
                break
        continue_from_here(scheduler)
        watch.restart(clean, noise)
        return scheduler, index + 1, watch.levels[1].mix(clean, noise)


def go_on(scheduler, timesteps, sample):
    """The samples of the steps left, with a network that answers to the latents."""
    torch.manual_seed(8)
    for timestep in timesteps:
        sample = scheduler.step(sample.tanh(), timestep, sample, return_dict=False)[0]
        yield sample


@pytest.mark.parametrize(("name", "options", "kind"), cases(OTHERS, 1))
def test_after_an_insertion_a_scheduler_goes_on_as_if_started_there(name, options, kind):
    scheduler, begin, latents = inserted(name, options, kind)
    fresh, timesteps = ready(name, options, kind, begin=begin)
    found, expected = (list(go_on(each, timesteps, latents)) for each in (scheduler, fresh))
    assert len(expected) > 2
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "options", "kind"), cases(MULTISTEP))
def test_those_that_remember_go_on_as_if_they_had_found_the_same_before(name, options, kind):
    scheduler, begin, latents = inserted(name, options, kind)
    clean, noise = X0.flip(-1), EPS.flip(-1)
    with Watch(scheduler) as watch:
        for timestep in scheduler.timesteps[begin:]:
            level = Level(*stated_level(scheduler, timestep))
            output = watch.output(clean, noise, level)
            latents = scheduler.step(output, timestep, latents, return_dict=False)[0]
            expected = watch.levels[1].mix(clean, noise)
            torch.testing.assert_close(latents, expected, atol=1e-4, rtol=0)


def test_samples_that_stay_go_on_as_without_guidance():
    """With DPM-Solver++, most people's choice, which remembers predictions of clean latents."""
    found = []
    for restarts in (False, True):
        scheduler, timesteps = ready("DPMSolverMultistep", {}, E)
        with Watch(scheduler) as watch:
            for sample in go_on(scheduler, timesteps, X0 + EPS):
                found.append(sample)
                if restarts:
                    clean = watch.prediction.denoised
                    watch.restart(clean, torch.zeros_like(clean))
    plain, restarted = torch.stack(found).chunk(2)
    torch.testing.assert_close(restarted, plain, rtol=1e-5, atol=1e-4)


def recorded(name, pipe, steps):
    """By step of an unguided call: latents, their level, and the prediction."""
    found = []

    def at_step(index, latents):
        found.append((watch.step.sample, watch.levels[0], watch.prediction.denoised))

    with watching(pipe, cfg=0.0) as (_, watch):
        call(name, pipe, at_step, guided=False, num_inference_steps=steps)
    return found


def predicted(name, pipe, steps, pairs, guided):
    """What another call's network predicts for (latents, level)."""
    found = []

    def at_step(index, latents):
        if index == 1:
            found.extend(network.denoise(latents, level) for latents, level in pairs)

    with watching(pipe, cfg=0.0) as (network, _):
        call(name, pipe, at_step, guided=guided, num_inference_steps=steps)
    return found


def check_levels(name, pipe, guided=False, tolerance=1e-3):
    """That a schedule of 3 steps has predictions at the levels of one of 5."""
    known = recorded(name, pipe, 5)
    found = predicted(name, pipe, 3, [pair[:2] for pair in known], guided)
    assert found and len(found) == len(known)
    for prediction, (_, _, expected) in zip(found, known, strict=True):
        torch.testing.assert_close(prediction, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "guided"), [(n, g) for n in NAMES for g in (False, True) if CASES[n].negative or not g]
)
def test_a_prediction_at_a_level_is_that_of_a_schedule_that_has_the_level(name, guided):
    check_levels(name, pipeline(name), guided)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_so_it_is_with_every_scheduler(sdxl, kind):
    with_scheduler(sdxl, kind, skip_prk_steps=True)
    check_levels("SDXL", sdxl, tolerance=5e-3)  # some round the timesteps of their sigmas


def test_a_pipeline_that_tells_its_network_another_time_is_refused(sdxl):
    sdxl.unet.register_forward_pre_hook(lambda module, args: (args[0], 3 * args[1], *args[2:]))
    with pytest.raises(ValueError, match=r"timestep 1002 .* scheduler's is 334"):
        predicted("SDXL", sdxl, 3, [(torch.ones(2, 4, 8, 8), Level(0.6, 0.8))], guided=False)


class Halved(diffusers.FlowMatchEulerDiscreteScheduler):
    def set_timesteps(self, *args, **kwargs):
        super().set_timesteps(*args, **kwargs)
        self.timesteps = self.timesteps / 2


def test_a_schedule_whose_timesteps_are_not_those_of_its_levels_is_refused():
    pipe = CASES["SD3"].make()
    pipe.scheduler = Halved()
    with pytest.raises(ValueError, match=r"is 250\.25 and that of its noise level 500\.5"):
        predicted("SD3", pipe, 3, [(torch.ones(2, 4, 8, 8), Level(0.1, 0.9))], guided=False)
