"""Balls and nearest pictures, against the papers' definitions written as loops over pairs."""

import math
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.largest_tensor import LargestTensor
from vendi_guidance.scores.manifold import ManifoldScores, manifold_scores, nearest_distance

small = settings(deadline=None, max_examples=40)


def by_definition(x, reference, k) -> ManifoldScores:
    """The five scores, from distances of pairs by `math.dist`, with closed balls."""
    x, reference = x.tolist(), reference.tolist()
    across = [[math.dist(generated, real) for real in reference] for generated in x]

    def reach(pictures, i, k):
        others = pictures[:i] + pictures[i + 1 :]
        return sorted(math.dist(pictures[i], other) for other in others)[k - 1]

    reach_x = [reach(x, j, k) for j in range(len(x))]
    reach_r = [reach(reference, i, k) for i in range(len(reference))]
    inside = [[d <= r for d, r in zip(row, reach_r, strict=True)] for row in across]
    nearest = [min(range(len(reference)), key=row.__getitem__) for row in across]
    return ManifoldScores(
        precision=np.mean([any(row) for row in inside]),
        recall=np.mean(
            [any(across[j][i] <= reach_x[j] for j in range(len(x))) for i in range(len(reference))]
        ),
        density=sum(sum(row) for row in inside) / (k * len(x)),
        coverage=np.mean([any(column) for column in zip(*inside, strict=True)]),
        authenticity=np.mean(
            [row[i] > reach(reference, i, 1) for row, i in zip(across, nearest, strict=True)]
        ),
    )


def normal(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
    return torch.from_numpy(x), torch.from_numpy(reference), k


def randomly(pictures: torch.Tensor, seed: int) -> torch.Tensor:
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(seed))
    return pictures[order]


# Against the definitions


@pytest.mark.parametrize(("n", "m", "d", "k"), [(30, 40, 3, 3), (40, 25, 2, 5), (7, 6, 8, 1)])
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_scores_are_those_of_the_definitions(n, m, d, k, shift):
    x, reference = 0.9 * normal(n, d, 0) + shift, normal(m, d, 1)
    scores = manifold_scores(x, reference, k)
    assert scores == pytest.approx(by_definition(x, reference, k))
    assert len(set(scores)) > 2  # the sample tells them apart


def test_the_scores_of_several_tiles_are_those_of_the_definitions():
    x, reference = 0.8 * normal(1100, 3, 2), normal(1050, 3, 3)
    assert manifold_scores(x, reference, 3) == pytest.approx(by_definition(x, reference, 3))


@small
@given(sets())
def test_the_scores_with_duplicates_and_copies_are_those_of_the_definitions(case):
    x, reference, k = case
    scores, expected = manifold_scores(x, reference, k), by_definition(x, reference, k)
    assert scores == pytest.approx(expected)


def test_two_pictures_a_set_by_hand():
    # Reference balls reach 4 from 0 and from 4; those of x reach 4.5 from 1 and from 5.5.
    x, reference = torch.tensor([[1.0], [5.5]]), torch.tensor([[0.0], [4.0]])
    expected = ManifoldScores(precision=1, recall=1, density=1.5, coverage=1, authenticity=0)
    assert manifold_scores(x, reference, 1) == expected
    # 9 is out of reach of 4, and in turn farther from it than 0 is.
    x = torch.tensor([[1.0], [9.0]])
    expected = ManifoldScores(precision=0.5, recall=1, density=1, coverage=1, authenticity=0.5)
    assert manifold_scores(x, reference, 1) == expected


def test_the_nearest_distance_is_that_of_the_definition():
    for n, m in ((9, 13), (2100, 1100)):
        x, reference = normal(n, 4, 4), normal(m, 4, 5) + 1
        real = reference.tolist()
        expected = np.mean([min(math.dist(row, other) for other in real) for row in x.tolist()])
        assert nearest_distance(x, reference) == pytest.approx(expected, rel=1e-12)


# What is known of them


@small
@given(sets())
def test_the_reference_itself_is_precise_complete_and_not_authentic(case):
    _, reference, k = case
    scores = manifold_scores(reference, reference, k)
    assert scores[:2] == (1, 1)
    assert scores.coverage == 1
    assert scores.authenticity == 0
    assert scores.density >= (k + 1) / k - 1e-12  # each ball holds its centre and k others


def test_a_far_away_set_is_authentic_and_nothing_else():
    scores = manifold_scores(normal(20, 3, 0) + 100, normal(30, 3, 1), 5)
    assert scores == ManifoldScores(0, 0, 0, 0, 1)


def test_copies_of_a_part_are_precise_and_recall_only_that_part():
    reference = torch.cat([normal(30, 2, 0), normal(10, 2, 1) + 50])
    scores = manifold_scores(reference[:30], reference, 3)
    assert scores.precision == 1
    assert scores.recall == scores.coverage == 0.75
    assert scores.authenticity == 0


@pytest.mark.parametrize("slightly", [0.0, 1e-9, 1e-3])
def test_copies_give_themselves_away_even_if_slightly_changed(slightly):
    reference = normal(50, 8, 0)
    x = torch.cat([reference[:10] + slightly, normal(30, 8, 1) * 3])
    authentic = 40 * manifold_scores(x, reference).authenticity
    assert authentic == 40 * by_definition(x, reference, 5).authenticity <= 30


