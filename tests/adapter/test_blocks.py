"""Moves inside the networks of tiny pipelines."""

import pytest
import torch

from tests.adapter.test_denoiser import module_of
from tests.adapter.test_guided_spaces import draw
from tests.adapter.test_mixins import make
from tests.helpers.tiny_pipelines import CASES, evaluations
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.blocks import block_of

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
    block, given = block_of(module_of(pipe)), {"num_inference_steps": 6}
    assert type(block).__name__ == BLOCKS[name]
    stock, moved = (
        pipe(**case.arguments([0, 0, 1], guided=True) | given | more)[0]
        for more in ({}, VendiGuidance(proposal="network").on(pipe))
    )
    assert moved.isfinite().all() and not torch.allclose(moved, stock, atol=1e-3)
    assert "forward" not in vars(block)


def test_moves_cost_one_evaluation_and_features_are_remembered(sdxl):
    guidance = VendiGuidance(proposal="network")
    with evaluations(sdxl.unet) as rows:
        draw(sdxl, guidance, steps=6, guided=True)
    assert rows[:3] == [6, 6, 6] and sum(it == 6 for it in rows) <= 7 and min(rows) >= 3
    assert {len(shape) for shape in guidance.window.shapes} > {3}  # features beside the latents


def test_without_cfg_there_is_a_clear_error(sdxl):
    with pytest.raises(ValueError, match="needs a guidance scale above 1"):
        draw(sdxl, VendiGuidance(proposal="network"), steps=4)
    assert "forward" not in vars(sdxl.unet)
