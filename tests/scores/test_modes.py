import numpy as np
import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.kernels.standard import Cosine, Gaussian, Precomputed
from vendi_guidance.scores.functional import vendi
from vendi_guidance.scores.modes import find_modes, group_scores
from vendi_guidance.scores.spectra import Exact, Nystrom, RandomFourier

SIZES = [40, 30, 20, 10]
cluster_of = torch.arange(4).repeat_interleave(torch.tensor(SIZES))
WAYS = [
    (Gaussian(3.0), Exact()),
    (Gaussian(3.0), RandomFourier(1000)),
    (Cosine(), Exact()),  # from a factor of 8 columns
]


def assert_same_modes(found, expected, rel=1e-6):
    for a, b in zip(found, expected, strict=True):
        assert a.eigenvalue == pytest.approx(b.eigenvalue) and a.rows == b.rows
        assert a.loadings == pytest.approx(b.loadings, rel=rel)


def clusters() -> torch.Tensor:
    """(100, 8) in four clusters that no kernel finds much in common between."""
    return 20 * torch.eye(4, 8, dtype=torch.float64)[cluster_of] + 0.5 * normal(0, 100, 8)


def mixed(n: int = 200) -> torch.Tensor:
    return normal(0, n, 3)


@pytest.mark.parametrize("kernel, spectrum", WAYS)
def test_the_modes_of_well_separated_clusters_are_the_clusters(kernel, spectrum):
    x = clusters()
    modes = find_modes(x, kernel, count=4, top=10, spectrum=spectrum)
    for cluster, (mode, size) in enumerate(zip(modes, SIZES, strict=True)):
        assert cluster_of[list(mode.rows)].tolist() == [cluster] * 10
        inside = kernel.gram(x[cluster_of == cluster])
        assert mode.eigenvalue == pytest.approx(size / 100 * float(inside.mean()), abs=0.01)


@pytest.mark.parametrize("kernel, spectrum", WAYS)
def test_squared_loadings_average_to_the_eigenvalue_which_is_that_of_the_kernel_matrix(
    kernel, spectrum
):
    x = mixed()
    modes = find_modes(x, kernel, count=3, top=len(x), spectrum=spectrum)
    values = spectrum.eigenvalues(x, kernel)[:3].tolist()
    assert [mode.eigenvalue for mode in modes] == pytest.approx(values, rel=1e-6)
    for mode in modes:
        assert sorted(mode.rows) == list(range(len(x)))
        assert np.square(mode.loadings).mean() == pytest.approx(mode.eigenvalue, rel=1e-6)
        assert list(mode.loadings) == sorted(mode.loadings, reverse=True)
        assert max(map(abs, mode.loadings)) == mode.loadings[0] <= 1


def test_leading_modes_alone_are_those_of_the_whole_decomposition():
    x, kernel = mixed(600), Gaussian(2.0)  # 600 rows are more than 32 times 1 + 16
    alone = find_modes(x, kernel, count=1, spectrum=Exact())
    whole = find_modes(x, kernel, count=20, spectrum=Exact())
    assert_same_modes(alone, whole[:1], rel=1e-4)


def test_what_modes_and_clusters_cannot_be_found_with_is_refused():
    x = mixed(10)
    with pytest.raises(ValueError, match="count must be a whole number of at least 1, got 0"):
        find_modes(x, Gaussian(1.0), count=0)
    with pytest.raises(ValueError, match=r"RandomFourier\(...\) or Exact\(\) as spectrum, got"):
        find_modes(x, Gaussian(1.0), spectrum=Nystrom(5))


@pytest.mark.parametrize("settings", [{}, {"order": 2}, {"truncation": 3}])
def test_each_group_scores_as_it_does_by_itself_and_the_least_diverse_comes_first(settings):
    x, kernel = clusters(), Gaussian(0.7)
    x[cluster_of == 2] = x[-1].clone()
    found = group_scores(x, kernel, cluster_of, **settings)
    assert found[0].label == 2 and found[0].score == pytest.approx(1)
    assert [group.score for group in found] == sorted(group.score for group in found)
    for group in found:
        members = x[cluster_of == group.label]
        assert group.size == len(members) == SIZES[group.label]
        assert group.score == pytest.approx(float(vendi(members, kernel, **settings)))


def test_groups_of_things_have_scores():
    words = ["cat", "cow", "dog", "crab"]
    groups = group_scores(range(4), Precomputed(np.eye(4)), [len(word) for word in words])
    assert [(g.label, g.size, round(g.score, 9)) for g in groups] == [(4, 1, 1.0), (3, 3, 3.0)]
