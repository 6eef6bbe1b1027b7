import numpy as np
import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.modes import find_modes
from vendi_guidance.scores.spectra import Exact

SIZES = [40, 30, 20, 10]
cluster_of = torch.arange(4).repeat_interleave(torch.tensor(SIZES))
KERNELS = [Gaussian(3.0), Cosine()]  # the second from a factor of 8 columns


def clusters() -> torch.Tensor:
    """(100, 8) in four clusters that no kernel finds much in common between."""
    return 20 * torch.eye(4, 8, dtype=torch.float64)[cluster_of] + 0.5 * normal(0, 100, 8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_modes_of_well_separated_clusters_are_the_clusters(kernel):
    x = clusters()
    modes = find_modes(x, kernel, count=4, top=10)
    for cluster, (mode, size) in enumerate(zip(modes, SIZES, strict=True)):
        assert cluster_of[list(mode.rows)].tolist() == [cluster] * 10
        inside = kernel.gram(x[cluster_of == cluster])
        assert mode.eigenvalue == pytest.approx(size / 100 * float(inside.mean()), abs=0.01)


@pytest.mark.parametrize("kernel", KERNELS)
def test_squared_loadings_average_to_the_eigenvalue_of_the_kernel_matrix(kernel):
    x = normal(0, 200, 3)
    modes = find_modes(x, kernel, count=3, top=len(x))
    values = Exact().eigenvalues(x, kernel)[:3].tolist()
    assert [mode.eigenvalue for mode in modes] == pytest.approx(values, rel=1e-6)
    for mode in modes:
        assert sorted(mode.rows) == list(range(len(x)))
        assert np.square(mode.loadings).mean() == pytest.approx(mode.eigenvalue, rel=1e-6)
        assert list(mode.loadings) == sorted(mode.loadings, reverse=True)
        assert max(map(abs, mode.loadings)) == mode.loadings[0] <= 1


def test_leading_modes_alone_are_those_of_the_whole_decomposition():
    x, kernel = normal(0, 600, 3), Gaussian(2.0)  # 600 rows are more than 32 times 1 + 16
    [alone] = find_modes(x, kernel, count=1)
    [first, *_] = find_modes(x, kernel, count=20)
    assert alone.eigenvalue == pytest.approx(first.eigenvalue) and alone.rows == first.rows
    assert alone.loadings == pytest.approx(first.loadings, rel=1e-4)


def test_what_modes_and_clusters_cannot_be_found_with_is_refused():
    x = normal(0, 10, 3)
    with pytest.raises(ValueError, match="count must be a whole number of at least 1, got 0"):
        find_modes(x, Gaussian(1.0), count=0)
