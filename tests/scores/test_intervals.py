import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.largest_tensor import LargestTensor
from vendi_guidance.kernels.precomputed import Precomputed
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.bounds import conditional_vendi_guarantee, vendi_guarantee
from vendi_guidance.scores.convergence import convergence
from vendi_guidance.scores.functional import (
    cluster_vendi,
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    intdiv,
    rke,
    vendi,
)
from vendi_guidance.scores.intervals import ORDER_TWO, jackknife, score_interval
from vendi_guidance.scores.spectra import Exact, Nystrom

SIGNS = {score: signs for score, _, signs in ORDER_TWO}


def sample(n, seed=0):
    return normal(n, 3, seed=seed), normal(n, 2, seed=seed + 1)


Z = 1.959963984540054

small = settings(deadline=None, max_examples=30)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# Populations whose RKE is known


class Mixture:
    """Gaussians of one spread around given centres, or the centres themselves."""

    def __init__(self, centres, weights, spread):
        self.centres, self.weights, self.spread = np.array(centres, float), weights, spread

    def draw(self, n, r):
        centres = self.centres[r.choice(len(self.weights), size=n, p=self.weights)]
        return centres + self.spread * r.normal(size=centres.shape)

    def alike(self, sigma):
        """(m, m) means of k^2 of an item of one component with one of another."""
        apart = ((self.centres[:, None] - self.centres) ** 2).sum(axis=-1)
        wide = sigma**2 + 4 * self.spread**2
        return (sigma**2 / wide) ** (self.centres.shape[1] / 2) * np.exp(-apart / wide)

    def rke(self, sigma):
        return 1 / float(self.weights @ self.alike(sigma) @ self.weights)


FAR = 6.0 * np.array(list(itertools.product(range(4), range(3))))
POPULATIONS = {
    "overlapping modes of unequal weight": Mixture(2 * normal(4, 2), np.arange(1, 5) / 10, 0.5),
    "equal modes far apart": Mixture(FAR, np.full(12, 1 / 12), 0.1),
    "two equal points": Mixture(FAR[:2], np.array([0.5, 0.5]), 0.0),
    "two nearly equal points": Mixture(FAR[:2], np.array([0.52, 0.48]), 0.0),
}


def assert_covers(truth, interval, slack=0.015):
    """95% of intervals (low, high) of fresh samples hold the truth, to three deviations of it."""
    r, replications = np.random.default_rng(0), 300
    found = [interval(r) for _ in range(replications)]
    covered = np.mean([low <= truth <= high for low, high in found])
    assert covered == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / replications) + slack)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "items", "slack"),
    [*((name, 300, 0.015) for name in POPULATIONS), ("equal modes far apart", 600, 0)],
)
def test_rke_of_the_population_is_in_the_interval_as_often_as_promised(name, items, slack):
    population = POPULATIONS[name]

    def interval(r):
        return jackknife([population.draw(items, r)], [Gaussian(1.0)], SIGNS[rke], Z)[1:3]

    assert_covers(population.rke(1.0), interval, slack)


@pytest.mark.slow
@pytest.mark.parametrize("score", [conditional_rke, information_rke])
def test_conditional_scores_of_the_population_are_in_their_intervals_as_often_as_promised(score):
    """Prompts of three kinds, each with its own mix of four kinds of outputs."""
    kinds, prompts = Mixture(2 * normal(4, 2), None, 0.5), Mixture(normal(3, 2), None, 0.2)
    mix = np.array([[8, 4, 2, 2], [0, 2, 2, 1], [1, 1, 8, 0]]) / 31
    alike_x, alike_t = kinds.alike(1.0), prompts.alike(0.5)
    squares_x = mix.sum(axis=0) @ alike_x @ mix.sum(axis=0)
    squares_t = mix.sum(axis=1) @ alike_t @ mix.sum(axis=1)
    squares_both = np.einsum("am,ab,mn,bn->", mix, alike_t, alike_x, mix)
    of_information = squares_both / (squares_x * squares_t)

    def interval(r):
        prompt, kind = np.divmod(r.choice(12, size=300, p=mix.ravel()), 4)
        x = kinds.centres[kind] + 0.5 * r.normal(size=(300, 2))
        t = prompts.centres[prompt] + 0.2 * r.normal(size=(300, 2))
        return jackknife([x, t], [Gaussian(1.0), Gaussian(0.5)], SIGNS[score], Z)[1:3]

    is_conditional = score is conditional_rke
    assert_covers(squares_t / squares_both if is_conditional else of_information, interval)


