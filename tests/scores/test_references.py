"""KID and FID against torchmetrics, balls and nearest images against loops over pairs, and what all
comparisons with reference images share."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from tests.helpers.every_score import normal
from tests.helpers.largest_tensor import LargestTensor
from vendi_guidance.scores.references import (
    ManifoldScores,
    frechet_distance,
    kernel_distance,
    manifold_scores,
)

COMPARISONS = kernel_distance, frechet_distance, manifold_scores
comparisons = pytest.mark.parametrize("compare", COMPARISONS)


def fill(metric, x, reference):
    metric = metric.to(x.device)
    metric.update(x, real=False)
    metric.update(reference, real=True)
    return metric.compute()


def features_of_width(d: int) -> torch.nn.Identity:
    """The encoder of torchmetrics for what is features already."""
    encoder = torch.nn.Identity()
    encoder.num_features = d
    return encoder


@pytest.mark.parametrize(("n", "d"), [(20, 3), (600, 5), (1100, 16)])
def test_the_kernel_distance_is_that_of_torchmetrics_on_all_images_at_once(n, d):
    x, reference = 1.1 * normal(0, n, d) + 0.2, normal(1, n, d)
    metric = KernelInceptionDistance(features_of_width(d), subsets=1, subset_size=n)
    expected, _ = fill(metric, x, reference)
    assert kernel_distance(x, reference) == pytest.approx(expected.item(), rel=1e-9)


def test_the_kernel_distance_of_unequal_numbers_is_that_of_the_definition():
    x, reference = normal(0, 7, 3), normal(1, 4, 3) + 0.5

    def mean(pairs):
        return np.mean([(np.dot(a, b) / 3 + 1) ** 3 for a, b in pairs])

    rows, real = x.tolist(), reference.tolist()
    within = mean(itertools.permutations(rows, 2)) + mean(itertools.permutations(real, 2))
    expected = within - 2 * mean(itertools.product(rows, real))
    assert kernel_distance(x, reference) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "d"), [(90, 70, 1), (50, 40, 3), (5000, 4200, 8), (300, 200, 40)]
)
def test_the_frechet_distance_is_that_of_torchmetrics(n, m, d):
    x, reference = normal(0, n, d) @ normal(1, d, d) + 0.3, normal(2, m, d)
    metric = FrechetInceptionDistance(features_of_width(d))
    expected = fill(metric, x, reference).item()
    assert frechet_distance(x, reference) == pytest.approx(expected, rel=1e-9)
    assert 0 <= frechet_distance(x, x) < 1e-9


def test_the_frechet_distance_keeps_its_precision_with_more_features_than_images():
    x, reference = 2 * normal(0, 30, 3), normal(1, 40, 3)
    wider = torch.linalg.qr(normal(2, 300, 3)).Q.T  # three dimensions amid three hundred
    expected = frechet_distance(x, reference)
    assert frechet_distance(x @ wider, reference @ wider) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("distance", [kernel_distance, frechet_distance])
def test_features_far_from_the_origin_lose_no_more_than_their_own_precision(distance):
    x, reference = normal(0, 200, 4).float() + 1000, normal(1, 200, 4).float() + 1000
    expected = distance(x.double(), reference.double())
    assert distance(x, reference) == expected
    if distance is frechet_distance:
        moved = distance(x.double() - 1000, reference.double() - 1000)
        assert expected == pytest.approx(moved, rel=1e-9)


@comparisons
def test_any_kind_of_number_compares_as_its_values_do(compare):
    x, reference = (normal(0, 20, 3) * 9).round(), (normal(1, 25, 3) * 9).round()
    for kind in (
        torch.Tensor.half,
        lambda x: x.float().requires_grad_(),
        lambda x: x.int().numpy(),
    ):
        found = compare(kind(x), kind(reference))
        assert all(type(one) is float for one in (found if isinstance(found, tuple) else [found]))
        assert found == pytest.approx(compare(x, reference), rel=1e-12)


@comparisons
def test_no_tensor_grows_with_the_square_of_the_images(compare):
    x, reference = torch.randn(4000, 2), torch.randn(3000, 2)
    with LargestTensor() as largest:
        compare(x, reference)
    assert largest.numel <= (1024 * (1024 + 5) if x.is_cpu else 4096**2)


@comparisons
def test_single_images_and_malformed_features_are_refused(compare):
    good, bad = torch.ones(9, 2), torch.ones(9, 2)
    bad[4, 1] = math.nan
    for x, reference, message in (
        (good[:1], good, "got 1 generated image: .* at least"),
        (good, good[:1], "got 1 reference image"),
        (good, torch.ones(9, 3), "agree in d, got 2 and 3: take both from one encoder"),
        (good, bad, "NaN or infinity, first in row 4"),
        (bad, good, "NaN or infinity, first in row 4"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(x, reference)


def by_definition(x, reference, k) -> ManifoldScores:
    """The five scores, from distances of pairs by `math.dist`, with the open balls of `prdc`."""

    def distances(first, second):
        return np.array([[math.dist(a, b) for b in second] for a in first])

    def reach(images, k):
        """To the k-th neighbour: each is its own first, at 0."""
        return np.sort(distances(images, images), axis=1)[:, k]

    x, reference = x.tolist(), reference.tolist()
    across, nearest_real = distances(x, reference), reach(reference, 1)
    inside = across < reach(reference, k)
    return ManifoldScores(
        precision=inside.any(axis=1).mean(),
        recall=(across < reach(x, k)[:, None]).any(axis=0).mean(),
        density=inside.sum() / (k * len(x)),
        coverage=inside.any(axis=0).mean(),
        authenticity=(across.min(axis=1) > nearest_real[across.argmin(axis=1)]).mean(),
    )


@st.composite
def sets(draw):
    """(x, reference, k) in float64: a few modes, duplicates in and copies between the two sets."""
    k, d = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    n, m = draw(st.integers(k + 1, 14)), draw(st.integers(k + 1, 14))
    r = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    modes = r.normal(size=(6, d))
    spread = draw(st.sampled_from([0.0, 0.1, 1.0]))
    reference = modes[r.integers(6, size=m)] + spread * r.normal(size=(m, d))
    fresh = modes[r.integers(6, size=n)] + spread * r.normal(size=(n, d))
    copies = reference[r.integers(m, size=n)]
    x = np.where(r.random((n, 1)) < draw(st.sampled_from([0.0, 0.3])), copies, fresh)
    return torch.tensor(x), torch.tensor(reference), k


def test_integer_features_have_the_scores_of_open_balls_to_the_last_digit():
    r = np.random.default_rng(0)
    for k, d in ((1, 2), (3, 3), (5, 9)):
        real, made = r.integers(-2, 3, size=(60, d)), r.integers(-2, 4, size=(50, d))
        across = ((real[:, None] - made) ** 2).sum(-1)  # (60, 50) exact squared distances
        own, others = (np.sort(((s[:, None] - s) ** 2).sum(-1))[:, k] for s in (real, made))
        inside = across < own[:, None]
        expected = inside.any(0).mean(), (across < others).any(1).mean()
        expected += inside.sum(0).mean() / k, (across.min(1) < own).mean()
        assert manifold_scores(made, real, k)[:4] == pytest.approx(expected, abs=1e-12)


SCATTERED = 0.9 * normal(0, 30, 3), normal(1, 40, 3)
TWO_CLOUDS = torch.cat([normal(0, 30, 2), normal(1, 10, 2) + 50])
COPIES = torch.cat([SCATTERED[1][:10] + 1e-9, SCATTERED[0] * 3])
CASES = {
    "several tiles": (0.8 * normal(2, 1030, 3), normal(3, 520, 3), 3),
    "copies that were changed a little": (COPIES, SCATTERED[1], 5),
    "far from the origin": (SCATTERED[0] + 2.0**28, SCATTERED[1] + 2.0**28, 5),
    "far apart": (SCATTERED[0] + 100, SCATTERED[1], 5),
    "a part": (TWO_CLOUDS[:30], TWO_CLOUDS, 3),
}
KNOWN = {"far apart": (0, 0, 0, 0, 1), "a part": (1, 0.75, 1, 0.75, 0)}


@pytest.mark.parametrize("name", CASES)
def test_the_scores_are_those_of_the_definitions(name):
    x, reference, k = CASES[name]
    scores = manifold_scores(x, reference, k)
    assert scores == pytest.approx(by_definition(x, reference, k))
    assert scores == KNOWN.get(name, scores)


@settings(deadline=None, max_examples=40)
@given(sets())
def test_the_scores_with_duplicates_and_copies_are_those_of_the_definitions(case):
    x, reference, k = case
    for first, second in ((x, reference), (reference, reference)):
        expected = pytest.approx(by_definition(first, second, k), abs=1e-12)
        assert manifold_scores(first, second, k) == expected


def test_too_few_images_are_refused_with_their_number_and_a_remedy():
    with pytest.raises(ValueError, match="got 5 reference images: give at least 6"):
        manifold_scores(torch.ones(9, 2), torch.ones(5, 2))
    assert manifold_scores(torch.ones(3, 2), torch.ones(3, 2), 2) == (0, 0, 0, 0, 0)  # empty balls
    with pytest.raises(ValueError, match="neighbours must be a whole number of at least 1, got 0"):
        manifold_scores(torch.ones(9, 2), torch.ones(9, 2), 0)
