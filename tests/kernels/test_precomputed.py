"""Given matrices of similarities, and kernels of your own."""

import math

import numpy as np
import pytest
import torch

from tests.helpers.every_score import WITH_PROMPTS, every_score, normal, scores_of
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.standard import Cosine, Gaussian, Precomputed
from vendi_guidance.scores.functional import rke, vendi
from vendi_guidance.scores.spectra import Exact, RandomFourier


@every_score
@pytest.mark.parametrize("kernels", [(Gaussian(1.0), Gaussian(2.0)), (Cosine(), Cosine())])
def test_the_gram_matrix_of_a_kernel_scores_as_the_kernel_does(name, kernels):
    """Also that of cosines, whose own spectrum is from a matrix of (3 * 4)^2 for both."""
    x, t, (k, j), rows = normal(0, 40, 3), normal(1, 40, 4), kernels, range(40)
    mx, mt, score = Precomputed(k.gram(x)), Precomputed(j.gram(t)), scores_of(40)[name]
    # square roots of what rounding leaves of zero eigenvalues
    rel = 1e-5 if name == "of order 0.5" else 1e-9
    expected = pytest.approx(float(score(x, t, k, j, Exact())), rel=rel)
    assert float(score(rows, rows, mx, mt, Exact())) == expected
    if name in WITH_PROMPTS:
        assert float(score(x, rows, k, mt, Exact())) == expected
        assert float(score(rows, t, mx, j, Exact())) == expected


@pytest.mark.parametrize(
    "rows", [[3, 1, 1], (3, 1, 1), np.array([3, 1, 1]), torch.tensor([[3.0], [1.0], [1.0]])]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_items_of_a_matrix_are_any_of_its_rows_in_its_precision(rows, dtype):
    matrix = Cosine().gram(normal(0, 5, 5)).to(dtype)
    before, wide = matrix.clone(), matrix.to(torch.promote_types(dtype, torch.float32))
    expected = wide[[3, 1, 1]][:, [3, 1, 1]].fill_diagonal_(1)
    expected[1:, 1:] = 1  # copies
    found = Precomputed(matrix).gram(rows)
    assert found.dtype == wide.dtype and torch.equal(matrix, before)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_a_matrix_that_is_not_positive_semidefinite_still_has_a_score():
    matrix = torch.eye(3) + torch.tensor([[0, 1, -1], [1, 0, 1], [-1, 1, 0]]) * 0.9
    values = torch.linalg.eigvalsh(matrix.double())
    assert values[0] < 0
    p = values.clamp(min=0) / values.clamp(min=0).sum()
    expected = float(torch.special.entr(p).sum().exp())
    assert float(vendi(range(3), Precomputed(matrix))) == pytest.approx(expected, rel=1e-6)
    squared_norm = float(matrix.square().sum())
    assert float(rke(range(3), Precomputed(matrix))) == pytest.approx(9 / squared_norm, rel=1e-6)


def test_a_kernel_of_your_own_needs_its_blocks_alone():
    class Unfinished(Kernel):
        pass

    class Equal(Unfinished):
        def blocks(self, x):
            return lambda rows, columns: (x[rows] == x[columns].T).to(x)

    with pytest.raises(TypeError, match="blocks"):
        Unfinished()
    assert float(vendi(torch.tensor([[1.0], [2.0], [2.0], [1.0]]), Equal())) == pytest.approx(2)


EYE = Precomputed(torch.eye(3))
MATRICES = [
    (torch.ones(2, 3), r"square, got shape \(2, 3\)"),
    (torch.ones(3), r"in the similarity matrix: .* got \(3,\)"),
    (torch.tensor([[1, math.nan], [0, 1]]), "in the similarity matrix: .* in row 0"),
    (torch.tensor([[1, 0.5], [0.4, 1]]), "symmetric, got some that differ by 0.0999"),
    (torch.zeros(2, 2), "itself must be 1, got 0.0"),
    (torch.tensor([[1, -1.5], [-1.5, 1]]), r"lie in \[-1, 1\], got -1.5"),
]
ITEMS = [
    (range(4), "from 0 to 2, got 3"),
    ([-1], "from 0 to 2, got -1"),
    ([0.5], "from 0 to 2, got 0.5"),
    ([math.nan], "from 0 to 2, got nan"),
    ([], r"must be row indices, .* of \(0,\)"),
    (torch.eye(3), r"must be row indices, .* of \(3, 3\)"),
    ([True, False, True], "must be row indices, .* got bool"),
    (["a", "b"], "must be row indices"),
]


def test_what_is_no_kernel_or_cannot_be_compared_is_refused():
    for matrix, message in MATRICES:
        with pytest.raises(ValueError, match=message):
            Precomputed(matrix)
    for rows, message in ITEMS:
        with pytest.raises(ValueError, match=message):
            vendi(rows, EYE)
    for kernel in (None, 3.0, "gaussian", Gaussian, lambda a, b: 1.0):
        with pytest.raises(ValueError, match="need a kernel such as"):
            vendi(torch.eye(3), kernel)
    with pytest.raises(ValueError, match="from 0 to 2, got -1"):
        EYE([0], [-1])
    with pytest.raises(ValueError, match=r"need a Gaussian kernel.*Precomputed.*use Exact"):
        vendi(range(3), EYE, spectrum=RandomFourier(64))
