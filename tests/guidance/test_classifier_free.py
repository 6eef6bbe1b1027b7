"""CFG that begins late, on tiny pipelines of many kinds."""

from functools import cache

import pytest
import torch

from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.guidance.classifier_free import CFG_OFF, READ_SCALE_AT_EACH_STEP

PROMPTS = [0, 1]
SCALE = 3.0

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:diffusers.*")


@cache
def pipeline(name):
    return CASES[name].make()


def can_rest(name):
    return any(base.__name__ in READ_SCALE_AT_EACH_STEP for base in type(pipeline(name)).__mro__)


WITH_CALLBACK = [name for name, case in CASES.items() if case.callback]
CAN_REST = [name for name in WITH_CALLBACK if can_rest(name)]
CANNOT_REST = [name for name in WITH_CALLBACK if name not in CAN_REST]


def latents(name, guidance_scale, callback=None, **given):
    """Of a call at this scale."""
    given = CASES[name].arguments(PROMPTS, guided=True) | given
    given["guidance_scale"] = guidance_scale
    return pipeline(name)(**given, **({"callback_on_step_end": callback} if callback else {}))[0]


def late(cfg_start, scale=1e-12, **given):
    """Guidance that moves nothing, but for classifier-free guidance."""
    return VendiGuidance("rke", scale, every=100, preset="published", cfg_start=cfg_start, **given)


def rested(name, guidance, on=True):
    if not on:
        return latents(name, SCALE, guidance)
    return latents(name, **guidance.on(pipeline(name), guidance_scale=SCALE))


def scales_seen(pipe, guidance, steps, guidance_scale=SCALE):
    """Those at which each step of a call is made."""
    seen = []
    given = guidance.on(pipe, guidance_scale=guidance_scale)
    callback = given.pop("callback_on_step_end")

    def spy(pipe, index, timestep, tensors):
        seen.append(pipe.guidance_scale)
        return callback(pipe, index, timestep, tensors)

    arguments = CASES["SDXL"].arguments(PROMPTS, guided=True) | given
    pipe(**arguments | {"num_inference_steps": steps}, callback_on_step_end=spy)
    return seen


def test_most_pipelines_that_can_be_told_are_here():
    named = {type(pipeline(name)).__name__ for name in CAN_REST}
    assert named == READ_SCALE_AT_EACH_STEP


@pytest.mark.parametrize("name", CAN_REST)
def test_at_rest_all_the_way_is_a_call_at_scale_one(name):
    assert not torch.allclose(latents(name, SCALE), latents(name, CFG_OFF), atol=1e-3)
    assert torch.allclose(rested(name, late(1.0)), latents(name, CFG_OFF), atol=1e-5)


@pytest.mark.parametrize("name", CAN_REST)
def test_a_resting_step_takes_the_prediction_for_the_prompt_as_it_is(name):
    no_negative = latents(name, 1.0)
    assert torch.allclose(latents(name, CFG_OFF), no_negative, atol=1e-4)
    assert not torch.allclose(latents(name, SCALE), no_negative, atol=1e-3)


@pytest.mark.parametrize("name", CAN_REST)
def test_a_bare_callback_lets_all_but_the_first_step_rest(name):
    found = rested(name, late(1.0), on=False)
    for other in (latents(name, SCALE), latents(name, CFG_OFF)):
        assert not torch.allclose(found, other, atol=1e-4)


@pytest.mark.parametrize("name", CANNOT_REST)
def test_pipelines_that_cannot_be_told_are_refused(name):
    with pytest.raises(
        ValueError, match=f"cfg_start has to be 0: a {type(pipeline(name)).__name__}"
    ):
        late(0.5).on(pipeline(name))


def unasked():
    """The same, with nothing said of classifier-free guidance."""
    given = {"space": "latent", "step_rule": "normalized", "renoise_start": 0, "renoise_stop": 0}
    return VendiGuidance("rke", 1e-12, **given)


def test_unless_asked_it_rests_for_three_tenths_of_the_steps():
    assert scales_seen(pipeline("SDXL"), unasked(), steps=6) == [CFG_OFF] * 2 + [SCALE] * 4


@pytest.mark.parametrize("name", CANNOT_REST)
def test_unless_asked_pipelines_that_cannot_be_told_are_left_alone(name):
    assert torch.allclose(rested(name, unasked()), latents(name, SCALE), atol=1e-5)


@pytest.mark.parametrize(
    ("cfg_start", "resting"), [(0.0, 0), (0.05, 1), (0.5, 3), (0.51, 4), (1.0, 6)]
)
def test_it_rests_at_the_steps_that_begin_before_its_start(cfg_start, resting):
    seen = scales_seen(pipeline("SDXL"), late(cfg_start), steps=6)
    assert seen == [CFG_OFF] * resting + [SCALE] * (6 - resting)


def test_every_call_has_its_own_scale():
    pipe, guidance = pipeline("SDXL"), late(0.5)
    for scale in (4.0, 2.0):
        assert scales_seen(pipe, guidance, 2, scale) == [CFG_OFF, scale]


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_there_is_nothing_to_rest_without_classifier_free_guidance(scale):
    pipe, guidance = pipeline("SDXL"), late(0.5)
    scales_seen(pipe, guidance, 2)
    assert scales_seen(pipe, guidance, 2, scale) == [scale] * 2


def test_scale_zero_is_the_stock_pipeline():
    assert torch.equal(rested("SDXL", late(0.5, scale=0.0)), latents("SDXL", SCALE))


@pytest.mark.parametrize("cfg_start", [-0.1, 1.1, float("nan")])
def test_a_start_is_a_share_of_the_steps(cfg_start):
    with pytest.raises(ValueError, match=f"cfg_start .* got {cfg_start}"):
        late(cfg_start)
