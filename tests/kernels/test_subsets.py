"""Greedy subsets of items that differ, against brute force."""

import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.kernels.subsets import diverse_subset, greedy_subset


def log_det(full: torch.Tensor, rows) -> float:
    chosen = list(rows)
    return float(torch.linalg.slogdet(full[chosen][:, chosen]).logabsdet)


@pytest.mark.parametrize("groups", [12, 5])
@pytest.mark.parametrize("seed", range(5))
def test_every_addition_is_the_best_of_those_in_other_groups(seed, groups):
    full = Gaussian(2.0).gram(normal(seed, 12, 3))
    of = torch.arange(12) % groups
    rows = greedy_subset(full, of, 5)
    assert len({int(of[row]) for row in rows}) == 5
    for count in range(5):
        before = rows[:count]
        free = [row for row in range(12) if of[row] not in of[before]]
        assert rows[count] == max(free, key=lambda row: log_det(full, [*before, row]))


def test_copies_are_taken_last():
    x = torch.tensor([[0.0], [0.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    full = Gaussian(1.0).gram(x)
    assert set(greedy_subset(full, torch.arange(5), 3)) == {0, 3, 4}
    assert sorted(greedy_subset(full, torch.arange(5), 5)) == [0, 1, 2, 3, 4]


def test_a_diverse_subset_begins_in_the_middle_and_ends_where_only_copies_are_left():
    full = Gaussian(2.0).gram(normal(0, 12, 3))
    rows = [row % 12 for row in diverse_subset(full.repeat(2, 2), 20)]
    assert rows[0] == int(full.sum(dim=0).argmax()) and sorted(rows) == [*range(12)]
    for count in range(1, 12):
        free = {*range(12)} - {*rows[:count]}
        best = max(log_det(full, [*rows[:count], row]) for row in free)
        assert log_det(full, rows[: count + 1]) == pytest.approx(best)


@pytest.mark.parametrize("count", [0, 3])
def test_a_subset_of_a_wrong_size_is_refused(count):
    with pytest.raises(ValueError, match=f"between 1 and 2, got {count}"):
        greedy_subset(torch.eye(3), torch.tensor([0, 1, 1]), count)


def test_among_copies_the_first_is_taken_whatever_the_rounding():
    x = torch.randn(1, 3, generator=torch.Generator().manual_seed(0)).repeat(9, 1)
    noise = torch.randn(9, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    full = Gaussian(2.0).gram(x.double()) + 1e-16 * (noise + noise.T)
    assert greedy_subset(full, torch.arange(9), 4) == [0, 1, 2, 3]
