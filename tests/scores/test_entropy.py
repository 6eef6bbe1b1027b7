import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from vendi_guidance.scores.entropy import renyi_entropy, truncate

ORDERS = [0.3, 0.5, 1, 1.5, 2, 7, math.inf]

small = settings(deadline=None, max_examples=60)


@st.composite
def distributions(draw, max_size=8):
    masses = draw(st.lists(st.integers(0, 50), min_size=1, max_size=max_size))
    assume(sum(masses) > 0)
    return torch.tensor([mass / sum(masses) for mass in masses], dtype=torch.float64)


def test_entropies_of_a_half_and_two_quarters_and_of_seventeen_equal_shares():
    p = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
    uniform = torch.full((17,), 1 / 17, dtype=torch.float64)
    expected = {
        0.5: 2 * math.log(math.sqrt(0.5) + 1),
        1: 1.5 * math.log(2),
        2: -math.log(0.375),
        3: -math.log(0.125 + 2 / 64) / 2,
        math.inf: math.log(2),
    }
    for order, value in expected.items():
        assert float(renyi_entropy(p, order)) == pytest.approx(value, rel=1e-14)
        assert float(renyi_entropy(uniform, order)) == pytest.approx(math.log(17), rel=1e-14)


@small
@given(distributions(), st.floats(0.01, 50), st.floats(0.01, 50) | st.just(math.inf))
def test_entropy_falls_as_the_order_grows_and_lies_between_zero_and_log_n(p, first, second):
    low, high = sorted((first, second))
    entropies = [float(renyi_entropy(p, order)) for order in (high, low)]
    found = [-1e-12, entropies[0], entropies[1] + 1e-12, math.log(len(p)) + 2e-12]
    assert found == sorted(found)


@small
@given(distributions(), st.sampled_from([1e-15, 1e-9, 9e-4, 1.1e-3]), st.sampled_from([-1, 1]))
def test_orders_near_one_have_entropies_near_shannons(p, gap, side):
    variance = float((p * p.clamp(min=1e-300).log() ** 2).sum())
    difference = float(renyi_entropy(p, 1 + side * gap) - renyi_entropy(p, 1))
    assert abs(difference) <= gap * variance + 1e-13


def test_an_order_so_large_that_every_power_vanishes_is_close_to_infinite_order():
    p = torch.tensor([0.002, 0.001] + [0.0005] * 1994, dtype=torch.float64)
    assert float(renyi_entropy(p, 1e4)) == pytest.approx(-math.log(0.002), rel=1e-3)


def onto_simplex(v: np.ndarray) -> np.ndarray:
    """Euclidean projection onto the probability simplex, by bisection on the shift."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(v - low, 0)


@small
@given(distributions(max_size=6), st.integers(1, 6))
def test_truncation_is_the_nearest_distribution_with_so_many_eigenvalues(p, rank):
    assume(rank <= len(p))
    spectrum = p.numpy()
    nearest = math.inf
    for support in map(list, itertools.combinations(range(len(p)), rank)):
        candidate = np.zeros(len(p))
        candidate[support] = onto_simplex(spectrum[support])
        nearest = min(nearest, float(((candidate - spectrum) ** 2).sum()))
    found = truncate(p, rank)
    ordered = np.sort(spectrum)[::-1]
    padded = np.concatenate([found.numpy(), np.zeros(len(p) - rank)])
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    assert ((padded - ordered) ** 2).sum() == pytest.approx(nearest, abs=1e-12)


@pytest.mark.parametrize("rank", [0, -3, 2.0, "2"])
def test_a_truncation_that_is_not_a_positive_whole_number_is_refused(rank):
    with pytest.raises(ValueError, match=f"at least 1, got {rank!r}"):
        truncate(torch.full((3,), 1 / 3), rank)
