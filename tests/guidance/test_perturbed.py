"""Perturbed prompts propose: by the engine alone, and through real pipelines and schedulers."""

import math

import pytest
import torch

from tests.guidance.test_engine import SHAPE, Network, diversity, seeded
from tests.helpers.tiny_pipelines import CASES, evaluations, with_scheduler
from vendi_guidance import VendiGuidance
from vendi_guidance.guidance import choose
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Step
from vendi_guidance.guidance.ways import perturbed

OPEN, NAMED = 0.6, 0.15  # how much of a deviation the network keeps
FAR = 1e4  # beside the noise


class Distilled(Network):
    """A network whose prompt leaves the first two channels open and names the others."""

    has_prompt = True
    follow = torch.tensor([OPEN, OPEN, NAMED, NAMED]).view(4, 1, 1)

    def __init__(self, size=4, before=9.0, after=0.4):
        super().__init__(before, after)
        self.denoised = FAR * torch.randn(size, *SHAPE, generator=seeded(2))
        self.proposed = self.denoised + FAR * torch.randn(size, *SHAPE, generator=seeded(1))
        self.asked, self.given = [], []

    def denoise(self, latents, level=None, perturb=None):
        self.asked.append((level, None if perturb is None else perturb.keywords["sigma"]))
        self.given.append(latents)
        if perturb is not None:
            return self.proposed
        return self.denoised + self.follow * (latents - self.denoised)


@pytest.fixture(autouse=True)
def _rounds(monkeypatch):
    monkeypatch.setattr(choose, "VARIED", math.inf)


def modified(network, latents=None, index=0, **changes):
    latents = network.denoised if latents is None else latents
    prompts = torch.ones(len(latents), 3)
    step = Step(index, 4, latents, network=network, prompts=prompts)
    engine = Engine(Rounds(**changes), Memory(50))
    assert engine.observe(step)
    return engine, engine.modify(step)


@pytest.mark.parametrize("diversity", [0.25, 0.5, 1.0])
def test_what_the_prompt_leaves_open_grows_and_what_contradicts_it_fades(monkeypatch, diversity):
    monkeypatch.setattr(perturbed, "PUSH", 0.0)
    network = Distilled()
    _, step = modified(network, diversity=diversity)
    further, part = perturbed.EXTENSION * max(diversity / 0.5, 1), min(diversity / 0.5, 1)
    last = 1 + further * network.levels[1].ratio / (0.2 * 64**0.5)  # the lower the level, the less
    deviation, original = network.proposed - network.denoised, network.denoised
    expected = part * (1 + further) * network.follow * last * deviation
    found = step.latents - original
    torch.testing.assert_close(found / FAR, expected / FAR, rtol=0, atol=1e-2)
    torch.testing.assert_close(step.latents, network.levels[1].mix(*network.found))


def test_the_perturbed_prompt_is_asked_and_then_the_prompt_with_the_noise_of_the_latents():
    network = Distilled()
    noise = torch.randn(network.denoised.shape, generator=seeded(5))
    latents = network.levels[1].mix(network.denoised, noise)
    engine, _ = modified(network, latents=latents)
    asked = [(None, perturbed.PROMPT_NOISE), (Level(1.0, 0.2 * 64**0.5), None)]
    assert network.asked == asked and engine.way.evaluations() == len(asked)
    torch.testing.assert_close(network.found[1], noise, rtol=0, atol=0.02)  # beside FAR
    expected = network.levels[0].mix(network.denoised, network.found[1])
    assert torch.equal(network.given[0], expected)


def test_the_score_moves_samples_that_were_proposed_alike_apart(monkeypatch):
    def with_push(push):
        monkeypatch.setattr(perturbed, "PUSH", push)
        network = Distilled(8, after=1.5)
        network.denoised[2:] = network.denoised[:2].repeat(3, 1, 1, 1)
        alike = network.proposed[:2].repeat(3, 1, 1, 1)
        network.proposed[2:] = alike + 0.02 * FAR * network.proposed[2:].sign()
        return diversity(modified(network)[1].latents)

    assert with_push(0.3) > 1.1 * with_push(0.0)


def test_a_broken_sample_is_left_as_it_was():
    network = Distilled()
    network.proposed[0] = torch.nan
    engine, step = modified(network)
    assert torch.equal(step.latents[0], network.denoised[0]) and step.latents.isfinite().all()
    assert engine.memory.skipped > 0


def generate(pipe, guidance, steps):
    given = CASES["SDXL"].arguments([0, 0, 1]) | {"num_inference_steps": steps}
    return pipe(**given, **guidance.on(pipe))[0]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "kind", ["DDIM", "EulerDiscrete", "LCM", "TCD", "DPMSolverMultistep", "UniPCMultistep"]
)
def test_a_call_of_few_steps_without_cfg_has_two_evaluations_more(sdxl, kind, steps):
    with_scheduler(sdxl, kind)
    guidance = VendiGuidance()
    with evaluations(sdxl.unet) as rows:
        final = generate(sdxl, guidance, steps)
    assert len(rows) == steps + 2
    assert final.isfinite().all() and guidance.skipped == 0 and len(guidance.window) == 3
    assert torch.equal(final, generate(sdxl, VendiGuidance(), steps))
    # the one step of these begins with hardly any noise, where proposals are short
    changed = 0.0 if steps == 1 and kind in ("DDIM", "EulerDiscrete") else 0.1
    stock = generate(sdxl, VendiGuidance(diversity=0), steps)
    assert not torch.allclose(final, stock, atol=changed)
    assert "step" not in vars(sdxl.scheduler) and "forward" not in vars(sdxl.unet)


FROM_HIGHEST = (
    "and the model reaches it: use one from the highest noise, such as "
    '"simple" or trailing timesteps'
)


@pytest.mark.parametrize(
    ("before", "highest", "said"),
    [
        (9.0, 1000.0, "1.6"),
        (0.8, 0.8, "0.8, the highest there is (1.6 is wanted)"),
        (0.8, 1000.0, f"0.8, where the schedule begins (1.6 is wanted, {FROM_HIGHEST})"),
    ],
)
def test_what_is_done_is_said_in_one_line(caplog, before, highest, said):
    network = Distilled(before=before)
    network.highest = highest
    with caplog.at_level("INFO"):
        modified(network)
    assert caplog.messages[1:] == [f"a perturbed prompt proposes at noise to signal {said}"]
