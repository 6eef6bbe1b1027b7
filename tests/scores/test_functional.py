import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from tests.helpers.duplicates import DTYPES, KINDS, WIDTHS, sample, spectrum
from tests.helpers.largest_tensor import LargestTensor
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.entropy import renyi_entropy
from vendi_guidance.scores.functional import (
    cluster_rke,
    cluster_vendi,
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    intdiv,
    rke,
    vendi,
)

KERNELS = [Gaussian(0.8), Cosine()]
PAIRS = [(a, b) for a in (Gaussian(0.8), Cosine()) for b in (Gaussian(1.9), Cosine())]
ORDERS = [0.5, 1, 1.5, 2, math.inf]
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "scores.json").read_text())

small = settings(deadline=None, max_examples=30)
kernels = st.sampled_from(KERNELS)
pairs = st.sampled_from(PAIRS)
renyi_orders = st.sampled_from(ORDERS)


@st.composite
def samples(draw, max_n=12):
    """(x, t) in float64: a few modes, sometimes with exact duplicates, never a zero vector."""
    n, d, m = draw(st.integers(1, max_n)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    r = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = r.normal(size=(4, d))[r.integers(4, size=n)]
    t = r.normal(size=(3, m))[r.integers(3, size=n)]
    spread = draw(st.sampled_from([0.0, 0.1, 1.0]))
    x, t = x + spread * r.normal(size=(n, d)), t + spread * r.normal(size=(n, m))
    return torch.from_numpy(x), torch.from_numpy(t)


def far_apart(n: int) -> torch.Tensor:
    """n items that no kernel finds anything in common between."""
    return 100 * torch.eye(n, dtype=torch.float64)


# Golden values


def golden_sample(case):
    r = np.random.default_rng(case["seed"])
    n, d, m = case["n"], case["d"], case["m"]
    cx, ct = r.normal(size=(case["modes_x"], d)), r.normal(size=(case["modes_t"], m))
    ix, it = r.integers(case["modes_x"], size=n), r.integers(case["modes_t"], size=n)
    x = cx[ix] + case["spread"] * r.normal(size=(n, d))
    t = ct[it] + case["spread"] * r.normal(size=(n, m))
    return x, t


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["seed"])
@pytest.mark.parametrize("name", ["gaussian", "cosine"])
def test_scores_match_the_golden_values(case, name):
    x, t = golden_sample(case)
    rank, n = case["truncation"], case["n"]
    p = np.random.default_rng(case["seed"] + 1).dirichlet(np.ones(n))
    k = Gaussian(case["sigma_x"]) if name == "gaussian" else Cosine()
    both = (x, t, k, Gaussian(case["sigma_t"]) if name == "gaussian" else Cosine())
    scores = {
        "vendi_1": lambda: vendi(x, k),
        "vendi_0_5": lambda: vendi(x, k, order=0.5),
        "vendi_1_5": lambda: vendi(x, k, order=1.5),
        "rke": lambda: rke(x, k),
        "vendi_inf": lambda: vendi(x, k, order=math.inf),
        "vendi_weighted": lambda: vendi(x, k, weights=p),
        "truncated_vendi": lambda: vendi(x, k, truncation=rank),
        "truncated_vendi_1_5": lambda: vendi(x, k, order=1.5, truncation=rank),
        "conditional_vendi": lambda: conditional_vendi(*both),
        "conditional_rke": lambda: conditional_rke(*both),
        "information_vendi": lambda: information_vendi(*both),
        "information_rke": lambda: information_rke(*both),
        "truncated_conditional_vendi": lambda: conditional_vendi(*both, truncation=rank),
        "truncated_information_vendi": lambda: information_vendi(*both, truncation=rank),
    }
    for field, expected in case[name].items():
        assert float(scores[field]()) == pytest.approx(expected, rel=1e-9), field


# Parity with the vendi-score package


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, math.inf])
def test_vendi_agrees_with_the_vendi_score_package(kernel, order):
    reference = pytest.importorskip("vendi_score.vendi")
    x = np.random.default_rng(0).normal(size=(30, 40))
    p = np.random.default_rng(1).dirichlet(np.ones(30))
    gram, q = kernel.gram(x).numpy(), "inf" if order == math.inf else order
    assert float(vendi(x, kernel, order=order)) == pytest.approx(reference.score_K(gram, q=q))
    weighted = float(vendi(x, kernel, order=order, weights=p))
    assert weighted == pytest.approx(reference.score_K(gram, q=q, p=p))


