"""Guidance in the denoised space, and at own steps, through real pipelines and schedulers."""

import math

import pytest
import torch

from tests.adapter.test_mixins import make
from tests.helpers.tiny_pipelines import CASES, evaluations, with_scheduler
from vendi_guidance import VendiGuidance
from vendi_guidance.guidance import choose
from vendi_guidance.guidance.ways import own_steps

STEPS = 6  # DDIM's last one ends at no noise at all


def draw(pipe, guidance=None, name="SDXL", steps=STEPS, guided=False, **more):
    """Latents of a call."""
    given = CASES[name].arguments([0, 0, 1], guided=guided) | {"num_inference_steps": steps}
    return pipe(**given | ({} if guidance is None else guidance.on(pipe)) | more)[0]


class Spy:
    """A callback that passes on to guidance, or to the callback of its `on`. It sees what comes in
    and goes out at each step, and between which levels a watched step lies."""

    def __init__(self, guidance, inner=None):
        self.guidance, self.inner = guidance, inner or guidance
        self.before, self.after, self.levels = [], [], []

    def __call__(self, pipe, index, timestep, tensors):
        call = self.guidance._call
        if call is not None and call.watch is not None:
            self.levels.append(call.watch.levels)
        self.before.append(tensors["latents"])
        tensors = self.inner(pipe, index, timestep, tensors)
        self.after.append(tensors["latents"])
        return tensors

    @property
    def changed(self):
        pairs = zip(self.before, self.after, strict=True)
        return [index for index, pair in enumerate(pairs) if not torch.equal(*pair)]


def spied(pipe, guidance, **how):
    given = guidance.on(pipe)
    spy = Spy(guidance, given["callback_on_step_end"])
    draw(pipe, **given | how | {"callback_on_step_end": spy})
    return spy


def denoised(**options):
    given = {"preset": "published", "scale": 0.2, "every": 1, "space": "denoised"}
    return VendiGuidance(**given | options)


@pytest.mark.parametrize("every", [1, 10])
def test_the_first_step_is_guided_with_on_and_the_second_with_the_plain_callback(sdxl, every):
    guidance = denoised(every=every)
    for _ in range(2):
        assert spied(sdxl, guidance).changed == [*range(0, STEPS - 1, every)]
        spy = Spy(guidance)
        asked = {"callback_on_step_end_tensor_inputs": guidance.tensor_inputs}
        draw(sdxl, callback_on_step_end=spy, **asked)
        assert spy.changed == [*range(1, STEPS - 1, every)]


@pytest.mark.parametrize(
    ("name", "every", "guided"),
    [
        ("DDIM", 2, [0, 2, 4]),
        ("HeunDiscrete", 1, [1, 3, 5, 7, 9]),  # two evaluations of the network are one step
        ("HeunDiscrete", 3, [1, 3, 7, 9]),
        ("HeunDiscrete", 4, [1, 5, 9]),
        ("UniPCMultistep", 1, [0, 1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("space", ["latent", "denoised"])
def test_a_step_that_would_be_lost_is_made_at_the_next_possible(sdxl, name, every, guided, space):
    guidance = denoised(every=every, space=space)
    assert spied(with_scheduler(sdxl, name), guidance).changed == guided


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize("name", ["SDXL", "Chroma", "Sana", "Lumina", "HunyuanDiT", "Z-Image"])
def test_own_steps_guide_networks_of_any_kind(name):
    pipe, case = make(name, guided=False), CASES[name]
    stock, guided = (
        pipe(**case.arguments([0, 0, 1], guided=True) | {"num_inference_steps": 6} | more)[0]
        for more in ({}, VendiGuidance(proposal="steps").on(pipe))
    )
    assert guided.isfinite().all() and not torch.allclose(guided, stock, atol=1e-3)


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize(("prompts", "more"), [([0, 0, 1], []), ([0, 1], [2])])
def test_own_steps_evaluate_the_network_for_lone_images_alone_and_once(sdxl, prompts, more):
    guidance, case = VendiGuidance(proposal="steps"), CASES["SDXL"]
    given = case.arguments(prompts, guided=True) | {"num_inference_steps": STEPS}
    with evaluations(sdxl.unet) as rows:
        sdxl(**given, **guidance.on(sdxl))
    both = [2 * len(prompts)]
    assert rows == both + more + both * (STEPS - 1)


def test_own_steps_are_those_at_high_noise(sdxl, monkeypatch):
    monkeypatch.setattr(own_steps, "KNOWN", 9.0)
    spy = spied(sdxl, VendiGuidance(proposal="steps"), steps=12)
    high = [index for index, (start, _) in enumerate(spy.levels) if start.ratio > own_steps.ABOVE]
    assert spy.changed == high and 2 < len(high) < 11


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize("prompts", [[0, 0, 1], [0, 1, 2]])
def test_a_distilled_network_is_guided_at_its_own_steps_where_rounds_would_lose_its_prompt(
    sdxl, monkeypatch, prompts
):
    pictures, made, is_lone = {}, {}, len(set(prompts)) == 3

    def latents(**settings):
        given = CASES["SDXL"].arguments(prompts) | {"num_inference_steps": 4}
        return sdxl(**given, **VendiGuidance(**settings).on(sdxl))[0]

    for varied in (0.0, math.inf):
        monkeypatch.setattr(choose, "VARIED", varied)
        with evaluations(sdxl.unet) as rows:
            pictures[varied] = latents()
        made[varied] = sum(rows) / 3 - is_lone  # who are asked once more whether they vary
    assert made == {0.0: 4, math.inf: 4 + 2}
    steps_alone = latents(proposal="steps")
    assert torch.equal(pictures[0.0], steps_alone)
    assert not torch.allclose(pictures[math.inf], steps_alone, atol=1e-3)
