import numpy as np
import pytest
import torch

from vendi_guidance.scores.bandwidth import median_distance


def cloud(n):
    return np.random.default_rng(0).normal(size=(n, 8))


def test_the_median_distance_is_that_of_all_pairs_or_of_some(monkeypatch):
    x = cloud(60)
    apart = np.linalg.norm(x[:, None] - x, axis=-1)[np.triu_indices(60, 1)]
    expected = float(np.median(apart))
    assert median_distance(x) == pytest.approx(expected, rel=0.01)
    monkeypatch.setattr("vendi_guidance.scores.bandwidth.PAIRS", 400)
    assert median_distance(x) == pytest.approx(expected, rel=0.1)


def test_the_median_scales_with_the_features_and_does_not_depend_on_how_they_are_kept():
    x = cloud(400)
    found = median_distance(x)
    assert median_distance(x) == found
    for factor in (2.0**-10, 0.3, 1e4):
        assert median_distance(factor * x) == pytest.approx(factor * found, rel=1e-9)
    single = torch.tensor(x).float()
    assert median_distance(single.cpu()) == median_distance(single.numpy())
    assert median_distance(single) == pytest.approx(found, rel=1e-5)


def test_bad_input_is_met_with_a_sentence():
    with pytest.raises(ValueError, match=r"shape \(n, d\), got \(200,\)"):
        median_distance(np.ones(200))
    with pytest.raises(ValueError, match="got 1 item: a distance needs two"):
        median_distance(np.ones((1, 3)))


def test_items_that_differ_by_rounding_are_copies():
    x = torch.randn(1, 300, generator=torch.Generator().manual_seed(0)).repeat(4, 1)
    rounded = x * (1 + torch.finfo(x.dtype).eps * torch.tensor([[0.0], [1.0], [1.0], [-1.0]]))
    assert not torch.equal(x, rounded)
    with pytest.raises(ValueError, match="all items are equal"):
        median_distance(rounded)
    other = torch.cat([rounded, 2 * x[:1]])
    assert median_distance(other) == pytest.approx(float(x[0].norm()), rel=1e-5)