@pytest.mark.parametrize("order", [1, 1.5, 2, math.inf])
def test_cosine_vendi_agrees_with_the_packages_dual(order):
    reference = pytest.importorskip("vendi_score.vendi")
    x = np.random.default_rng(0).normal(size=(50, 7))
    q = "inf" if order == math.inf else order
    assert float(vendi(x, Cosine(), order=order)) == pytest.approx(reference.score_dual(x, q=q))


@pytest.mark.parametrize("kernel", KERNELS)
def test_intdiv_agrees_with_the_vendi_score_package(kernel):
    reference = pytest.importorskip("vendi_score.vendi")
    x = np.random.default_rng(0).normal(size=(50, 7))
    expected = reference.intdiv_K(kernel.gram(x).numpy())
    assert float(intdiv(x, kernel)) == pytest.approx(expected)


# What the scores count (Friedman & Dieng, Theorem 3.1)


@small
@given(samples(), kernels, renyi_orders)
def test_vendi_lies_between_one_and_n(sample, kernel, order):
    x, _ = sample
    assert 1 - 1e-9 <= float(vendi(x, kernel, order=order)) <= len(x) + 1e-9


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("order", ORDERS)
def test_one_item_scores_one(kernel, order):
    x = np.ones((1, 3))
    assert float(vendi(x, kernel, order=order)) == pytest.approx(1, rel=1e-12)
    assert float(vendi(x, kernel, order=order, truncation=1)) == 1
    assert float(conditional_vendi(x, x, kernel, kernel, order=order)) == pytest.approx(1)
    assert float(information_vendi(x, x, kernel, kernel, order=order)) == pytest.approx(1)
    assert float(cluster_vendi(x, [0], kernel, order=order)) == pytest.approx(1)
    assert float(intdiv(x, kernel)) == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("order", ORDERS)
def test_n_distinct_items_score_n_and_n_identical_ones_score_one(kernel, order):
    assert float(vendi(far_apart(9), kernel, order=order)) == pytest.approx(9)
    identical = torch.ones(9, 3, dtype=torch.float64)
    # Rounding errors of 1e-17 have square roots of 1e-8.
    assert float(vendi(identical, kernel, order=order)) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_groups_that_share_nothing_add_their_entropies_as_mixtures_do(order):
    """Partitioning: groups of equal size that share nothing score the sum of equal scores."""
    group = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 3)))
    groups = torch.cat([group + 1000 * shift for shift in range(5)])
    whole = float(vendi(groups, Gaussian(1.0), order=order))
    assert whole == pytest.approx(5 * float(vendi(group, Gaussian(1.0), order=order)))


@small
@given(samples(), kernels, renyi_orders, st.integers(0, 100))
def test_the_order_of_the_items_does_not_matter(sample, kernel, order, seed):
    x, t = sample
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    score = float(vendi(x, kernel, order=order))
    assert float(vendi(x[shuffled], kernel, order=order)) == pytest.approx(score, rel=1e-6)
    score = float(conditional_rke(x, t, kernel, kernel))
    assert float(conditional_rke(x[shuffled], t[shuffled], kernel, kernel)) == pytest.approx(score)


@small
@given(samples(), kernels, st.integers(1, 4), renyi_orders)
def test_copying_every_item_as_often_changes_nothing(sample, kernel, times, order):
    x, _ = sample
    score = float(vendi(x, kernel, order=order))
    assert float(vendi(x.repeat(times, 1), kernel, order=order)) == pytest.approx(score, rel=1e-5)


@small
@given(samples(), kernels)
def test_vendi_falls_as_its_order_grows(sample, kernel):
    x, _ = sample
    scores = [float(vendi(x, kernel, order=order)) for order in (0.5, 0.9, 1, 1.1, 2, 5, math.inf)]
    assert all(low >= high - 1e-9 for low, high in itertools.pairwise(scores))


