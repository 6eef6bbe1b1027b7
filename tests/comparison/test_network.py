"""The methods compared, on every architecture that is compared."""

import pytest
import torch
from diffusers import PixArtSigmaPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline

from tests.adapter.test_undistilled import base, distilled, state
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.comparison.baselines import LimitedInterval, UndistilledFirst
from vendi_guidance.comparison.embedding_noise import CADS, SeedVariance
from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.runs.sweep import rows_counted

STEPS = 4
PROMPTS = [0, 0, 1]
KINDS = ["SD3", "PixArt-Sigma", "Z-Image"]  # test_baselines.py has SDXL
METHODS = [  # strong and at its weakest
    (LimitedInterval(0.3, 0.6), LimitedInterval(0, 1)),
    (SeedVariance(8.0), SeedVariance(0)),
    (CADS(1.0), CADS(scale=0)),
]


def make(kind):
    pipe = CASES[kind].make()
    if isinstance(pipe, PixArtSigmaPipeline):
        pipe.__class__ = VendiGuidedPixArtSigmaPipeline
        pipe.guidance = VendiGuidance(diversity=0)
    return pipe


def draw(pipe, kind, method: Method, guided=True, undistilled=None, **changes):
    """Latents, and the rows of each evaluation of the network."""
    arguments = CASES[kind].arguments(PROMPTS, guided=guided) | {"num_inference_steps": STEPS}
    arguments |= changes
    generators = [torch.Generator().manual_seed(i) for i in range(len(PROMPTS))]
    call = PipelineCall(pipe, ["p"] * len(PROMPTS), generators, undistilled)
    with rows_counted(pipe, undistilled) as rows, method.attached(call) as given:
        latents = pipe(**arguments | {"generator": generators}, **given)[0]
    return latents, rows


@pytest.mark.parametrize(("strong", "weakest"), METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_method_changes_samples_unless_at_its_weakest_and_leaves_the_pipeline_as_it_was(
    kind, strong, weakest
):
    pipe = make(kind)
    plain, _ = draw(pipe, kind, Method())
    changed, _ = draw(pipe, kind, strong)
    assert changed.isfinite().all() and not torch.allclose(changed, plain, atol=1e-3)
    assert torch.equal(draw(pipe, kind, weakest)[0], plain)
    assert torch.equal(draw(pipe, kind, Method())[0], plain)


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("undistilled", [None, "module"])
def test_the_undistilled_network_makes_the_first_steps_and_every_evaluation_counts(
    undistilled, steps
):
    pipe, plain = distilled("style", "lightning"), base()
    other = None if undistilled is None else plain.unet
    before, expected = state(pipe), []
    for network in (plain.unet, pipe.unet):
        network.register_forward_hook(lambda module, *_: expected.append(module is plain.unet))
    off = pipe.unet.mid_block.register_forward_hook(
        lambda *_: expected.append(state(pipe)[0][0][0])
    )
    latents, rows = draw(pipe, "SDXL", UndistilledFirst(steps), False, other)
    assert rows == [3] * STEPS
    off.remove()
    if other is None:
        assert expected[::2] == [step < steps for step in range(STEPS)]
    else:
        assert sum(expected) == min(steps, STEPS)
    assert state(pipe) == before
    alone, _ = draw(plain if steps > STEPS else pipe, "SDXL", Method(), False)
    assert torch.allclose(latents, alone, atol=1e-5) == (steps > STEPS)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_outside_its_interval_the_network_is_not_evaluated_without_prompts(kind):
    _, rows = draw(make(kind), kind, LimitedInterval(0.25, 0.75))
    assert rows == [3, 6, 6, 3]
