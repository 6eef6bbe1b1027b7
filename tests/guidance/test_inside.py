"""Moves inside the network, by themselves: torch only."""

from types import SimpleNamespace

import pytest
import torch

from vendi_guidance.guidance.inside import Moves
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import OBJECTIVES, Rounds
from vendi_guidance.guidance.step import Level, Step

SHAPE = (2, 4, 4)
SHARE = 0.75


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moves_of(prompts, ratios=(9.0, 5.0, 1.0), **settings):
    prompts = torch.eye(3)[prompts] + 0.5
    network = SimpleNamespace(levels=[Level(1.0, ratios[0])], ahead=ratios[1:])
    step = Step(1, 9, torch.zeros(len(prompts), 4), prompts=prompts, network=network)
    score = Memory(20).score(Rounds(**{"sigma_prompt": 1.0} | settings), prompts)
    return Moves(score, step, SHARE)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_features_move_against_the_gradient_of_what_similar_prompts_share(objective):
    h, moves = drawn(4, *SHAPE), moves_of([0, 0, 1, 1], objective=objective)
    _, similarity = moves._similarity
    assert (similarity[0, 2] < 0.9) == ("conditional" in objective)

    def common(x):
        mean = x.mean(dim=(2, 3))
        return 0.5 * float((similarity * (mean @ mean.T)).sum())

    gradient, step = torch.zeros_like(h).flatten(), 1e-3
    for place in range(h.numel()):
        one = (step * (torch.arange(h.numel()) == place)).view_as(h)
        gradient[place] = (common(h + one) - common(h - one)) / (2 * step)
    places, total = 16, similarity.sum(dim=1).view(-1, 1, 1, 1)
    expected = h - SHARE * places * gradient.view_as(h) / total
    torch.testing.assert_close(moves.move(h), expected, rtol=0, atol=1e-6)


def test_a_sample_moves_by_those_of_similar_prompts_alone():
    h, moves = drawn(4, *SHAPE), moves_of([0, 0, 1, 1], sigma_prompt=0.1)
    other = torch.cat([h[:2], drawn(2, *SHAPE, seed=1)])
    torch.testing.assert_close(moves.move(h)[:2], moves.move(other)[:2])
    alike = torch.cat([h[:1], other[2:3], h[2:]])
    assert (moves.move(h)[0] - moves.move(alike)[0]).norm() > 0.1


@pytest.mark.parametrize("shape", [(6, 8, 8), (9, 6)])
def test_with_cfg_rows_with_and_without_prompts_lose_what_each_kind_has_in_common(shape):
    h, moves = drawn(6, *shape), moves_of([0, 0, 0])
    torch.testing.assert_close(moves.move(h), torch.cat([moves.move(it) for it in h.chunk(2)]))
    places = (2, 3) if len(shape) == 3 else (1,)
    left = moves.move(h)[3:].mean(dim=(0, *places))
    torch.testing.assert_close(left, (1 - SHARE) * h[3:].mean(dim=(0, *places)))


def test_a_lone_sample_loses_of_its_own_mean_and_rows_of_frames_stay():
    h, moves = drawn(1, *SHAPE), moves_of([0])
    expected = h - SHARE * h.mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(moves.move(h), expected)
    frames = drawn(16, *SHAPE)
    apart = moves_of([0])
    assert apart.move(frames) is frames and moves.are_made and not apart.are_made


@pytest.mark.parametrize(("steps", "moved"), [(50, 8), (16, 3), (4, 1), (1, 1)])
def test_the_first_steps_are_moved(steps, moved):
    ratios = [14.0 * 0.9**at for at in range(steps)]
    assert sum(ratio > moves_of([0], ratios).until for ratio in ratios) == moved


def test_a_broken_sample_breaks_no_other():
    h, moves = drawn(3, *SHAPE), moves_of([0, 0, 0])
    broken = h.clone()
    broken[1, 0, 0, 0] = torch.nan
    found = moves.move(broken)
    torch.testing.assert_close(found[[0, 2]], moves_of([0, 0]).move(h[[0, 2]]))
    torch.testing.assert_close(found[1], broken[1], equal_nan=True)
