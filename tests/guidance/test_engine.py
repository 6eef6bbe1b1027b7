"""The engine by itself: no diffusers, no pipeline, a denoiser of one line."""

import dataclasses
from unittest import mock

import pytest
import torch

from vendi_guidance import Gaussian, vendi
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import SIGMA_PROMPT, Rounds
from vendi_guidance.guidance.step import Level, Step
from vendi_guidance.guidance.ways import rounds
from vendi_guidance.guidance.ways.rounds import DISTILLED, FIRST_MOVE

SHAPE = (4, 4, 4)
LEVEL = 0.2 * 64**0.5  # noise to signal, of the default settings, for latents of 64 numbers
MORE_LIKELY = 1.0  # log odds of white


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Network:
    """What an engine needs of a network, at a step between two levels."""

    evaluations_per_step = 1
    has_prompt = is_undistilled = is_joint = made_by_undistilled = False
    highest = 1000.0  # the ratio that the model reaches

    def __init__(self, before, after):
        self.levels = Level(1.0, before), Level(1.0, after)

    def at(self, ratio):
        return Level(1.0, min(ratio, self.highest))

    def settle(self, may_be_off):
        return self.is_undistilled

    def restart(self, clean, noise):
        self.found = clean, noise


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
    engine = Engine(settings or Rounds(proposal="gradient"), Memory(50))
    network = BlackOrWhite(LEVEL * 1.1, LEVEL * 0.9)
    return engine, network, engine.modify(step_of(network, **how))


def diversity(latents):
    return float(vendi(torch.nn.functional.normalize(latents.flatten(1), dim=1), Gaussian(0.5)))


def test_guided_rounds_make_samples_differ_at_the_level_where_the_step_ends():
    with mock.patch.object(rounds, "FIRST_MOVE", 1e-9):
        _, repeated, _ = guided()
    _, network, step = guided()
    assert diversity(network.found[0]) > 2 * diversity(repeated.found[0])
    torch.testing.assert_close(step.latents, network.levels[1].mix(*network.found))


def test_moves_are_longer_with_a_distilled_network(monkeypatch):
    def moved():
        network = BlackOrWhite(LEVEL * 1.1, LEVEL * 0.9)
        settings = Rounds(rounds=4, proposal="gradient")
        return Engine(settings, Memory(50)).modify(step_of(network, count=4)).latents

    distilled = moved()
    monkeypatch.setattr(rounds, "FIRST_MOVE", FIRST_MOVE * DISTILLED)
    monkeypatch.setattr(rounds, "DISTILLED", 1.0)
    torch.testing.assert_close(distilled, moved())


@pytest.mark.parametrize("cfg", [1, 2])
def test_below_the_default_a_part_of_what_rounds_change_is_kept(cfg):
    """From none of it at 0, for samples, their noise and the share of CFG alike."""

    def made(dial):
        network = BlackOrWhite(LEVEL * 1.1, LEVEL * 0.9)
        network.evaluations_per_step = cfg
        before, settings = step_of(network), Rounds(diversity=dial, proposal="gradient")
        engine = Engine(settings, Memory(50))
        shares = [engine.observe(before) and engine.way.share_of_cfg(9.0)]
        after = engine.modify(before).latents
        return before.latents, after, [*shares, engine.way.share_of_cfg(9.0)]

    before, low, shares = made(1e-12)
    torch.testing.assert_close(low, before)
    assert shares == pytest.approx([1, 1])
    ends = [(made(dial)[1] - before).norm() for dial in (0.1, 0.25, 0.5)]
    assert ends == sorted(ends) and made(0.5)[2] == [0, 0.5]


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