# How the jackknife is computed


@pytest.mark.parametrize("score", [rke, conditional_rke, information_rke])
def test_the_interval_over_many_tiles_is_that_of_dense_matrices(score):
    n, kernel = 700, Gaussian(0.7)
    x, t = (torch.from_numpy(v) for v in sample(n))
    signs = torch.tensor(SIGNS[score], dtype=torch.float64)
    of_x, of_t = kernel.gram(x).square(), kernel.gram(t).square()
    squares = torch.stack([m.fill_diagonal_(0) for m in (of_x, of_t, of_x * of_t)])
    matrices = squares[: len(signs)]
    means = matrices.sum(dim=(1, 2)) / (n * (n - 1))
    shares = matrices / means[:, None, None]
    g = torch.einsum("s,sij->ij", signs, shares)
    of_pairs = g[~torch.eye(n, dtype=bool)]
    relative = (shares.sum(dim=2) / (n - 1) - 1) * (n - 1) / (n - 2)
    first = signs @ relative
    second = 2 * (of_pairs.var(correction=0) - 2 * first.var()) / ((n - 1) * (n - 2))
    variance = 4 * first.var() / n - second
    of_shares = torch.einsum("s,si,sj,j->i", signs, relative, relative, first) / n
    influence = first**2 + 2 * (g @ first) / (n - 1) - 4 * of_shares
    tilt = 2 / n * (first * influence).sum() / (first**2).sum()
    middle = Z**2 * tilt / 2
    root = (middle**2 + Z**2 * variance).sqrt()
    estimate = (signs @ means.log()).exp()
    expected = [estimate, estimate * (middle - root).exp(), estimate * (middle + root).exp()]

    items = [x] if score is rke else [x, t]
    kernels = [kernel] * len(items)
    whole = (matrices.sum(dim=(1, 2)) + n) / n**2  # of the score, which has the diagonal
    assert float((signs @ whole.log()).exp()) == pytest.approx(float(score(*items, *kernels)))
    with LargestTensor() as largest:
        found = jackknife(items, kernels, SIGNS[score], Z)
    assert found == pytest.approx([*map(float, expected), float(estimate * variance.sqrt())])
    assert largest.numel <= 512**2  # a tile of K, never all of it


@small
@given(st.integers(20, 60), st.integers(0, 1000), st.sampled_from([rke, conditional_rke]))
def test_neither_the_order_of_the_items_nor_their_precision_matters(n, seed, score):
    r = np.random.default_rng(seed)
    x, t = r.normal(size=(n, 3)), r.normal(size=(n, 2))
    items, kernels = ((x,), (Gaussian(1.0),)) if score is rke else ((x, t), (Gaussian(1.0),) * 2)
    expected = jackknife(items, kernels, SIGNS[score], Z)
    shuffled = r.permutation(n)
    assert jackknife([v[shuffled] for v in items], kernels, SIGNS[score], Z) == pytest.approx(
        expected, rel=1e-6
    )
    narrow = [v.astype(np.float32) for v in items]
    assert jackknife(narrow, kernels, SIGNS[score], Z) == pytest.approx(expected, rel=1e-3)


def test_the_estimate_is_free_of_what_the_diagonal_adds():
    """250 of 5,000 equal points: the sample can hold no more than 250 kinds."""
    points = 100.0 * np.random.default_rng(0).integers(5000, size=(250, 1))
    found = score_interval(rke, points, Gaussian(1.0))
    assert found.score < 250
    assert found.low < 5000 < found.high
    assert found.estimate == pytest.approx(1 / (250 / found.score - 1) * 249, rel=1e-9)


# Subsampling


@pytest.mark.parametrize(
    ("score", "options"), [(vendi, {}), (vendi, {"order": 1.5, "truncation": 20})]
)
def test_halves_tell_the_deviation_between_independent_samples(score, options):
    population, r = POPULATIONS["overlapping modes of unequal weight"], np.random.default_rng(3)
    kernel, samples = Gaussian(1.0), 60
    scores = [float(score(population.draw(200, r), kernel, **options)) for _ in range(samples)]

    def halves(seed):
        return score_interval(score, population.draw(200, r), kernel, seed=seed, **options)

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
    assert found.score == found.estimate == pytest.approx(6 + shift)
    assert found.low < 6 + shift < found.high
    assert (found.method, found.bound) == ("subsampling", None)
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


