"""Fresh noise follows from the first latents, whatever the program and the batch."""

import pytest
import torch

from tests.guidance.test_engine import seeded
from vendi_guidance.guidance.noise import Noise

FIRST = torch.randn(3, 4, 8, 8, generator=seeded())


@pytest.mark.parametrize(
    "first",
    [
        FIRST.half(),
        FIRST.bfloat16(),
        14.6 * FIRST,
        (1e-6 * FIRST).half(),  # most of it is zero, but zeros have signs
        FIRST.to(memory_format=torch.channels_last),
        FIRST[:, :, None],
    ],
    ids=["half", "bfloat16", "scaled", "underflow", "channels last", "one frame"],
)
def test_noise_does_not_depend_on_how_a_program_keeps_its_latents(first):
    assert torch.equal(Noise(first).like(FIRST), Noise(FIRST).like(FIRST))


def test_noise_of_a_sample_does_not_depend_on_its_batch_and_each_time_it_is_fresh():
    both, alone = Noise(FIRST), Noise(FIRST[1:2])
    first, again = (both.like(FIRST) for _ in range(2))
    for together in (first, again):
        assert torch.equal(together[1:2], alone.like(FIRST[1:2]))
    drawn = torch.stack([*first, *again])
    assert torch.corrcoef(drawn.flatten(1)).fill_diagonal_(0).abs().max() < 0.3
    assert drawn.std() == pytest.approx(1, abs=0.05) and drawn.mean().abs() < 0.1


def test_copies_draw_noise_of_their_own_and_the_same_seed_for_another_prompt_is_no_copy():
    first, prompts = FIRST[[0, 0, 1, 0]], torch.eye(4)[[0, 0, 0, 1]]
    alone, copy, _, other = Noise(first, prompts).like(first)
    assert torch.equal(other, alone) and not torch.allclose(copy, alone)
    again = Noise(first[:2], prompts[:2] + 1e-6 * torch.randn(2, 4)).like(first[:2])
    assert torch.equal(again, torch.stack([alone, copy]))
    assert not torch.equal(*Noise(first[:2]).like(first[:2]))
