"""Moves inside the network, by themselves: torch only."""

import pytest
import torch

from vendi_guidance.guidance.inside import TRIAL, Moves
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.settings import OBJECTIVES, Rounds
from vendi_guidance.guidance.step import Step

SHAPE = (2, 4, 4)  # as many places as there are parts, so that pooling changes nothing
RATIO = 5.0


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moves_of(prompts, memory=None, **settings):
    prompts = torch.eye(3)[prompts]
    step = Step(1, 9, torch.zeros(len(prompts), 4), prompts=prompts)
    settings = Rounds(**{"sigma_latent": 0.8} | settings)
    return Moves((memory or Memory(20)).score(settings, prompts), step)


def moved(moves, h, at=0):
    return moves.move(h, slice(len(h) - len(moves.share), None), at, RATIO)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_features_move_along_the_score_by_a_share_of_their_norm(objective):
    h, moves = drawn(4, *SHAPE), moves_of([0, 0, 1, 1], objective=objective)
    change = moved(moves, h) - h
    lengths = change.flatten(1).norm(dim=1) / h.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((4,), TRIAL, dtype=torch.float64))

    score, prompts = moves._score, moves._prompts

    def value(x):
        return float(score.objective.gradient(x, prompts, score.window).score)

    numbers, step = torch.zeros_like(h).flatten(), 1e-5
    for place in range(h.numel()):
        one = (step * (torch.arange(h.numel()) == place)).view_as(h)
        numbers[place] = (value(h + one) - value(h - one)) / (2 * step)
    expected = unit_rows(numbers.view(4, -1))
    torch.testing.assert_close(unit_rows(change.flatten(1)), expected, rtol=0, atol=1e-6)


def test_a_sample_moves_by_those_of_similar_prompts_alone():
    h, moves = drawn(4, *SHAPE), moves_of([0, 0, 1, 1])
    other = torch.cat([h[:2], drawn(2, *SHAPE, seed=1)])
    found, expected = moved(moves, h)[:2], moved(moves, other, at=1)[:2]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    alike = torch.cat([h[:1], other[2:3], h[2:]])
    assert (moved(moves, h, at=2)[0] - moved(moves, alike, at=3)[0]).norm() > 0.1


@pytest.mark.parametrize("shape", [(6, 8, 8), (9, 6), (25, 6)])
def test_rows_without_prompts_move_with_those_that_have_them(shape):
    h, moves = drawn(6, *shape), moves_of([0, 0, 0])
    changes = (moved(moves, h) - h).flatten(1)
    without, own = map(unit_rows, changes.chunk(2))
    torch.testing.assert_close(without, own)
    alone = moves.move(h[:3], slice(0, 3), 0, RATIO)  # a second evaluation of the same step
    torch.testing.assert_close(alone, moved(moves, h)[:3])


def test_a_lone_sample_moves_away_from_remembered_ones():
    h, memory = drawn(2, *SHAPE), Memory(20)
    first = moves_of([0], memory)
    torch.testing.assert_close(moved(first, h[:1]), h[:1])  # from nothing
    for seen in first.seen:
        memory.add(seen, torch.eye(3)[:1])
    change = moved(moves_of([0], memory), h[1:]) - h[1:]
    remembered, own = unit_rows(h.flatten(1))
    assert float(change.flatten() @ (own - remembered)) > 0
    assert not moves_of([0], memory)._score.window.of_shape((3, 3))  # other levels have their own
    torch.testing.assert_close(moves_of([0], memory).move(h[:1], slice(0, 1), 0, 40.0), h[:1])


def test_a_broken_sample_breaks_no_other():
    h = drawn(3, *SHAPE)
    h[1, 0, 0, 0] = torch.nan
    found = moved(moves_of([0, 0, 0]), h)
    assert found[[0, 2]].isfinite().all()
    torch.testing.assert_close(found[1], h[1], equal_nan=True)