@small
@given(samples(), kernels, renyi_orders)
def test_uniform_weights_are_no_weights(sample, kernel, order):
    x, _ = sample
    uniform = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    weighted = float(vendi(x, kernel, order=order, weights=uniform))
    assert weighted == pytest.approx(float(vendi(x, kernel, order=order)), rel=1e-6)


@small
@given(samples(), kernels, st.data())
def test_repeating_an_item_is_weighting_it(sample, kernel, data):
    x, _ = sample
    counts = data.draw(st.lists(st.integers(0, 4), min_size=len(x), max_size=len(x)))
    assume(sum(counts) > 0)
    times = torch.tensor(counts)
    repeated = x.repeat_interleave(times, dim=0)
    weighted = float(vendi(x, kernel, weights=times / times.sum()))
    assert weighted == pytest.approx(float(vendi(repeated, kernel)), rel=1e-6)


# Truncation


@small
@given(samples(), pairs, st.integers(0, 3), st.sampled_from([1, 1.5, 2, math.inf]))
def test_truncation_at_n_or_more_changes_no_score(sample, pair, beyond, order):
    x, t = sample
    rank = len(x) + beyond
    for score, arguments in (
        (vendi, (x, pair[0])),
        (conditional_vendi, (x, t, *pair)),
        (information_vendi, (x, t, *pair)),
    ):
        plain = float(score(*arguments, order=order))
        assert float(score(*arguments, order=order, truncation=rank)) == pytest.approx(plain)


@small
@given(samples(), kernels, st.integers(1, 12))
def test_a_truncated_score_is_at_most_its_rank_and_the_whole_score(sample, kernel, rank):
    x, _ = sample
    truncated = float(vendi(x, kernel, truncation=rank))
    assert truncated <= rank + 1e-9
    assert truncated <= float(vendi(x, kernel)) + 1e-9


# Conditional and information scores


@small
@given(samples(), pairs, st.sampled_from([1, 1.5, 2, math.inf]), st.sampled_from([None, 1, 3, 50]))
def test_vendi_is_conditional_times_information_vendi(sample, pair, order, rank):
    x, t = sample
    settings_ = {"order": order, "truncation": rank}
    product = conditional_vendi(x, t, *pair, **settings_) * information_vendi(
        x, t, *pair, **settings_
    )
    assert float(product) == pytest.approx(float(vendi(x, pair[0], **settings_)))


@small
@given(samples(), pairs, st.sampled_from([1, 1.5, math.inf]))
def test_information_is_what_two_entropies_exceed_the_joint_one_by(sample, pair, order):
    x, t = sample
    joint = np.linalg.eigvalsh((pair[0].gram(x) * pair[1].gram(t)).numpy() / len(x))
    p = joint[joint > 1e-15]
    joint_score = {
        1: lambda: np.exp(-(p * np.log(p)).sum()),
        1.5: lambda: (p**1.5).sum() ** -2,
        math.inf: lambda: 1 / p.max(),
    }[order]()
    apart = vendi(x, pair[0], order=order) * vendi(t, pair[1], order=order)
    information = float(information_vendi(x, t, *pair, order=order))
    assert information == pytest.approx(float(apart) / joint_score)


@small
@given(samples(), pairs)
def test_rke_is_conditional_times_information_rke(sample, pair):
    x, t = sample
    product = conditional_rke(x, t, *pair) * information_rke(x, t, *pair)
    assert float(product) == pytest.approx(float(rke(x, pair[0])))


@small
@given(samples(), pairs)
def test_rke_scores_are_the_vendi_scores_of_order_two(sample, pair):
    """Order 2 takes no spectrum; a truncation that keeps all makes it take one."""
    x, t = sample
    of_order_two = {"order": 2, "truncation": len(x)}
    assert float(rke(x, pair[0])) == pytest.approx(float(vendi(x, pair[0], **of_order_two)))
    for short, long in (
        (conditional_rke, conditional_vendi),
        (information_rke, information_vendi),
    ):
        expected = float(long(x, t, *pair, **of_order_two))
        assert float(short(x, t, *pair)) == pytest.approx(expected)
        assert float(long(x, t, *pair, order=2)) == pytest.approx(expected)


