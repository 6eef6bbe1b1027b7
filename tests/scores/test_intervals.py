import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import settings

from vendi_guidance.kernels.custom import Precomputed
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.convergence import convergence
from vendi_guidance.scores.functional import (
    cluster_vendi,
    conditional_rke,
    conditional_vendi,
    intdiv,
    rke,
    vendi,
)
from vendi_guidance.scores.intervals import score_interval


def sample(n, seed=0):
    return normal(n, 3, seed=seed), normal(n, 2, seed=seed + 1)


small = settings(deadline=None, max_examples=30)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# Subsampling


@pytest.mark.parametrize(
    ("score", "options"), [(vendi, {}), (vendi, {"order": 1.5, "truncation": 20}), (rke, {})]
)
def test_halves_tell_the_deviation_between_independent_samples(score, options):
    modes, r = 2 * normal(4, 2), np.random.default_rng(3)

    def draw(n):  # of overlapping modes of unequal weight
        centres = modes[r.choice(4, size=n, p=np.arange(1, 5) / 10)]
        return centres + 0.5 * r.normal(size=centres.shape)

    kernel, samples = Gaussian(1.0), 60
    scores = [float(score(draw(200), kernel, **options)) for _ in range(samples)]

    def halves(seed):
        x, how = draw(200), {"seed": seed, **options}
        return score_interval(score, x, kernel, **how)

    errors = [halves(seed).standard_error for seed in range(4)]
    # Sixty samples tell their deviation to 9%, four times a hundred halves to 4%.
    assert np.mean(errors) == pytest.approx(np.std(scores, ddof=1), rel=0.3)


@pytest.mark.parametrize("shift", [0, -6])
def test_any_score_of_any_items_has_an_interval(shift):
    """Also where it is below zero, and has no logarithm."""
    words = [word * length for word in "abcdefgh" for length in range(1, 6)]

    def mean_length(texts, scale):
        assert isinstance(texts, list)
        return scale * sum(map(len, texts)) / len(texts) + shift

    found = score_interval(mean_length, words, 2.0, seed=1)
    assert found.score == pytest.approx(6 + shift)
    assert found.low < 6 + shift < found.high
    expected = 2 * np.std([1, 2, 3, 4, 5]) / math.sqrt(40)
    assert found.standard_error == pytest.approx(expected, rel=0.25)


def test_labels_and_prompts_stay_with_their_items():
    labels, few = [index % 4 for index in range(60)], {"subsamples": 10}
    x = np.array(labels)[:, None] * 100.0
    for clusters in (labels, np.array(labels), torch.tensor(labels), "abcd" * 15):
        found = score_interval(cluster_vendi, x, clusters, Gaussian(1.0), **few)
        assert (found.low, found.score, found.high) == pytest.approx((1, 1, 1))
    both = (x, x, Gaussian(1.0), Gaussian(1.0))
    found = score_interval(conditional_vendi, *both, truncation=10, **few)
    assert (found.low, found.score, found.high) == pytest.approx((1, 1, 1))


def test_progress_sees_every_half_and_a_seed_gives_them_again():
    seen = []

    def interval(seed):
        watch = lambda numbers: map(lambda number: seen.append(number) or number, numbers)  # noqa: E731
        few = {"subsamples": 12, "seed": seed, "progress": watch}
        return score_interval(intdiv, normal(40, 2), Gaussian(1.0), **few)

    first = interval(3)
    assert seen == list(range(12))
    assert interval(3) == first and interval(4).low != first.low


# How sure


def test_more_confidence_takes_a_wider_interval():
    x, k = normal(100, 2), Gaussian(1.0)
    levels = (0.5, 0.9, 0.95, 0.999)
    found = [score_interval(rke, x, k, level=level) for level in levels]
    for narrow, wide in itertools.pairwise(found):
        assert wide.low < narrow.low < narrow.score < narrow.high < wide.high
        assert wide.standard_error == narrow.standard_error
    # a matrix at hand gives the interval of its kernel
    given = score_interval(rke, range(100), Precomputed(k.gram(x)))
    assert (given.low, given.high) == pytest.approx((found[2].low, found[2].high))


# Convergence


