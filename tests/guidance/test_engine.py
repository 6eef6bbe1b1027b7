"""The engine by itself: no diffusers, no pipeline, a denoiser of one line."""

import dataclasses

import pytest
import torch

from vendi_guidance import Gaussian, vendi
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.rounds import UNDISTILLED
from vendi_guidance.guidance.settings import SIGMA_PROMPT, Rounds
from vendi_guidance.guidance.step import Level, Step
from vendi_guidance.guidance.timing import UNRESTORED

SHAPE = (4, 4, 4)
LEVEL = 0.2 * 64**0.5  # noise to signal, of the default settings, for latents of 64 numbers
MORE_LIKELY = 1.0  # log odds of white


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Network:
    """What an engine needs of a network, at a step between two levels."""

    evaluations_per_step = spent = 1
    ahead = ()
    has_prompt = is_undistilled = has_blocks = has_text_block = False
    cfg_every = 1
    highest = 1000.0  # the ratio that the model reaches

    def __init__(self, before, after):
        self.levels = Level(1.0, before), Level(1.0, after)

    def at(self, ratio):
        return Level(1.0, min(ratio, self.highest))

    def restart(self, clean, noise):
        self.found = clean, noise

    def without_prompts(self):
        return (0 * self.denoised, 5.0) if self.evaluations_per_step == 2 else None

    def denoise_moved(self, moves, scale):
        return 5.0 * self.denoised


class BlackOrWhite(Network):
    """Of a model whose pictures have black and white channels, white ones more often."""

    def __init__(self, before, after):
        super().__init__(before, after)
        self.evaluations = 0
        self.denoised = self.predict(before * torch.randn(8, *SHAPE, generator=seeded(2)))

    def predict(self, latents, level=None):
        evidence = 4 * latents.mean(dim=(2, 3), keepdim=True) / (level or self.levels[0]).noise
        return 2 * torch.sigmoid(evidence + MORE_LIKELY).expand(latents.shape) - 1

    def denoise(self, latents, level=None):
        self.evaluations += 1
        return self.predict(latents, level)


def step_of(network, index=0, count=20):
    latents = network.levels[1].mix(network.denoised, torch.randn(8, *SHAPE, generator=seeded(1)))
    prompts = torch.ones(8, 3)
    return Step(index, count, latents, prompts=prompts, network=network)


def guided(settings=None, **how):
    engine = Engine(settings or Rounds(), Memory(50))
    network = BlackOrWhite(LEVEL * 1.1, LEVEL * 0.9)
    return engine, network, engine.modify(step_of(network, **how))


def diversity(latents):
    return float(vendi(torch.nn.functional.normalize(latents.flatten(1), dim=1), Gaussian(0.5)))


def test_guided_rounds_make_samples_differ_at_the_level_where_the_step_ends():
    _, repeated, _ = guided(Rounds(diversity=1e-9, candidates=1))
    _, network, step = guided()
    assert diversity(network.found[0]) > 2 * diversity(repeated.found[0])
    torch.testing.assert_close(step.latents, network.levels[1].mix(*network.found))


@pytest.mark.parametrize(
    ("more", "factor"),
    [({"evaluations_per_step": 2}, 1 / UNRESTORED), ({"is_undistilled": True}, UNDISTILLED)],
)
def test_moves_are_longer_where_later_steps_restore_what_prompts_name(more, factor):
    def moved(diversity, **more):
        network = BlackOrWhite(LEVEL * 1.1, LEVEL * 0.9)
        vars(network).update(more)
        settings = Rounds(rounds=4, candidates=1, diversity=diversity)
        return Engine(settings, Memory(50)).modify(step_of(network)).latents

    assert factor > 1
    torch.testing.assert_close(moved(0.5, **more), moved(0.5 * factor))


def test_a_call_that_affords_half_of_the_evaluations_has_moves_twice_as_long():
    _, network, short = guided(Rounds(rounds=8, candidates=1, diversity=0.25), count=4)
    _, _, single = guided(Rounds(rounds=4, candidates=1, diversity=0.5), count=4)
    assert network.evaluations == 4
    assert torch.equal(short.latents, single.latents)


@pytest.mark.parametrize(
    ("size", "joint", "per_step", "count", "is_inside"),
    [
        *((0.6, False, 2, 16, True), (0.8, False, 2, 16, False), (0.8, False, 1, 16, False)),
        *((0.8, True, 2, 16, True), (0.8, True, 2, 9, False), (0.8, True, 1, 16, True)),
    ],
)
def test_a_network_is_moved_inside_that_needs_cfg_or_is_joint(
    size, joint, per_step, count, is_inside
):
    network, engine = BlackOrWhite(9.0, 8.1), Engine(Rounds(), Memory(50))
    network.evaluations_per_step, network.has_blocks = per_step, True
    network.has_text_block = joint
    network.denoised = clean = size * network.denoised.sign()
    network.denoise_moved = lambda moves, scale: scale * clean  # as without moves
    step, level = step_of(network, count=count), Level(1.0, 0.5)
    assert engine.observe(step) == engine.share_of_cfg(level) == is_inside
    # moves have no effect here, so that rounds follow later
    assert torch.equal(engine.modify(step).latents, step.latents) == is_inside
    assert engine.share_of_cfg(level) == 0


@pytest.mark.parametrize(
    ("undistilled", "own", "moved", "is_inside"),
    [(0.6, 1, 0, True), (1, 0.6, 0, False), (0, 0.6, 9, True), (0, 1, 2, True), (0, 1, 9, False)],
)
def test_the_undistilled_network_judges_or_a_perturbed_prompt(undistilled, own, moved, is_inside):
    network, found = BlackOrWhite(9.0, 8.0), []
    network.has_prompt = network.has_blocks = True
    network.is_undistilled, network.move_inside = undistilled > 0, found.append
    network.denoised = plain = own * torch.randn(8, *SHAPE, generator=seeded(3))
    far = moved * own * 2**0.5  # in units of about the distance between two samples

    def denoise(latents, level=None, perturb=None):
        return plain + far if perturb else undistilled / own * plain

    network.denoise = denoise
    Engine(Rounds(), Memory(50)).modify(step_of(network, count=4))
    assert bool(found) == is_inside


def test_a_step_without_its_network_is_refused():
    engine, step = Engine(Rounds(), Memory(50)), step_of(BlackOrWhite(LEVEL * 1.1, LEVEL * 0.9))
    with pytest.raises(RuntimeError, match="rounds need the network"):
        engine.modify(dataclasses.replace(step, network=None))


def test_one_prompt_is_one_whatever_the_rounding_of_its_embedding():
    # around a number that lies between two multiples of 1e-4
    ulps = torch.arange(-8, 9) * torch.finfo(torch.float32).eps
    prompts = torch.stack([0.60005 + ulps, torch.full((17,), (1 - 0.60005**2) ** 0.5)], dim=1)
    objective = Memory(50).score(Rounds(), prompts).objective
    assert objective.kernel_prompt.sigma == SIGMA_PROMPT