@small
@given(samples(), pairs, renyi_orders)
def test_constant_prompts_make_the_conditional_score_plain(sample, pair, order):
    x, t = sample
    t = t[:1].expand(len(x), -1)
    conditional = float(conditional_vendi(x, t, *pair, order=order))
    assert conditional == pytest.approx(float(vendi(x, pair[0], order=order)), rel=1e-5)
    assert float(conditional_rke(x, t, *pair)) == pytest.approx(float(rke(x, pair[0])))
    assert float(information_rke(x, t, *pair)) == pytest.approx(1)


@small
@given(samples(), pairs, renyi_orders)
def test_all_different_prompts_make_the_conditional_score_one(sample, pair, order):
    x, _ = sample
    t = far_apart(len(x))
    assert float(conditional_vendi(x, t, *pair, order=order)) == pytest.approx(1)
    assert float(conditional_rke(x, t, *pair)) == pytest.approx(1)
    assert float(information_rke(x, t, *pair)) == pytest.approx(float(rke(x, pair[0])))


# Clusters


@pytest.mark.parametrize("kernel", KERNELS)
def test_cluster_scores_average_the_scores_of_the_clusters(kernel):
    x = np.random.default_rng(0).normal(size=(10, 3))
    clusters = np.array([4, 4, 7, 4, 7, 4, 4, 9, 4, 7])
    expected = sum(
        (clusters == label).mean() * float(vendi(x[clusters == label], kernel))
        for label in (4, 7, 9)
    )
    assert float(cluster_vendi(x, clusters, kernel)) == pytest.approx(expected)
    words = [f"prompt {label}" for label in clusters]
    assert float(cluster_vendi(x, words, kernel)) == pytest.approx(expected)
    assert float(cluster_vendi(x, torch.tensor(clusters), kernel)) == pytest.approx(expected)


@small
@given(samples(), kernels, renyi_orders)
def test_one_cluster_scores_as_the_whole_and_clusters_of_one_score_one(sample, kernel, order):
    x, _ = sample
    whole = float(cluster_vendi(x, [0] * len(x), kernel, order=order))
    assert whole == pytest.approx(float(vendi(x, kernel, order=order)))
    assert float(cluster_vendi(x, range(len(x)), kernel, order=order)) == pytest.approx(1)
    assert float(cluster_rke(x, [0] * len(x), kernel)) == pytest.approx(float(rke(x, kernel)))


# Internal diversity


@small
@given(samples(), kernels)
def test_intdiv_is_one_minus_the_mean_similarity(sample, kernel):
    x, _ = sample
    expected = 1 - float(kernel.gram(x).mean())
    assert float(intdiv(x, kernel)) == pytest.approx(expected, abs=1e-12)


# How they are computed


def test_cosine_scores_are_the_same_from_the_dual_and_the_full_matrix():
    x = np.random.default_rng(0).normal(size=(20, 6))
    p = np.random.default_rng(1).dirichlet(np.ones(20))
    padded = np.concatenate([x, np.zeros((20, 20))], axis=1)  # d >= n: no dual
    for settings_ in ({}, {"order": 1.5}, {"weights": p}, {"truncation": 4}, {"truncation": 9}):
        dual = float(vendi(x, Cosine(), **settings_))
        assert float(vendi(padded, Cosine(), **settings_)) == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize(
    "score",
    [
        lambda x, t: rke(x, Gaussian(1.0)),
        lambda x, t: rke(x, Cosine()),
        lambda x, t: vendi(x, Gaussian(1.0), order=2),
        lambda x, t: intdiv(x, Cosine()),
        lambda x, t: conditional_rke(x, t, Gaussian(1.0), Gaussian(1.0)),
        lambda x, t: information_rke(x, t, Gaussian(1.0), Cosine()),
    ],
)
def test_scores_of_order_two_never_hold_a_gram_matrix(score):
    n = 8000
    generator = torch.Generator().manual_seed(0)
    x, t = torch.randn(n, 2, generator=generator), torch.randn(n, 2, generator=generator)
    with LargestTensor() as largest:
        score(x, t)
    assert n < largest.numel < n * n / 100


def test_cosine_spectra_of_few_dimensions_never_hold_a_gram_matrix():
    x = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    with LargestTensor() as largest:
        vendi(x, Cosine())
    assert largest.numel == x.numel()