@pytest.mark.parametrize(
    ("short", "long"),
    [(rke, vendi), (conditional_rke, conditional_vendi), (information_rke, information_vendi)],
)
def test_exact_scores_of_order_two_are_known_by_both_names_and_kernels_by_keyword(short, long):
    x, t = sample(50)
    arguments = (x, Gaussian(1.0)) if short is rke else (x, t, Gaussian(1.0), Gaussian(2.0))
    kernels = {"kernel": arguments[-1]}
    if short is not rke:
        kernels = {"kernel_t": arguments[-1], "kernel_x": arguments[-2]}
    expected = score_interval(short, *arguments)
    assert expected.method == "jackknife"
    assert score_interval(short, *arguments, spectrum=Exact()) == expected
    assert score_interval(short, *arguments[: -len(kernels)], **kernels) == expected
    found = score_interval(long, *arguments, order=2, truncation=None)
    assert (found.method, found.low, found.high) == ("jackknife", expected.low, expected.high)
    for other in ({"truncation": 5}, {"spectrum": Nystrom(10)}):
        found = score_interval(long, *arguments, order=2, subsamples=10, **other)
        assert found.method == "subsampling"


@pytest.mark.parametrize("score", [rke, intdiv])
def test_more_confidence_takes_a_wider_interval(score):
    x, k = normal(100, 2), Gaussian(1.0)
    levels = (0.5, 0.9, 0.95, 0.999)
    found = [score_interval(score, x, k, level=level) for level in levels]
    for narrow, wide in itertools.pairwise(found):
        assert wide.low < narrow.low < narrow.estimate < narrow.high < wide.high
        assert wide.standard_error == narrow.standard_error
    if score is intdiv:  # which halves are drawn is the seed's
        again, other = (score_interval(score, x, k, level=0.5, seed=seed) for seed in (0, 1))
        assert again == found[0] and other.low != found[0].low
    # a matrix at hand gives the interval of its kernel
    given = score_interval(score, range(100), Precomputed(k.gram(x)))
    assert (given.low, given.high) == pytest.approx((found[2].low, found[2].high))


# Guarantees


def test_guarantees_are_the_theorems():
    log = math.log(2 / 0.05)
    low, high = vendi_guarantee(4.0, 10_000, 2, None, 0.05)
    assert low**-0.5 == pytest.approx(4**-0.5 + math.sqrt(32 * log / 10_000))
    assert high**-0.5 == pytest.approx(4**-0.5 - math.sqrt(32 * log / 10_000))
    low, high = vendi_guarantee(4.0, 10**6, 1.5, 20, 0.05)
    assert low ** (-1 / 3) == pytest.approx(4 ** (-1 / 3) + math.sqrt(32 * 20**0.5 * log / 10**6))
    low, high = vendi_guarantee(4.0, 10**6, 1, 20, 0.05)
    error = math.sqrt(160 * log / 10**6) * math.log(20 * 10**6 / (32 * log))
    assert (low, high) == pytest.approx((4 * math.exp(-error), 4 * math.exp(error)))
    low, high = conditional_vendi_guarantee(4.0, 10**7, 20, 0.05)
    error = math.sqrt(400 * math.log(80) / 10**7) * math.log(20 * 10**7)
    assert (low, high) == pytest.approx((4 * math.exp(-error), 4 * math.exp(error)))


@pytest.mark.parametrize("order", [1, 1.2, 1.5, 2, 3, math.inf])
def test_a_guarantee_stays_in_the_range_of_the_score_and_narrows_with_n(order):
    found = [vendi_guarantee(3.0, n, order, 10, 0.05) for n in (10**3, 10**5, 10**7, 10**9)]
    for (wide_low, wide_high), (low, high) in itertools.pairwise(found):
        assert 1 <= wide_low <= low < 3 < high <= wide_high <= 10 + 1e-9
    assert found[-1] == pytest.approx((3, 3), rel=0.1)


