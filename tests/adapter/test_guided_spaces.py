"""Guidance in the denoised space, and inside networks, through real pipelines and schedulers."""

import math
import re

import pytest
import torch

from tests.adapter.test_denoiser import module_of, pipeline
from tests.adapter.test_mixins import make
from tests.helpers.tiny_pipelines import CASES, JOINT, evaluations, with_scheduler
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter import moved
from vendi_guidance.guidance import inside

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


@pytest.mark.parametrize("name", CASES)
def test_each_kind_has_a_block(name):
    network = module_of(pipeline(name))
    path = next(path for path, it in network.named_modules() if it is moved.block_of(network))
    is_unet = hasattr(network, "mid_block")
    assert re.fullmatch("mid_block" if is_unet else r"(\w*blocks|layers|noise_refiner)\.0", path)
    assert moved.has_text(network.get_submodule(path)) == (name in JOINT)


@pytest.mark.parametrize("name", ["SDXL", "Chroma", "Sana", "Lumina", "HunyuanDiT", "Z-Image"])
def test_a_block_is_moved_and_restored(name):
    pipe, case = make(name, guided=False), CASES[name]
    stock, guided = (
        pipe(**case.arguments([0, 0, 1], guided=True) | {"num_inference_steps": 6} | more)[0]
        for more in ({}, VendiGuidance(proposal="network").on(pipe))
    )
    assert guided.isfinite().all() and not torch.allclose(guided, stock, atol=1e-3)
    assert "forward" not in vars(moved.block_of(module_of(pipe)))


def test_moves_cost_one_evaluation_and_features_are_remembered(sdxl):
    guidance = VendiGuidance(proposal="network")
    with evaluations(sdxl.unet) as rows:
        draw(sdxl, guidance, steps=6, guided=True)
    assert rows[:3] == [6, 6, 6] and sum(it == 6 for it in rows) <= 7 and min(rows) >= 3
    assert {len(shape) for shape in guidance.window.shapes} > {3}  # features beside the latents


def test_a_distilled_network_is_moved_inside_where_rounds_would_lose_its_prompt(sdxl, monkeypatch):
    pictures = {}
    for varied in (0.0, math.inf):
        monkeypatch.setattr(inside, "VARIED", varied)
        with evaluations(sdxl.unet) as rows:
            pictures[varied] = draw(sdxl, VendiGuidance(), steps=4)
        assert sum(rows) == 3 * (4 + 2)  # a perturbed prompt, and its answer or the moved step
    inside_alone = draw(sdxl, VendiGuidance(proposal="network"), steps=4)
    assert torch.equal(pictures[math.inf], inside_alone)
    assert not torch.allclose(pictures[0.0], inside_alone, atol=1e-3)


def test_a_network_without_blocks_is_refused(sdxl, monkeypatch):
    monkeypatch.setattr(moved, "block_of", lambda network: None)
    with pytest.raises(ValueError, match="a network with a known block"):
        draw(sdxl, VendiGuidance(proposal="network"), steps=4, guided=True)
    assert "forward" not in vars(sdxl.unet)
