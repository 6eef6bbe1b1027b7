"""Balls and nearest images, against the papers' definitions written as loops over pairs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.every_score import normal
from vendi_guidance.scores.references import ManifoldScores, manifold_scores

small = settings(deadline=None, max_examples=40)


def by_definition(x, reference, k) -> ManifoldScores:
    """The five scores, from distances of pairs by `math.dist`, with closed balls."""

    def distances(first, second):
        return np.array([[math.dist(a, b) for b in second] for a in first])

    def reach(images, k):
        """To the k-th neighbour: each is its own first, at 0."""
        return np.sort(distances(images, images), axis=1)[:, k]

    x, reference = x.tolist(), reference.tolist()
    across, nearest_real = distances(x, reference), reach(reference, 1)
    inside = across <= reach(reference, k)
    return ManifoldScores(
        precision=inside.any(axis=1).mean(),
        recall=(across <= reach(x, k)[:, None]).any(axis=0).mean(),
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
KNOWN = {"far apart": (0, 0, 0, 0, 1), "a part": (1, 0.75, pytest.approx(4 / 3), 0.75, 0)}


@pytest.mark.parametrize("name", CASES)
def test_the_scores_are_those_of_the_definitions(name):
    x, reference, k = CASES[name]
    scores = manifold_scores(x, reference, k)
    assert scores == pytest.approx(by_definition(x, reference, k))
    assert scores == KNOWN.get(name, scores)


@small
@given(sets())
def test_the_scores_with_duplicates_and_copies_are_those_of_the_definitions(case):
    x, reference, k = case
    scores, expected = manifold_scores(x, reference, k), by_definition(x, reference, k)
    assert scores == pytest.approx(expected)
    itself = manifold_scores(reference, reference, k)
    assert itself._replace(density=1) == (1, 1, 1, 1, 0)
    assert itself.density >= (k + 1) / k - 1e-12  # each ball holds its centre and k others


def test_too_few_images_are_refused_with_their_number_and_a_remedy():
    with pytest.raises(ValueError, match="got 5 reference images: give at least 6"):
        manifold_scores(torch.ones(9, 2), torch.ones(5, 2))
    assert manifold_scores(torch.ones(3, 2), torch.ones(3, 2), 2).precision == 1
    with pytest.raises(ValueError, match="neighbours must be a whole number of at least 1, got 0"):
        manifold_scores(torch.ones(9, 2), torch.ones(9, 2), 0)
