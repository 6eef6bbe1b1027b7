"""Callbacks that people wrote, which change a call midway, beside guidance."""

from functools import partial

import pytest
from diffusers.callbacks import SD3CFGCutoffCallback, SDXLCFGCutoffCallback
from torch.nn.functional import interpolate

from tests.adapter.test_denoiser import module_of
from tests.adapter.test_mixins import make
from tests.guidance.test_engine import seeded
from tests.helpers.tiny_pipelines import CASES, JOINT, evaluations
from vendi_guidance import VendiGuidance

pytestmark = pytest.mark.usefixtures("far_target")

STEPS = 12
CONDITIONS = ["prompt_embeds", "add_text_embeds", "add_time_ids", "pooled_prompt_embeds"]
IN_ONE_BATCH = ["SD 1.5", "SDXL", "Kolors", "SD3", "Sana", "Z-Image", "LTX", "AnimateDiff"]
IN_TWO_EVALUATIONS = ["Chroma", "CogView4", "Wan", "Flux 2 Klein"]  # Flux's is fixed
IN_PLACE = ["PixArt-alpha", "PixArt-Sigma"]


def guided(name, change, guidance=None):
    """Latents of a guided call, and the rows that each step evaluates. `change(pipe, step,
    tensors)` changes the dictionary of a callback's tensors."""
    case, guidance, steps = CASES[name], guidance or VendiGuidance(), []
    pipe = make(name, guided=not case.callback)

    def callback(pipe, index, timestep, tensors):
        steps.append(rows.copy())
        rows.clear()
        change(pipe, index, tensors)
        return tensors

    given = case.arguments([0, 1], guided=True)
    given |= {"num_inference_steps": STEPS, "generator": seeded(5)}
    if case.callback:
        offered = set(pipe._callback_tensor_inputs)
        inputs = ["latents", *(it for it in CONDITIONS if it in offered)]
        given |= guidance.on(pipe, callback=callback, callback_tensor_inputs=inputs)
    else:
        pipe.guidance = guidance
        given["callback"] = lambda index, t, latents: callback(pipe, index, t, {"latents": latents})
    with evaluations(module_of(pipe)) as rows:
        return pipe(**given)[0], steps


def cut_off(pipe, index, tensors, at):
    """The recipe of diffusers' documentation for "dynamic CFG"."""
    if index == at:
        pipe._guidance_scale = 0.0
        for name, value in tensors.items():
            if name != "latents" and len(value) >= 2 * len(tensors["latents"]):
                halves = value[: len(value) // 2], value[len(value) // 2 :]
                tensors[name] = halves[not isinstance(value, list)]  # Z-Image: prompts first


@pytest.mark.parametrize("at", [1, 4, 7])  # 4: CFG is at part of its scale, with a difference kept
@pytest.mark.parametrize("name", IN_ONE_BATCH + IN_TWO_EVALUATIONS + IN_PLACE)
def test_cfg_that_a_callback_turns_off_midway_stays_off(name, at):
    guidance = VendiGuidance()
    latents, steps = guided(name, partial(cut_off, at=at), guidance)
    [once] = steps[-1:]
    assert latents.isfinite().all() and len(guidance.window) == 2
    assert steps[-3:] == [once] * 3
    assert 2 * sum(once) + sum(once) == sum(steps[0])  # lone images ask how far another would be


@pytest.mark.parametrize("at", [0.1, 0.4])
@pytest.mark.parametrize(
    ("name", "cutoff"), [("SDXL", SDXLCFGCutoffCallback), ("SD3", SD3CFGCutoffCallback)]
)
def test_the_cutoffs_of_diffusers_work_beside_guidance(name, cutoff, at):
    pipe, guidance = make(name, guided=False), VendiGuidance()
    for _ in range(2):  # the second differs from the first; these callbacks are for one image
        given = CASES[name].arguments([0], guided=True) | {"num_inference_steps": STEPS}
        given |= guidance.on(pipe, callback=cutoff(cutoff_step_ratio=at))
        with evaluations(module_of(pipe)) as rows:
            assert pipe(**given)[0].isfinite().all()
        assert rows[0] == 2 and rows[-1] == 1
    assert len(guidance.window) == 2


def fewer(pipe, index, tensors, at):
    """Keep the first image only."""
    if index == at:
        for name, value in tensors.items():
            tensors[name] = value[:: 2 if len(value) > 2 else len(value)]


def larger(pipe, index, tensors, at):
    if index == at:
        tensors["latents"] = interpolate(tensors["latents"], scale_factor=2)


@pytest.mark.parametrize("at", [0, 3, 4, 5, 9])
@pytest.mark.parametrize("change", [fewer, larger])
@pytest.mark.parametrize("name", ["SDXL", "SD3"])
def test_a_callback_may_change_the_number_and_the_size_of_images(name, change, at):
    guidance = VendiGuidance()
    latents, steps = guided(name, partial(change, at=at), guidance)
    assert latents.shape == ((1, 4, 8, 8) if change is fewer else (2, 4, 16, 16))
    assert latents.isfinite().all() and len(guidance.window) == len(latents)
    rows = 2 if name in JOINT else 1  # CFG is on at the end of own steps
    assert steps[-1] == [rows * len(latents)]


def less_noise(pipe, index, tensors):
    if index == 0:
        pipe.scheduler.sigmas[2:] *= 0.9


@pytest.mark.parametrize("name", ["Sana", "Lumina2"])
def test_rounds_are_made_if_a_callback_changes_the_noise_levels_to_come(name):
    latents, steps = guided(name, less_noise)
    assert latents.isfinite().all() and max(map(len, steps)) > 2