def test_vendi_keeps_growing_while_truncated_vendi_and_rke_settle():
    """Figure 1 of Ospanov & Farnia (UAI 2025), with modes in 32 dimensions."""
    r = np.random.default_rng(0)
    x = 5 * r.normal(size=(10, 32))[r.integers(10, size=600)] + r.normal(size=(600, 32))
    sizes = [150, 300, 600]

    def ratios(score, kernel, **options):
        mean = convergence(score, x, kernel, sizes=sizes, repeats=3, **options).mean
        return mean[1:] / mean[:-1]

    assert (ratios(vendi, Gaussian(6.0)) > 1.3).all()
    assert ratios(vendi, Gaussian(6.0), truncation=50)[-1] < 1.01
    assert ratios(rke, Gaussian(6.0))[-1] < 1.08
    assert ratios(vendi, Cosine())[-1] < 1.01


def test_sizes_are_spread_out_up_to_all_items():
    found = convergence(intdiv, normal(1280, 2), Gaussian(1.0))
    assert found.sizes.tolist() == [20, 36, 66, 119, 215, 390, 707, 1280]
    assert found.scores.shape == (8, 5)
    assert found.mean.shape == found.low.shape == found.high.shape == (8,)
    assert found.scores[-1].unique().numel() == 1
    assert (found.low < found.mean).all() and (found.mean < found.high).all()


def test_the_band_is_where_scores_of_fresh_items_lie():
    sizes, repeats = [50, 100, 200], 40

    def mean_of(x):
        return float(x.mean())

    found = convergence(mean_of, normal(200, 1), sizes=sizes, repeats=repeats)
    half = (found.high - found.low) / 2
    assert half.tolist() == pytest.approx([1.96 / math.sqrt(size) for size in sizes], rel=0.3)


def test_each_repeat_adds_to_its_items():
    found = convergence(lambda rows: max(rows), range(100), sizes=[99, 10, 50, 10], repeats=4)
    assert found.sizes.tolist() == [10, 50, 99]
    assert (found.scores[1:] >= found.scores[:-1]).all()


def test_the_plot_shows_the_mean_and_the_band():
    pytest.importorskip("matplotlib").use("Agg")
    found = convergence(intdiv, normal(80, 2), Gaussian(1.0))
    ax = found.plot(label="IntDiv")
    assert found.plot(ax) is ax
    line = ax.get_lines()[0]
    assert line.get_label() == "IntDiv"
    assert line.get_ydata().tolist() == found.mean.tolist()
    assert len(ax.collections) == 2


# Bad input

X = normal(40, 2)
K = Gaussian(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: score_interval(rke, X, K, level=1), "level must lie between 0 and 1, got 1"),
        (lambda: convergence(rke, X, K, level=95), "level must lie between 0 and 1, got 95"),
        (lambda: score_interval(rke, X[:19], K), "needs at least 20 items, got 19"),
        (lambda: score_interval(vendi, X, K, subsamples=9), "at least 10, got 9"),
        (lambda: score_interval(vendi, X, K, weights=X[:, 0]), "leave them out"),
        (lambda: score_interval(rke), "there are no items"),
        (lambda: score_interval(cluster_vendi, X, "abc", K), r"same items, got n = \[40, 3\]"),
        (lambda: score_interval(rke, iter(X), K), "a tensor, an array or a sequence"),
        (lambda: score_interval(rke, [X, X], K), "gather its chunks"),
        (lambda: convergence(rke, X[:39], K), "at least 40, or the sizes"),
        (lambda: convergence(rke, X, K, repeats=2), "at least 3, got 2"),
        (lambda: convergence(rke, X, K, sizes=[20, 41]), r"n = 40.* got \[20, 41\]"),
        (lambda: convergence(rke, X, K, sizes=[0, 20]), "sizes must lie between 1 and n = 40"),
        (lambda: convergence(rke, X, K, sizes=[40]), "one of them below n"),
        (lambda: convergence(rke, X, K, sizes=[]), r"got \[\]"),
    ],
)
def test_bad_input_is_met_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [rke, conditional_rke])
def test_of_copies_there_is_no_doubt(score, dtype):
    x = torch.randn(1, 12, generator=torch.Generator().manual_seed(0), dtype=dtype).repeat(30, 1)
    items = [x] if score is rke else [x, x]
    found = score_interval(score, *items, *[Gaussian(1.3)] * len(items))
    assert (found.low, found.high, found.standard_error) == (1, 1, 0)
