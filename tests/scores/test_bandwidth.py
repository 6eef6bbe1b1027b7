import numpy as np
import pytest
import torch

from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.bandwidth import RATIO, median_distance, select_bandwidth, variance
from vendi_guidance.scores.functional import rke, vendi


def mixture(n, d=8, seed=0):
    """Five modes of unequal weight, some three spreads apart."""
    r = np.random.default_rng(seed)
    return 2 * r.normal(size=(5, d))[r.choice(5, size=n, p=np.arange(1, 6) / 15)] + r.normal(
        size=(n, d)
    )


def parts_of(x, evaluations, seed):
    """The parts that `select_bandwidth` compares."""
    size = len(x) // evaluations
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    rows = order[: size * evaluations]
    return [torch.from_numpy(x)[part] for part in rows.split(size)]


# The papers' rule


@pytest.mark.parametrize(
    ("score", "tolerance", "evaluations", "seed"),
    [(rke, 0.01, 10, 0), (rke, 0.001, 10, 5), (rke, 0.01, 4, 0), (vendi, 0.01, 5, 0)],
)
def test_the_score_settles_at_the_bandwidth_and_not_just_below(score, tolerance, evaluations, seed):
    x, parts = mixture(600), parts_of(mixture(600), evaluations, seed)
    how = {"tolerance": tolerance, "evaluations": evaluations, "seed": seed}
    sigma = select_bandwidth(x, "variance", score=score, **how)
    assert variance(score, parts, sigma) < tolerance
    assert variance(score, parts, sigma * RATIO) < tolerance
    assert variance(score, parts, sigma / 1.03) >= tolerance
    if tolerance == 0.01 and score is rke:  # nor one that takes every item for a kind
        assert variance(rke, parts, sigma / 100) < 0.01
        assert float(rke(x[:60], Gaussian(sigma / 100))) == pytest.approx(60)
        assert float(rke(x[:60], Gaussian(sigma))) < 10


def test_stricter_tolerances_and_fewer_items_take_larger_bandwidths():
    x = mixture(1000)
    sigma = select_bandwidth(x)
    assert select_bandwidth(x, tolerance=0.001) > sigma
    assert select_bandwidth(x[:200]) > sigma


def test_points_far_apart_take_the_smallest_bandwidth_there_is():
    """The score counts them at any small sigma, and counts them well."""
    points = np.random.default_rng(0).integers(2, size=(4000, 1)) * 1.0
    assert select_bandwidth(points) == pytest.approx(1 / 128)


def test_a_score_that_does_not_depend_on_the_bandwidth_is_refused():
    with pytest.raises(ValueError, match=r"varies by 0.01 or more at any bandwidth .* tolerance"):
        select_bandwidth(mixture(200), score=lambda x, kernel: 10 * x[0, 0])


# The median


def test_the_median_distance_is_that_of_all_pairs():
    x = mixture(60)
    apart = np.linalg.norm(x[:, None] - x, axis=-1)[np.triu_indices(60, 1)]
    expected = float(np.median(apart))
    assert median_distance(x) == pytest.approx(expected, rel=0.01)
    assert median_distance(x, pairs=400) == pytest.approx(expected, rel=0.1)
    # of two items there is one distance, however often it is drawn
    assert median_distance(torch.tensor([[0.0], [2.0]]), pairs=1) == 2
    assert median_distance(torch.tensor([[0.0], [2.0], [4.0]]), pairs=2) in (2, 4)


def test_the_median_is_a_rule_too():
    x = mixture(400)
    assert select_bandwidth(x, "median", seed=3) == median_distance(x, seed=3)
    assert select_bandwidth(x, "variance") == select_bandwidth(x) != median_distance(x)


def test_copies_have_no_part_in_the_median():
    points = np.array([[0.0], [3.0]]).repeat(50, axis=0)
    assert median_distance(np.concatenate([points, points[:1].repeat(900, axis=0)])) == 3


# Both


@pytest.mark.parametrize("select", [select_bandwidth, median_distance])
def test_bandwidths_scale_with_the_features_and_do_not_depend_on_how_they_are_kept(select):
    x = mixture(400)
    found = select(x, seed=1)
    assert select(x, seed=1) == found != select(x, seed=2)
    for factor in (2.0**-10, 0.3, 1e4):
        assert select(factor * x, seed=1) == pytest.approx(factor * found, rel=1e-9)
    single = torch.from_numpy(x).float()
    assert select(single, seed=1) == select(single.numpy(), seed=1)
    assert select(single, seed=1) == pytest.approx(found, rel=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: select_bandwidth(mixture(99)), "got 99 items: 10 evaluations need at least 100"),
        (lambda: select_bandwidth(np.ones((200, 3))), "all items are equal"),
        (lambda: select_bandwidth(mixture(200), "scott"), "'variance' or 'median', got 'scott'"),
        (lambda: select_bandwidth(mixture(200), tolerance=0), "greater than 0, got 0"),
        (lambda: select_bandwidth(mixture(200), evaluations=1), "at least 2 evaluations, got 1"),
        (lambda: select_bandwidth(np.ones(200)), r"shape \(n, d\), got \(200,\)"),
        (lambda: median_distance(np.ones((200, 3))), "all items are equal"),
        (lambda: median_distance(np.ones((1, 3))), "got 1 item: a distance needs two"),
        (lambda: median_distance(mixture(9), pairs=0), "pairs must be a whole number"),
    ],
)
def test_bad_input_is_met_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_items_that_differ_by_rounding_are_copies():
    x = torch.randn(1, 300, generator=torch.Generator().manual_seed(0)).repeat(4, 1)
    rounded = x * (1 + torch.finfo(x.dtype).eps * torch.tensor([[0.0], [1.0], [1.0], [-1.0]]))
    assert not torch.equal(x, rounded)
    with pytest.raises(ValueError, match="all items are equal"):
        median_distance(rounded)
    other = torch.cat([rounded, 2 * x[:1]])
    assert median_distance(other) == pytest.approx(float(x[0].norm()), rel=1e-5)
