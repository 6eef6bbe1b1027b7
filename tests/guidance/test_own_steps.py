"""Guidance at the call's own steps, by itself: torch only."""

import math
from dataclasses import replace

import pytest
import torch

from tests.guidance.test_engine import Network, seeded
from vendi_guidance.guidance.choose import SPREAD
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.settings import OBJECTIVES, Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.ways.own_steps import (
    ABOVE,
    BEYOND,
    KNOWN,
    OUTWARD,
    VAGUE,
    OwnSteps,
)

pytestmark = pytest.mark.as_measured
SHAPE = (2, 4, 4)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


class Known(Network):
    """A network with CFG that made these predictions, and says others when it is asked again."""

    evaluations_per_step = 2

    def __init__(self, clean, other=None, before=9.0, after=8.0):
        super().__init__(before, after)
        self.denoised, self.other, self.asked = clean, other, 0

    def denoise(self, latents, level=None):
        self.asked += 1
        return self.other


def step_of(clean, prompts, with_cfg=None, count=20, other=None, **levels):
    network, given = Known(clean, other, **levels), clean if with_cfg is None else with_cfg
    latents = network.levels[1].mix(given, drawn(*clean.shape, seed=9))
    prediction = Prediction(given, *network.levels[1])
    prompts = torch.eye(3)[prompts]
    return Step(0, count, latents, None, prompts, prediction, network)


def moves_of(step, memory=None, **settings):
    settings = Rounds(**{"diversity": 1.0, "sigma_latent": 0.8} | settings)
    score = (memory or Memory(20)).score(settings, step.prompts)
    return OwnSteps(Facts.of(step, score, settings), settings)


def changes(step, moves=None, **settings):
    """Of the clean latents with which samples go on, (b, D)."""
    moved = (moves or moves_of(step, **settings)).on_step(step)
    return (step.network.found[0] - step.prediction.denoised).flatten(1), moved


def alike(size, spread=0.3):
    """Samples on a sphere, nearer to one another than the target."""
    one = drawn(1, *SHAPE) + spread * drawn(size, *SHAPE, seed=1)
    return 9 * unit_rows(one.flatten(1)).view(size, *SHAPE)