def test_density_of_one_distribution_is_one_and_coverage_as_expected():
    # Naeem et al., section 3: a picture's k nearest of the n + m - 1 others are all of its own set.
    n, m, k = 1500, 1000, 3
    expected = 1 - prod((m - i) / (n + m - i) for i in range(1, k + 1))
    several = [manifold_scores(normal(n, 4, i), normal(m, 4, 100 + i), k) for i in range(4)]
    assert np.mean([s.coverage for s in several]) == pytest.approx(expected, abs=0.01)
    assert np.mean([s.density for s in several]) == pytest.approx(1, abs=0.03)


@small
@given(sets())
def test_precision_and_recall_swap_with_the_sets(case):
    x, reference, k = case
    scores, swapped = manifold_scores(x, reference, k), manifold_scores(reference, x, k)
    assert (swapped.recall, swapped.precision) == (scores.precision, scores.recall)


@small
@given(sets(), st.integers(0, 1000))
def test_the_order_of_the_pictures_does_not_matter(case, seed):
    x, reference, k = case
    mixed, mixed_reference = randomly(x, seed), randomly(reference, seed + 1)
    assert manifold_scores(mixed, mixed_reference, k) == manifold_scores(x, reference, k)
    distance = nearest_distance(x, reference)
    assert nearest_distance(mixed, mixed_reference) == pytest.approx(distance, rel=1e-12)


@small
@given(sets(), st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e4]))
def test_rotation_translation_and_scale_do_not_matter(case, seed, scale):
    x, reference, k = case
    d = x.shape[1]
    rotation = torch.linalg.qr(normal(d, d, seed)).Q

    def moved(pictures):
        return scale * (pictures @ rotation + 3)

    scores = manifold_scores(x, reference, k)
    assert manifold_scores(moved(x), moved(reference), k) == pytest.approx(scores)
    distance = nearest_distance(x, reference)
    moved_distance = nearest_distance(moved(x), moved(reference))
    assert moved_distance == pytest.approx(scale * distance, rel=1e-9, abs=1e-12 * scale)


def test_copies_are_at_distance_zero_however_far_from_the_origin():
    reference = normal(40, 6, 0).float() + 300
    assert nearest_distance(reference[5:25], reference) == 0
    assert nearest_distance(reference[:1] + 1, reference[:1]) == pytest.approx(6**0.5, rel=1e-3)


def test_features_far_from_the_origin_score_as_where_they_lie():
    x, reference = normal(60, 3, 0) + 2.0**28, normal(50, 3, 1) + 2.0**28
    assert manifold_scores(x, reference) == pytest.approx(by_definition(x, reference, 5))


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: x.half(),
        lambda x: x.float().requires_grad_(),
        lambda x: x.int(),
        lambda x: x.numpy(),
        lambda x: x.numpy().astype(np.float16),
        lambda x: x.numpy().astype(">i4"),
    ],
)
def test_any_kind_of_number_scores_as_its_values_do(kind):
    x, reference = (normal(20, 3, 0) * 9).round(), (normal(25, 3, 1) * 9).round()
    scores = manifold_scores(kind(x), kind(reference), 3)
    assert scores == manifold_scores(x, reference, 3)
    assert all(type(score) is float for score in scores)
    distance = nearest_distance(kind(x), reference)
    assert type(distance) is float
    assert distance == nearest_distance(x, reference)


@pytest.mark.parametrize("score", [manifold_scores, nearest_distance])
def test_no_tensor_grows_with_the_square_of_the_pictures(score):
    x, reference = torch.randn(5000, 2), torch.randn(4000, 2)
    with LargestTensor() as largest:
        score(x, reference)
    assert largest.numel <= 1024 * (1024 + 5)


# What is refused


def test_too_few_pictures_are_refused_with_their_number_and_a_remedy():
    with pytest.raises(ValueError, match=r"got 5 reference images: 5 .* at least 6; give"):
        manifold_scores(torch.ones(9, 2), torch.ones(5, 2))
    with pytest.raises(ValueError, match=r"got 2 generated images: .* or ask for fewer neighb"):
        manifold_scores(torch.ones(2, 2), torch.ones(9, 2), 2)
    assert manifold_scores(torch.ones(3, 2), torch.ones(3, 2), 2).precision == 1
    with pytest.raises(ValueError, match="neighbours must be a whole number of at least 1, got 0"):
        manifold_scores(torch.ones(9, 2), torch.ones(9, 2), 0)


@pytest.mark.parametrize("score", [manifold_scores, nearest_distance])
def test_malformed_features_are_refused(score):
    good, bad = torch.ones(9, 2), torch.ones(9, 2)
    bad[4, 1] = float("nan")
    for x, reference in ((good, bad), (bad, good)):
        with pytest.raises(ValueError, match="NaN or infinity, first in row 4"):
            score(x, reference)
    with pytest.raises(ValueError, match="agree in d, got 2 and 3: take both from one encoder"):
        score(good, torch.ones(9, 3))
