"""Calls that the engine guides agree with the reference, on the mixture that is exact."""

from itertools import pairwise

import pytest
import torch

from tests.guidance import reference
from tests.guidance.reference import MEANS, RATIOS, SIGMA, predict
from tests.guidance.test_engine import Network, seeded
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Published, Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.ways.own_steps import KNOWN

FEW = [60.0, 8.0, 1.5, 0.5, 0.0]
LEVEL = 2.0  # of rounds: the wanted ratio is 2 sqrt(2)
WANTED = LEVEL * 2**0.5
OBJECTIVE = {"objective": "rke", "sigma_latent": SIGMA}


class Exact(Network):
    """The mixture as a network, whose prompt's tokens are the means."""

    has_prompt = True

    def __init__(self, latents, ratios, index):
        super().__init__(ratios[index], ratios[index + 1])
        self.denoised = predict(latents, ratios[index])

    def denoise(self, latents, level=None, perturb=None):
        means = MEANS
        if perturb is not None:
            means = torch.cat([perturb(MEANS[None], i, None) for i in range(len(latents))])
        return predict(latents, (level or self.levels[0]).ratio, means)


def called(settings, latents, ratios=RATIOS):
    """What Euler's method, guided by the engine, makes of these latents."""
    engine, first = Engine(settings, Memory(20)), latents
    for index, (start, end) in enumerate(pairwise(ratios)):
        clean = predict(latents, start)
        made = clean + end / start * (latents - clean)
        prediction, network = Prediction(clean, 1.0, end), Exact(latents, ratios, index)
        count, prompts = len(ratios) - 1, torch.ones(len(latents), 1)
        step = Step(index, count, made, None, prompts, prediction, network, first)
        latents = engine.modify(step).latents if engine.observe(step) else made
    return latents


WAYS = {
    "published": (
        Published(scale=0.1, every=3, space="latent", **OBJECTIVE),
        lambda z: reference.published(z, 0.1, 3),
        RATIOS,
    ),
    "own steps": (
        Rounds(diversity=1.0, proposal="steps", **OBJECTIVE),
        lambda z: reference.own_steps(z, KNOWN),
        RATIOS,
    ),
    "rounds": (
        Rounds(rounds=4, level=LEVEL, **OBJECTIVE),
        lambda z: reference.rounds(z, WANTED, 4),
        RATIOS,
    ),
    "perturbed": (
        Rounds(proposal="prompt", level=LEVEL, **OBJECTIVE),
        lambda z: reference.perturbed(z, WANTED, FEW),
        FEW,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_agrees_with_a_reference_of_a_few_lines_on_a_mixture_of_gaussians(way):
    settings, expected, ratios = WAYS[way]
    latents = ratios[0] * torch.randn(8, 2, generator=seeded(0), dtype=torch.float64)
    found = called(settings, latents, ratios)
    torch.testing.assert_close(found, expected(latents), rtol=0, atol=1e-6)
    assert not torch.allclose(found, called(Rounds(diversity=0), latents, ratios), atol=0.01)
