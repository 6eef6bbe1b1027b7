"""Guidance within what a caller of the pipeline has set around the call."""

import pytest
import torch

from tests.adapter.test_denoiser import module_of, pipeline
from tests.helpers.tiny_pipelines import CASES
from tests.kernels.test_precision import AMBIENT
from vendi_guidance.adapter.callback import VendiGuidance

WAYS = {
    "published": {"preset": "published", "scale": 0.1},
    "rounds": {"proposal": "gradient"},
    "a perturbed prompt": {"proposal": "prompt"},
    "own steps": {"proposal": "steps"},
}


def guided_twice(around, cfg, **settings):
    """The second call's latents, where samples are remembered; what they hold; and the precisions
    of a layer of the network, with those of the stock call."""
    pipe, guidance, seen = pipeline("SDXL"), VendiGuidance(**settings), []
    layer = next(it for it in module_of(pipe).modules() if isinstance(it, torch.nn.Linear))
    layer.register_forward_hook(lambda _, args, output: seen.append(output.dtype))
    with around(), torch.set_grad_enabled(around is torch.enable_grad):
        for _ in range(2):
            call = type(pipe).__call__.__wrapped__  # diffusers' own switches gradients off
            given = CASES["SDXL"].arguments([0, 0, 1], guided=cfg) | guidance.on(pipe)
            latents = call(pipe, **given)[0]
    window = guidance.window
    return latents.detach(), [window.features, window.distances], {*seen}


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize("around", ["autocast", "inference mode", "gradients"])
@pytest.mark.parametrize("cfg", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_guides_the_same_and_the_network_runs_as_the_caller_wants(way, cfg, around):
    usual, expected, _ = guided_twice(torch.no_grad, cfg, **WAYS[way])
    found, held, seen = guided_twice(AMBIENT[around], cfg, **WAYS[way])
    plain, _, _ = guided_twice(AMBIENT[around], cfg, diversity=0)
    assert seen == {torch.bfloat16 if around == "autocast" else torch.float32}
    assert (found - plain).norm() > 0.05 * plain.norm()
    assert (found - usual).norm() < (0.1 if around == "autocast" else 1e-6) * plain.norm()
    assert not any(it.requires_grad for it in held)
    assert [(it.dtype, it.shape) for it in held] == [(it.dtype, it.shape) for it in expected]