@pytest.mark.parametrize("pair", PAIRS)
def test_order_two_over_many_tiles_is_that_of_the_whole_matrix(pair):
    r = np.random.default_rng(0)
    x, t = r.normal(size=(1300, 5)), r.normal(size=(1300, 3))
    gram_x, gram_t = pair[0].gram(x), pair[1].gram(t)
    norm_x, norm_t = gram_x.square().sum(), gram_t.square().sum()
    norm_joint = (gram_x * gram_t).square().sum()
    assert float(rke(x, pair[0])) == pytest.approx(float(1300**2 / norm_x))
    assert float(conditional_rke(x, t, *pair)) == pytest.approx(float(norm_t / norm_joint))
    expected = float(1300**2 * norm_joint / (norm_x * norm_t))
    assert float(information_rke(x, t, *pair)) == pytest.approx(expected)
    assert float(intdiv(x, pair[0])) == pytest.approx(float(1 - gram_x.mean()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_score_is_a_float64_number_without_a_graph(dtype):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3))).to(dtype)
    x.requires_grad_()
    k, both = Gaussian(1.0), (x, x, Gaussian(1.0), Cosine())
    for score in (
        vendi(x, k),
        vendi(x, Cosine(), order=math.inf),
        rke(x, k),
        conditional_vendi(*both),
        conditional_rke(*both),
        information_vendi(*both),
        information_rke(*both),
        cluster_vendi(x, "aabbcc", k),
        cluster_rke(x, "aabbcc", k),
        intdiv(x, k),
    ):
        assert score.shape == ()
        assert score.dtype == torch.float64
        assert not score.requires_grad


def test_float32_features_score_as_float64_ones_do():
    r = np.random.default_rng(0)
    x, t = 4 + r.normal(size=(700, 24)), 4 + r.normal(size=(700, 16))
    for k in (Gaussian(3.0), Cosine()):
        both = (k, Gaussian(4.0))
        narrow, wide = (x.astype(np.float32), t.astype(np.float32)), (x, t)
        for score in (conditional_vendi, conditional_rke, information_vendi, information_rke):
            expected = float(score(*wide, *both))
            assert float(score(*narrow, *both)) == pytest.approx(expected, rel=1e-5)
        assert float(vendi(narrow[0], k)) == pytest.approx(float(vendi(x, k)), rel=1e-5)


def test_rounding_in_float32_features_adds_no_diversity():
    kinds = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    copies = kinds.repeat(100, 1)
    for kernel in (Gaussian(10.0), Cosine()):
        assert float(vendi(copies, kernel)) == pytest.approx(float(vendi(kinds, kernel)), rel=1e-5)


# Bad input

EVERY_SCORE = {
    "vendi": lambda x, t, k: vendi(x, k),
    "rke": lambda x, t, k: rke(x, k),
    "conditional_vendi": lambda x, t, k: conditional_vendi(x, t, k, k),
    "conditional_rke": lambda x, t, k: conditional_rke(x, t, k, k),
    "information_vendi": lambda x, t, k: information_vendi(x, t, k, k),
    "information_rke": lambda x, t, k: information_rke(x, t, k, k),
    "cluster_vendi": lambda x, t, k: cluster_vendi(x, [0] * len(x), k),
    "cluster_rke": lambda x, t, k: cluster_rke(x, [0] * len(x), k),
    "intdiv": lambda x, t, k: intdiv(x, k),
}


@pytest.mark.parametrize("name", EVERY_SCORE)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.tensor([[1.0, math.nan], [0.0, 1.0]]), "NaN or infinity, first in row 0"),
        (torch.tensor([[1.0, 0.0], [math.inf, 1.0]]), "NaN or infinity, first in row 1"),
        (torch.ones(0, 2), r"shape \(0, 2\) are empty"),
        (torch.ones(2), r"shape \(n, d\), got \(2,\)"),
        (torch.tensor([[1.0, 0.0], [0.0, 0.0]]), "row 1 is a zero vector"),
    ],
)
def test_every_score_refuses_bad_features(name, x, message):
    with pytest.raises(ValueError, match=message):
        EVERY_SCORE[name](x, torch.ones(2, 1), Cosine())


