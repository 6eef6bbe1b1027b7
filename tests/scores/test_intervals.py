"""Confidence intervals and convergence curves."""

import math
from statistics import stdev

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from tests.helpers.every_score import normal
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.functional import (
    conditional_rke,
    rke,
)
from vendi_guidance.scores.intervals import convergence
from vendi_guidance.scores.subsampling import FEWEST_IMAGES, LARGEST_PART, subsample

LABELS = [f"prompt {i // 4}" for i in range(80)]


def test_prompts_are_drawn_whole_and_the_same_of_batches_that_share_them():
    mirrored = LABELS[::-1]
    subsamples = subsample([LABELS, mirrored], [80, 80])
    assert subsamples.unit == "prompts" and subsamples.paired and len(subsamples.parts) == 50
    for first, second in subsamples.parts:
        drawn = {LABELS[i] for i in first}
        assert len(drawn) == 10 and len(first) == 40
        assert drawn == {mirrored[i] for i in second}
        assert torch.equal(first, first.sort().values)
    subsamples = subsample([LABELS, [f"other {label}" for label in LABELS]], [80, 80])
    assert subsamples.unit == "prompts" and not subsamples.paired


def test_of_few_prompts_as_large_a_share_of_the_images_of_each_is_drawn():
    labels = ["a"] * 28 + ["b"] * 12
    subsamples = subsample([labels], [40])
    assert subsamples.unit == "pictures"
    for (rows,) in subsamples.parts:
        assert sum(int(row) < 28 for row in rows) == 21 and len(rows) == 30


def test_of_too_few_images_nothing_is_drawn_and_of_many_small_parts():
    assert not subsample([None], [FEWEST_IMAGES - 1]).parts
    assert not subsample([None, None], [100, FEWEST_IMAGES - 1]).parts
    assert subsample([None], [FEWEST_IMAGES]).parts
    of_many, of_eight = ([f"prompt {i // k}" for i in range(20_000)] for k in (10, 2500))
    for batch, unit in ((of_many, "prompts"), (of_eight, "prompts"), (None, "pictures")):
        subsamples = subsample([batch], [20_000], count=3)
        assert subsamples.unit == unit
        assert all(len(rows) <= LARGEST_PART + 1 for (rows,) in subsamples.parts)


@pytest.mark.parametrize("labels", [LABELS, None])
def test_the_interval_of_a_mean_is_the_textbook_one(labels):
    values = normal(0, 80).tolist()
    if labels is not None:  # prompts differ, pictures of one do not
        values = [values[i // 4] for i in range(80)]
    subsamples = subsample([labels], [80], count=4000)
    units = values[::4] if labels is not None else values
    expected = student.ppf(0.975, len(units) - 1) * stdev(units) / len(units) ** 0.5
    means = [sum(values[i] for i in rows) / len(rows) for (rows,) in subsamples.parts]
    _, low, high = subsamples.estimate(1.0, means)
    assert (1 - low, high - 1) == pytest.approx((expected, expected), rel=0.05)
    assert subsamples.estimate(1.0, means, limits=(0.99, 1.01))[1:] == (0.99, 1.01)
    assert subsamples.estimate(0.7, [0.7] * 4000) == (0.7, None, None)  # nothing varies
    assert subsamples.estimate(0.7, means[1:]) == (0.7, None, None)  # a subset has no score


@pytest.mark.slow
@pytest.mark.parametrize("score", [rke, conditional_rke])
def test_the_interval_covers_the_mean_score_of_as_many_new_items_as_often_as_promised(score):
    """Of overlapping modes of unequal weight, and prompts of two kinds."""
    centres, r = 2 * normal(0, 4, 2).numpy(), np.random.default_rng(3)

    def draw():
        kind = r.choice(4, size=100, p=[0.1, 0.2, 0.3, 0.4])
        x, t = centres[kind] + 0.5 * r.normal(size=(100, 2)), np.eye(2)[kind % 2]
        return (x, Gaussian(1.0)) if score is rke else (x, t, Gaussian(1.0), Gaussian(1.0))

    truth = np.mean([float(score(*draw())) for _ in range(300)])

    def score_of(items, rows):
        taken = (it if isinstance(it, Gaussian) else it[rows] for it in items)
        return float(score(*taken))

    found = []
    for seed in range(50):
        items, halves = draw(), subsample([None], [100], count=30, seed=seed)
        scores = [score_of(items, rows) for (rows,) in halves.parts]
        found.append(halves.estimate(score_of(items, slice(None)), scores, is_ratio=True))
    covered = np.mean([one.low <= truth <= one.high for one in found])
    assert covered >= 0.94 - 3 * math.sqrt(0.95 * 0.05 / len(found))  # to three deviations
    deviation = np.std([one.value for one in found], ddof=1)  # which fifty scores tell to 10%
    half = np.mean([one.high - one.low for one in found]) / 2
    assert half == pytest.approx(student.ppf(0.975, 99) * deviation, rel=0.3)


def test_sizes_are_spread_out_up_to_all_items():
    x = normal(0, 1280, 2)
    found = convergence(lambda rows: rke(x[rows], Gaussian(1.0)), len(x))
    assert found.sizes.tolist() == [20, 36, 66, 119, 215, 390, 707, 1280]
    assert found.scores.shape == (8, 5)
    assert torch.equal(found.mean, found.scores.mean(dim=1))
    assert found.scores[-1].unique().numel() == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: convergence(len, 39), "at least 40, or the sizes"),
        (lambda: convergence(len, 40, repeats=0), "at least 1, got 0"),
        (lambda: convergence(len, 40, sizes=[20, 41]), r"n = 40.* got \[20, 41\]"),
        (lambda: convergence(len, 40, sizes=[9.5, 20]), r"whole .* got \[9.5, 20\]"),
        (lambda: convergence(len, 40, sizes=[40]), "one of them below n"),
    ],
)
def test_bad_input_is_met_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
