"""Moves inside the networks of tiny pipelines."""

import math

import pytest
import torch

from tests.adapter.test_denoiser import module_of
from tests.adapter.test_guided_spaces import draw
from tests.adapter.test_mixins import make
from tests.helpers.tiny_pipelines import CASES, evaluations
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter import moved
from vendi_guidance.guidance import inside

BLOCKS = {
    "SDXL": "UNetMidBlock2DCrossAttn",
    "Chroma": "ChromaTransformerBlock",
    "Sana": "SanaTransformerBlock",
    "Lumina": "LuminaNextDiTBlock",
    "HunyuanDiT": "HunyuanDiTBlock",
    "Z-Image": "ZImageTransformerBlock",
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_each_kind_is_moved_and_restored(name):
    pipe, case = make(name, guided=False), CASES[name]
    block, given = moved.block_of(module_of(pipe)), {"num_inference_steps": 6}
    assert type(block).__name__ == BLOCKS[name]
    stock, guided = (
        pipe(**case.arguments([0, 0, 1], guided=True) | given | more)[0]
        for more in ({}, VendiGuidance(proposal="network").on(pipe))
    )
    assert guided.isfinite().all() and not torch.allclose(guided, stock, atol=1e-3)
    assert "forward" not in vars(block)


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
