"""What a watched scheduler says of x0 and of its noise levels, against networks that know both."""

import copy
import gc
import inspect
import math
import pickle
import sys
import weakref
from types import ModuleType, SimpleNamespace
from unittest import mock

import diffusers
import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from tests.helpers.launches import Launches
from tests.helpers.tiny_pipelines import CASES, with_scheduler
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.levels import SCHEDULERS
from vendi_guidance.adapter.schedule import Watch, can_continue

with mock.patch.dict(sys.modules, torchsde=ModuleType("torchsde")):  # only for its noise
    from diffusers.schedulers.scheduling_dpmsolver_sde import DPMSolverSDEScheduler

SHAPE = (1, 4, 64, 64)
LATENT = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
FLOW = {"use_flow_sigmas": True, "flow_shift": 3.0}
SDE = {"algorithm_type": "sde-dpmsolver++"}
EVEN = {"timestep_spacing": "trailing"}
E, V, X, F = "epsilon", "v_prediction", "sample", "flow_prediction"

DETERMINISTIC = [
    ("DDIM", EVEN, (E, V, X)),
    ("DDIM", {"timestep_spacing": "leading", "steps_offset": 1, "set_alpha_to_one": False}, (E,)),
    ("DDIM", {"rescale_betas_zero_snr": True} | EVEN, (V,)),
    ("PNDM", {}, (E,)),
    ("PNDM", {"skip_prk_steps": True}, (E,)),
    ("EulerDiscrete", {}, (E, V, X)),
    ("EulerDiscrete", {"use_karras_sigmas": True, "final_sigmas_type": "sigma_min"}, (E,)),
    ("EulerDiscrete", {"timestep_type": "continuous"}, (V,)),
    ("HeunDiscrete", {}, (E, V, X)),
    ("KDPM2Discrete", {}, (E, V)),
    ("LMSDiscrete", {}, (E, V, X)),
    ("DEISMultistep", {}, (E, V, X)),
    ("DEISMultistep", FLOW, (F,)),
    ("DPMSolverMultistep", {}, (E, V, X)),
    ("DPMSolverMultistep", {"solver_order": 3, "use_karras_sigmas": True}, (E,)),
    ("DPMSolverMultistep", {"algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}, (E,)),
    ("DPMSolverMultistep", FLOW, (F, E, X)),
    ("DPMSolverSinglestep", {"lower_order_final": True}, (E, V, X)),
    ("DPMSolverSinglestep", {"lower_order_final": True, "solver_order": 3}, (E,)),
    ("DPMSolverSinglestep", {"lower_order_final": True} | FLOW, (F,)),
    ("UniPCMultistep", {}, (E, V, X)),
    ("UniPCMultistep", {"predict_x0": False, "final_sigmas_type": "sigma_min"}, (E,)),
    ("UniPCMultistep", FLOW, (F,)),
    ("FlowMatchEulerDiscrete", {"shift": 3.0}, (F,)),
    ("FlowMatchHeunDiscrete", {"shift": 3.0}, (F,)),
]
STOCHASTIC = [
    ("DDPM", EVEN, (E, V, X)),
    ("EulerAncestralDiscrete", {}, (E, V)),
    ("KDPM2AncestralDiscrete", {}, (E, V)),
    ("DPMSolverSDE", {}, (E, V)),
    ("DPMSolverMultistep", SDE, (E, V, X)),
    ("DPMSolverMultistep", SDE | FLOW, (F,)),
    ("DPMSolverSinglestep", {"lower_order_final": True} | SDE, (E,)),
    ("LCM", {}, (E, V, X)),
    ("LCM", {"set_alpha_to_one": False}, (E,)),
    ("TCD", {}, (E, V, X)),
    ("FlowMatchEulerDiscrete", {"stochastic_sampling": True}, (F,)),
]
# in diffusers itself: PNDM counts steps from 0 wherever it starts, so a start midway takes the
# first steps again; LMS takes coefficients of an order that it has no derivatives for
MIDWAY_WRONG = ["PNDM", "LMSDiscrete"]
SECOND_ORDER = ["HeunDiscrete", "KDPM2Discrete", "KDPM2AncestralDiscrete", "DPMSolverSDE"]


def cases(rows, kinds_each=3):
    return [
        pytest.param(name, options, kind, id="-".join([name, *map(str, options), kind]))
        for name, options, kinds in rows
        for kind in kinds[:kinds_each]
    ]


def starts(rows):
    """The cases from the first step, and from the third where diffusers itself can start there."""
    return [
        pytest.param(*case.values, begin, id=f"{case.id}-{begin}")
        for begin in (0, 2)
        for case in cases(rows)
        if not (begin and case.values[0] in MIDWAY_WRONG)
    ]


def ready(name, options, kind, steps=10, begin=0):
    """A scheduler about to sample, and its timesteps from number `begin` on."""
    of = DPMSolverSDEScheduler if name == "DPMSolverSDE" else getattr(diffusers, f"{name}Scheduler")
    given = {"prediction_type": kind, "clip_sample": False, **LATENT, **options}
    known = inspect.signature(of.__init__).parameters
    scheduler = of(**{key: value for key, value in given.items() if key in known})
    shift = {"mu": 1.15} if "use_dynamic_shifting" in options else {}
    scheduler.set_timesteps(steps, device=X0.device, **shift)
    if begin and hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(begin)
    if name == "DPMSolverSDE":
        scheduler.noise_sampler = lambda *_: torch.randn(SHAPE, dtype=torch.float64)
    return scheduler, scheduler.timesteps[begin:]


def normal(seed):
    r = torch.Generator().manual_seed(seed)
    return torch.randn(SHAPE, generator=r, dtype=torch.float64)


X0, EPS = 1.5 * normal(0), normal(1)


def stated_level(scheduler, timestep):
    """(a, s) at a timestep, as the scheduler's own input scaling or forward process has it."""
    if not hasattr(scheduler, "add_noise"):
        return 1 - timestep.item() / 1000, timestep.item() / 1000
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    scaled = scheduler.scale_model_input(one, timestep).item()  # by sqrt(1 + sigma^2), midway too
    if scaled < 1:
        return 1.0, math.sqrt(1 / scaled**2 - 1)
    level = (scheduler.add_noise(*pair, timestep.view(1)) for pair in ((one, zero), (zero, one)))
    return tuple(number.item() for number in level)


def perfect_output(kind, eps, level):
    """What a network says that knows x0 and eps."""
    signal, noise = (number / math.hypot(*level) for number in level)
    return {E: eps, X: X0, F: eps - X0, V: signal * eps - noise * X0}[kind]


def perfect_steps(scheduler, timesteps, kind, eps=None, **arguments):
    """(sample, prediction) after each step; `eps` is given if it stays the same."""
    torch.manual_seed(2)
    sample = None
    with Watch(scheduler) as watch:
        for timestep in timesteps:
            signal, noise = level = stated_level(scheduler, timestep)
            sample = signal * X0 + noise * EPS if sample is None else sample
            own = (sample - signal * X0) / noise if eps is None else eps
            output = perfect_output(kind, own, level)
            sample = scheduler.step(output, timestep, sample, return_dict=False, **arguments)[0]
            yield sample, watch.prediction


@pytest.mark.parametrize(("name", "options", "kind", "begin"), starts(DETERMINISTIC))
def test_a_perfect_network_gives_x0_and_a_sample_at_the_level_said(name, options, kind, begin):
    run = perfect_steps(*ready(name, options, kind, begin=begin), kind, EPS)
    for sample, (denoised, signal, noise) in run:
        torch.testing.assert_close(denoised, X0, atol=1e-4, rtol=0)
        torch.testing.assert_close(sample.double(), signal * X0 + noise * EPS, atol=1e-4, rtol=0)


@pytest.mark.parametrize("begin", [0, 2])
@pytest.mark.parametrize(
    ("name", "options", "kind"), [*cases(STOCHASTIC), *cases([("DDIM", EVEN, (E,))])]
)
def test_a_stochastic_sampler_leaves_as_much_noise_as_said(name, options, kind, begin):
    more = {"eta": 1.0} if name == "DDIM" else {}
    for sample, prediction in perfect_steps(*ready(name, options, kind, begin=begin), kind, **more):
        denoised, signal, noise = prediction
        torch.testing.assert_close(denoised, X0, atol=1e-4, rtol=0)
        left = sample - signal * X0
        assert left.std().item() == pytest.approx(noise, rel=0.03, abs=1e-4)
        assert abs((left * X0).mean().item()) < 0.06 * noise + 1e-4  # five standard deviations


def sampled(scheduler, timesteps):
    """All samples of a run with a network that answers to them, and the random numbers after it."""
    generator, samples = torch.Generator().manual_seed(4), [normal(5)]
    torch.manual_seed(6)
    takes = inspect.signature(scheduler.step).parameters  # pipelines look here too
    extra = {"generator": generator} if "generator" in takes else {}
    for timestep in timesteps:
        output = samples[-1].tanh() + 0.1 * EPS
        samples += scheduler.step(output, timestep, samples[-1], return_dict=False, **extra)[:1]
        yield samples[-1]
    yield torch.stack([generator.get_state(), torch.get_rng_state()])


@pytest.mark.parametrize(("name", "options", "kind"), cases(DETERMINISTIC + STOCHASTIC, 1))
def test_a_watched_scheduler_gives_the_same_bits_and_is_left_as_it_was(name, options, kind):
    (plain, timesteps), (watched, _) = (ready(name, options, kind) for _ in range(2))
    samples = list(sampled(plain, timesteps))
    with Watch(watched) as watch:
        with pytest.raises(RuntimeError, match="no step"):
            _ = watch.prediction
        for sample, other in zip(sampled(watched, timesteps), samples, strict=True):
            assert torch.equal(sample.nan_to_num(), other.nan_to_num())
            assert watch.prediction is watch.prediction
    assert vars(watched).keys() == vars(plain).keys() and "step" not in vars(watched)


def test_copies_of_a_watched_scheduler_are_plain_ones():
    scheduler, timesteps = ready("DPMSolverMultistep", {}, E)
    with Watch(scheduler) as watch:
        scheduler.step(EPS, timesteps[0], normal(5))
        held = watch.prediction
        twins = copy.deepcopy(scheduler), pickle.loads(pickle.dumps(scheduler))
        samples = [twin.step(EPS, timesteps[1], normal(6)).prev_sample for twin in twins]
        assert watch.prediction is held and scheduler.step_index == 1
        before = copy.deepcopy(vars(scheduler))  # as panorama pipelines keep for each view
        own = scheduler.step(EPS, timesteps[1], normal(6)).prev_sample
        vars(scheduler).update(before)
        assert torch.equal(scheduler.step(EPS, timesteps[1], normal(6)).prev_sample, own)
        assert all(torch.equal(sample, own) for sample in samples) and watch.steps == 3


def test_only_the_last_step_is_held_until_the_watch_stops():
    scheduler, timesteps = ready("DDIM", EVEN, E)
    outputs = [EPS.clone(), EPS.clone()]
    held = [weakref.ref(output) for output in outputs]
    with Watch(scheduler) as watch:
        for timestep in timesteps[:2]:
            scheduler.step(outputs.pop(0), timestep, X0)
            _ = watch.prediction
        gc.collect()
        assert [output() is not None for output in held] == [False, True]
    gc.collect()
    assert held[1]() is None


@pytest.mark.parametrize("name", ["DDIM", "DDPM", "PNDM", "HeunDiscrete", "DPMSolverMultistep"])
def test_a_prediction_read_late_is_still_of_its_own_step(name):
    scheduler, timesteps = ready(name, {}, E)
    with Watch(scheduler) as watch:
        signal, noise = stated_level(scheduler, timesteps[0])
        scheduler.step(EPS, timesteps[0], signal * X0 + noise * EPS)
        scheduler.set_timesteps(7)
        torch.testing.assert_close(watch.prediction.denoised, X0, atol=3e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("PNDM", {"skip_prk_steps": True}, [False] + [True] * 10),
        ("PNDM", {}, [False, False, False, True] * 3 + [True] * 7),
        *[(name, {}, [False, True] * 9) for name in SECOND_ORDER],
        ("FlowMatchHeunDiscrete", {}, [False, True] * 9),
        ("DPMSolverSinglestep", {"lower_order_final": True}, [False, True] * 4),
        *[(name, {}, [True] * 9) for name in ("DDIM", "DEISMultistep", "UniPCMultistep")],
    ],
)
def test_it_continues_unless_a_step_is_to_be_made_again(name, options, expected):
    kind = F if name.startswith("FlowMatch") else E
    scheduler, timesteps = ready(name, options, kind)
    after = [can_continue(scheduler) for _ in perfect_steps(scheduler, timesteps, kind, EPS)]
    assert after[: len(expected)] == expected


class OwnStep(DDIMScheduler):
    def step(self, *args, **kwargs):
        return super().step(*args, **kwargs)


Namesake = type("DDIMScheduler", (OwnStep,), {"step": OwnStep.step, "__module__": "theirs"})


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (OwnStep(), 'for OwnStep: use preset="published"'),
        (Namesake(), "for DDIMScheduler"),
        (diffusers.EDMEulerScheduler(), "for EDMEulerScheduler: use"),
        (SimpleNamespace(), "for SimpleNamespace: use"),
        (FlowMatchEulerDiscreteScheduler(invert_sigmas=True), "with invert_sigmas"),
        (diffusers.EulerDiscreteScheduler(prediction_type="flow"), "without flow .* 'flow'"),
        (UniPCMultistepScheduler(prediction_type=F), "without flow sigmas .* 'flow_prediction'"),
        (UniPCMultistepScheduler(prediction_type=V, **FLOW), "with flow sigmas .* 'v_prediction'"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(scheduler, message):
    with pytest.raises(ValueError, match=message):
        Watch(scheduler)
    Watch(type("Renamed", (DDIMScheduler,), {})())  # whose step is DDIM's


def test_a_flow_scheduler_made_from_anothers_config_still_flows():
    config = DDIMScheduler(prediction_type=V).config
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config)
    assert scheduler.config.prediction_type == V
    scheduler.set_timesteps(4)
    for _, (denoised, *_) in perfect_steps(scheduler, scheduler.timesteps, F, EPS):
        torch.testing.assert_close(denoised, X0, atol=1e-5, rtol=0)


@pytest.mark.parametrize("argument", [{"s_churn": 0.5}, {"per_token_timesteps": torch.ones(1, 1)}])
def test_an_argument_that_changes_the_level_is_refused(argument):
    scheduler, timesteps = ready("FlowMatchEulerDiscrete", {}, F)
    with Watch(scheduler) as watch:
        scheduler.step(EPS[0], timesteps[0], X0[0], **argument)
        with pytest.raises(ValueError, match="FlowMatchEulerDiscreteScheduler with s_churn or"):
            _ = watch.prediction


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_prediction_is_not_clipped_nor_in_half_precision_and_has_no_learned_variance(dtype):
    options = {"clip_sample": True, "variance_type": "learned_range"} | EVEN
    scheduler, timesteps = ready("DDPM", options, X)
    output = (10 * EPS).to(dtype)
    with Watch(scheduler) as watch:
        scheduler.step(torch.cat([output, output], dim=1), timesteps[0], X0.to(dtype))
        torch.testing.assert_close(watch.prediction.denoised, output.float(), rtol=0, atol=0)


def test_every_family_is_tested():
    assert {f"{name}Scheduler" for name, *_ in DETERMINISTIC + STOCHASTIC} == set(SCHEDULERS)


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize(("proposal", "most"), [("steps", 1), ("gradient", 3)])
def test_most_steps_wait_for_no_device(proposal, most):
    pipe = with_scheduler(CASES["SDXL"].make(), "EulerDiscrete", timestep_spacing="trailing")
    given = CASES["SDXL"].arguments([0, 1], guided=True) | {"num_inference_steps": 12}
    scale = pipe.scheduler.scale_model_input

    def by_step(guidance):
        waits, sigmas = [], lambda: [pipe.scheduler.sigmas]
        with Launches(sigmas) as seen, mock.patch.object(pipe.scheduler, "scale_model_input") as at:
            at.side_effect = lambda *given: waits.append(seen.waits) or scale(*given)
            pipe(**given, **guidance.on(pipe))
        return torch.tensor(waits).diff()

    more = by_step(VendiGuidance(proposal=proposal)) - by_step(VendiGuidance(diversity=0))
    assert 0 < sum(more > 0) <= most