def median_distances(clean):
    rows = unit_rows(clean.flatten(1))
    apart = torch.cdist(rows, rows).fill_diagonal_(math.nan)
    return apart.nanquantile(0.5, dim=1, interpolation="lower")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_samples_move_along_the_scores_gradient_of_predictions_without_cfg(objective):
    clean, with_cfg = alike(4), 2 * drawn(4, *SHAPE, seed=5)
    step = step_of(clean, [0, 0, 1, 1], with_cfg)
    moves = moves_of(step, objective=objective)
    found, _ = changes(step, moves)
    score = moves._facts.score

    def value(x):
        return float(score.objective.gradient(x, step.prompts, score.window).score)

    numbers, size = torch.zeros_like(clean).flatten(), 1e-5
    for place in range(clean.numel()):
        one = (size * (torch.arange(clean.numel()) == place)).view_as(clean)
        numbers[place] = (value(clean + one) - value(clean - one)) / (2 * size)
    expected = unit_rows(numbers.view(4, -1))
    torch.testing.assert_close(unit_rows(found), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("diversity", [0.25, 1.0])
@pytest.mark.parametrize(
    ("size", "apart", "known"),
    [(0.5, 2 * SPREAD, VAGUE), (2.0, 2 * SPREAD, VAGUE), (0.5, SPREAD / 2, KNOWN)],
)
def test_moves_are_as_long_as_variety_is_missing(size, apart, known, diversity):
    clean = size * alike(5, apart)
    with_cfg = 3 * drawn(5, *SHAPE, seed=5)
    found, _ = changes(step_of(clean, [0] * 5, with_cfg), diversity=diversity)
    missing = (known * diversity**0.5 - median_distances(clean)).clamp(min=0)
    expected = OUTWARD * with_cfg.flatten(1).norm(dim=1) * missing
    torch.testing.assert_close(found.norm(dim=1), expected, rtol=1e-6, atol=1e-9)
    assert (missing > 0).any() == (known * diversity**0.5 > median_distances(clean).min())


def test_moves_bring_back_what_the_network_that_made_the_first_step_varied():
    wide, narrow = alike(4, 0.3), alike(4, 0.1)
    first = step_of(wide, [0] * 4)
    first.network.made_by_undistilled = True
    moves, later = moves_of(first, diversity=0.25), step_of(narrow, [0] * 4)
    found, _ = changes(later, moves)
    missing = 0.5 * BEYOND * median_distances(wide) - median_distances(narrow)
    assert (missing > 0).all()
    torch.testing.assert_close(found.norm(dim=1), OUTWARD * 9 * missing)
    fewer = step_of(narrow[:3], [0] * 3)  # a user's callback may leave samples out
    assert (changes(fewer, moves)[0].norm(dim=1) > 0).all()
    nothing, _ = changes(step_of(wide, [0] * 4), moves)
    assert (nothing.norm(dim=1) < found.norm(dim=1)).all()


def test_samples_as_far_apart_as_the_target_stay_where_they_are():
    step = step_of(drawn(5, *SHAPE), [0] * 5)  # nearly sqrt(2)
    found, moved = changes(step)
    assert (found == 0).all()
    torch.testing.assert_close(moved.latents, step.latents)


@pytest.mark.parametrize("count", [2, 8, 16])
def test_predictions_that_follow_are_about_as_far_apart_as_the_target(count):
    clean = alike(count, 0.2)
    target = VAGUE if median_distances(clean).mean() > SPREAD else KNOWN
    assert median_distances(clean).max() < 0.8 * target
    for _ in range(4):
        moves = moves_of(step := step_of(clean, [0] * count))
        moves._target = target  # as found at the first step
        clean = clean + changes(step, moves)[0].view_as(clean)
    assert float(median_distances(clean).median()) == pytest.approx(target, rel=0.25)


def test_the_noise_of_samples_is_kept():
    step = step_of(alike(4), [0] * 4, with_cfg=drawn(4, *SHAPE, seed=5))
    _, moved = changes(step)
    (signal, noise), (clean, kept) = step.network.levels[1], step.network.found
    torch.testing.assert_close(kept, drawn(4, *SHAPE, seed=9))
    torch.testing.assert_close(moved.latents - signal * clean, noise * kept)
    assert not torch.allclose(moved.latents, step.latents)


def test_samples_of_other_prompts_have_no_effect():
    clean = alike(4)
    other = torch.cat([clean[:2], drawn(2, *SHAPE, seed=3)])
    found, expected = (changes(step_of(it, [0, 0, 1, 1]))[0][:2] for it in (clean, other))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    nearer = torch.cat([clean[:1], clean[2:3], clean[2:]])
    assert (changes(step_of(nearer, [0, 0, 1, 1]))[0][0] - expected[0]).norm() > 0.1


def test_a_broken_sample_breaks_no_other_and_copies_stay():
    clean, memory = alike(4), Memory(20)
    clean[1, 0, 0, 0] = torch.nan
    step = step_of(clean, [0] * 4)
    _, moved = changes(step, moves_of(step, memory))
    assert memory.skipped and moved.latents[[0, 2, 3]].isfinite().all()
    torch.testing.assert_close(moved.latents[1], step.latents[1], equal_nan=True)
    before, copies = memory.skipped, step_of(alike(1).expand(3, *SHAPE).clone(), [0] * 3)
    found, _ = changes(copies, moves_of(copies, memory))
    assert (found == 0).all() and memory.skipped == before and copies.network.asked == 0


@pytest.mark.parametrize("proposal", ["steps", None])
def test_a_lone_sample_moves_away_from_remembered_ones_for_one_evaluation(proposal):
    first, own = alike(2).split(1)
    other, memory = own + 0.8 * drawn(1, *SHAPE, seed=4), Memory(20)
    step = step_of(own, [0], other=other)
    alone = Engine(Rounds(proposal=proposal), memory)
    assert not alone.observe(step) and not alone.why_off and step.network.asked == 0
    memory.add(first, step.prompts)
    guided, latents = Engine(Rounds(proposal=proposal), memory), []
    for _ in range(3):
        assert guided.observe(step)
        latents.append(guided.modify(step).latents)
    assert step.network.asked == 1
    change = (step.network.found[0] - own).flatten()
    assert float(change @ (own - first).flatten()) > 0
    length = OUTWARD * own.norm() * (VAGUE * 0.5**0.5 - (own - other).norm() / own.norm())
    torch.testing.assert_close(change.norm(), length, rtol=1e-5, atol=0)
    assert not moves_of(step_of(own, [0], other=other)).on_step(step).latents.equal(latents[0])


def test_steps_of_low_noise_the_last_and_those_that_end_without_noise_are_not_guided():
    steps = [step_of(alike(4), [0] * 4, before=before) for before in (9.0, ABOVE)]
    steps += [step_of(alike(4), [0] * 4, after=0.0), replace(steps[0], index=19)]
    steps += [replace(steps[0], network=None)]
    moves = moves_of(steps[0])
    assert [moves.is_due(it) for it in steps] == [True, False, False, False, False]
