"""The methods compared, on every architecture that is compared."""

import pytest
import torch
from diffusers import PixArtSigmaPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline

from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.comparison.baselines import LimitedInterval, Unguided
from vendi_guidance.comparison.embedding_noise import CADS, SeedVariance
from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.comparison.network import rows_counted

STEPS = 4
PROMPTS = [0, 0, 1]
KINDS = ["SD3", "PixArt-Sigma"]  # test_baselines.py has SDXL
METHODS = [  # strong and at its weakest
    (LimitedInterval(0.3, 0.6), LimitedInterval(0, 1)),
    (SeedVariance(8.0), SeedVariance(0)),
    (CADS(1.0), CADS(scale=0)),
]


def make(kind):
    pipe = CASES[kind].make()
    if isinstance(pipe, PixArtSigmaPipeline):
        pipe.__class__ = VendiGuidedPixArtSigmaPipeline
        pipe.guidance = VendiGuidance(strength=0)
    return pipe


def draw(pipe, kind, method: Method, guided=True):
    """Latents, and the rows of each evaluation of the network."""
    arguments = CASES[kind].arguments(PROMPTS, guided=guided) | {"num_inference_steps": STEPS}
    generators = [torch.Generator().manual_seed(i) for i in range(len(PROMPTS))]
    call = PipelineCall(pipe, ["p"] * len(PROMPTS), generators, arguments["guidance_scale"])
    with rows_counted(pipe) as rows, method.attached(call) as given:
        latents = pipe(**arguments | {"generator": generators}, **given)[0]
    return latents, rows


@pytest.mark.parametrize(("strong", "weakest"), METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_method_changes_samples_unless_at_its_weakest_and_leaves_the_pipeline_as_it_was(
    kind, strong, weakest
):
    pipe = make(kind)
    plain, _ = draw(pipe, kind, Unguided())
    changed, _ = draw(pipe, kind, strong)
    assert changed.isfinite().all() and not torch.allclose(changed, plain, atol=1e-3)
    assert torch.equal(draw(pipe, kind, weakest)[0], plain)
    assert torch.equal(draw(pipe, kind, Unguided())[0], plain)


@pytest.mark.parametrize("kind", KINDS)
def test_outside_its_interval_the_network_is_not_evaluated_without_prompts(kind):
    _, rows = draw(make(kind), kind, LimitedInterval(0.25, 0.75))
    assert rows == [3, 6, 6, 3]