@pytest.mark.parametrize(
    "name", ["conditional_vendi", "conditional_rke", "information_vendi", "information_rke"]
)
def test_samples_and_prompts_must_be_as_many(name):
    with pytest.raises(ValueError, match="got n = 5 and n = 4"):
        EVERY_SCORE[name](torch.ones(5, 2), torch.ones(4, 2), Gaussian(1.0))


@pytest.mark.parametrize("name", ["vendi", "conditional_vendi", "information_vendi"])
@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"order": 0}, "order must be greater than 0 .* got 0"),
        ({"order": -1.0}, "order must be greater than 0 .* got -1.0"),
        ({"order": math.nan}, "order must be greater than 0 .* got nan"),
        ({"truncation": 0}, "truncation must be .* at least 1, got 0"),
        ({"truncation": 2.5}, "truncation must be .* at least 1, got 2.5"),
        ({"truncation": 0, "order": 2}, "truncation must be .* at least 1, got 0"),
    ],
)
def test_orders_and_truncations_out_of_range_are_refused(name, settings_, message):
    x, k = torch.eye(3), Gaussian(1.0)
    arguments = (x, k) if name == "vendi" else (x, x, k, k)
    score = {
        "vendi": vendi,
        "conditional_vendi": conditional_vendi,
        "information_vendi": information_vendi,
    }[name]
    with pytest.raises(ValueError, match=message):
        score(*arguments, **settings_)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.5], r"shape \(3,\), one for each item, got \(2,\)"),
        ([[0.5, 0.25, 0.25]], r"shape \(3,\), one for each item, got \(1, 3\)"),
        ([1.0, 0.5, -0.5], "non-negative numbers, got -0.5"),
        ([1.0, math.nan, 0.0], "non-negative numbers, got nan"),
        ([1.0, 1.0, 1.0], "sum to 1, got 3.0"),
        ([0.0, 0.0, 0.0], "sum to 1, got 0.0"),
    ],
)
def test_weights_that_are_not_probabilities_of_the_items_are_refused(weights, message):
    for order in (1, 2):
        with pytest.raises(ValueError, match=message):
            vendi(torch.eye(3), Gaussian(1.0), weights=np.array(weights), order=order)


def test_clusters_must_label_every_item():
    with pytest.raises(ValueError, match="hold n = 3 labels, got 2"):
        cluster_vendi(torch.eye(3), [0, 1], Gaussian(1.0))


# Duplicates


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["gaussian", "cosine"])
def test_copies_have_the_scores_of_the_definition(kind, width, dtype, kernel):
    x = sample(kind, width, dtype)
    k = Cosine() if kernel == "cosine" else Gaussian(width**0.5)
    a, b = x[0].double(), x[-1].double()
    cosine = float(a @ b / (a.norm() * b.norm()))
    alike = cosine if kernel == "cosine" else math.exp(-float((a - b).square().sum()) / 2 / width)
    p, t = spectrum(kind, alike), torch.full((len(x), 3), 0.3, dtype=dtype)
    near = {"rel": 2e-5, "abs": 1e-6} if dtype == torch.float32 else {"rel": 1e-13, "abs": 1e-14}
    for order in (1, 1.5, 2, math.inf):
        expected = pytest.approx(float(renyi_entropy(p, order).exp()), **near)
        assert float(vendi(x, k, order=order)) == expected
        assert float(conditional_vendi(x, t, k, k, order=order)) == expected
        assert float(information_vendi(x, t, k, k, order=order)) == pytest.approx(1, **near)
    groups = [0] * (len(x) - 1) + [1]
    assert float(cluster_vendi(x, groups, k)) == pytest.approx(1, **near)
    mean = (17 + 8 * alike) / 25 if kind == "all but one alike" else 1
    assert float(intdiv(x, k)) == pytest.approx(1 - mean, **near)


@pytest.mark.parametrize("kind", ["constant", "copies"])
@pytest.mark.parametrize("width", [1, 512, 65536])
def test_copies_in_double_precision_score_one_at_orders_below_one(kind, width):
    x = sample(kind, width, torch.float64).repeat(50, 1)
    found = vendi(x, Gaussian(width**0.5), order=0.5)
    assert float(found) == pytest.approx(1, rel=1e-12)