def test_no_theorem_no_guarantee():
    assert vendi_guarantee(3.0, 10**6, 0.5, 10, 0.05) is None  # order below 1
    assert vendi_guarantee(3.0, 10**6, 1.5, None, 0.05) is None  # infinite dimension
    assert vendi_guarantee(3.0, 25, 2, None, 0.05) is None  # 2 + 8 log 20 = 25.97
    assert vendi_guarantee(3.0, 26, 2, None, 0.05) is not None
    assert vendi_guarantee(3.0, 872, 1, 10, 0.05) is None  # 32 e^2 log 40 = 872.2
    assert vendi_guarantee(3.0, 873, 1, 10, 0.05) is not None
    assert vendi_guarantee(3.0, 10**6, 1 + 1e-7, 10, 0.05) == (1, 10)  # as good as none
    assert conditional_vendi_guarantee(3.0, 10**6, None, 0.05) is None
    assert conditional_vendi_guarantee(3.0, 463, 10, 0.05) is None
    assert conditional_vendi_guarantee(3.0, 465, 10, 0.05) is not None


def test_guarantees_go_with_the_scores_that_they_are_for():
    x, t = sample(900)
    k = Gaussian(1.0)

    def bound(score, *arguments, **options):
        options |= {"subsamples": 10} if score is not rke else {}
        return score_interval(score, *arguments, **options).bound

    n, p = 900, pytest.approx
    assert bound(rke, x, k) == p(vendi_guarantee(float(rke(x, k)), n, 2, None, 0.05))
    cosine = float(vendi(x, Cosine()))
    assert bound(vendi, x, Cosine()) == p(vendi_guarantee(cosine, n, 1, 3, 0.05))
    assert bound(vendi, x, Cosine(), truncation=9) == p(vendi_guarantee(cosine, n, 1, 3, 0.05))
    both = (x, t, Cosine(), Cosine())
    expected = conditional_vendi_guarantee(float(conditional_vendi(*both)), n, 6, 0.05)
    assert bound(conditional_vendi, *both) == p(expected)
    assert bound(vendi, x[:30], k, truncation=4, order=3) is not None
    assert bound(vendi, x[:30], k) is None
    assert bound(vendi, x[:30], k, order=2, spectrum=Nystrom(10)) is None
    assert bound(conditional_vendi, x[:30], t[:30], k, k, order=1.5, truncation=4) is None
    assert bound(conditional_rke, x[:30], t[:30], k, k) is None
    assert bound(intdiv, x[:30], k) is None


# Convergence


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
    found = convergence(lambda rows: max(rows), range(100), sizes=[99, 10, 50.0, 10], repeats=4)
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


X = normal(40, 2)
K = Gaussian(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: score_interval(rke, X, K, level=1), "level must lie between 0 and 1, got 1"),
        (lambda: convergence(rke, X, K, level=95), "level must lie between 0 and 1, got 95"),
        (lambda: score_interval(rke, X[:19], K), "needs at least 20 items, got 19"),
        (lambda: score_interval(vendi, X, K, subsamples=9), "at least 10, got 9"),
        (lambda: score_interval(vendi, X, K, subsamples=1e3), "subsamples must be a whole number"),
        (lambda: score_interval(vendi, X, K, weights=X[:, 0]), "leave them out"),
        (lambda: score_interval(rke), "there are no items"),
        (lambda: score_interval(cluster_vendi, X, "abc", K), r"same items, got n = \[40, 3\]"),
        (lambda: score_interval(rke, iter(X), K), "a tensor, an array or a sequence"),
        (lambda: score_interval(rke, [X, X], K), "gather its chunks"),
        (lambda: score_interval(rke, 100 * np.arange(30.0)[:, None], K), "no two of 30 items"),
        (lambda: convergence(rke, X[:39], K), "at least 40, or the sizes"),
        (lambda: convergence(rke, X, K, repeats=2), "at least 3, got 2"),
        (lambda: convergence(rke, X, K, repeats=5.0), "repeats must be a whole number"),
        (lambda: convergence(rke, X, K, sizes=[20, 41]), r"n = 40.* got \[20, 41\]"),
        (lambda: convergence(rke, X, K, sizes=[0, 20]), "whole numbers from 1 to n = 40"),
        (lambda: convergence(rke, X, K, sizes=[9.5, 20]), r"whole .* got \[9.5, 20\]"),
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
