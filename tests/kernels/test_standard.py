"""Kernels are their formulas, and copies are alike whatever the rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.every_score import DTYPES, WIDTHS, normal
from vendi_guidance.kernels.base import as_features
from vendi_guidance.kernels.rounding import exact_ones, rounding
from vendi_guidance.kernels.standard import Cosine, Gaussian, Product

KERNELS = [Gaussian(0.7), Cosine()]
PAIRS = [(a, b) for a in (Gaussian(0.7), Cosine()) for b in (Gaussian(1.9), Cosine())]


small = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 9)


@small
@given(seeds, sizes, sizes, sizes, st.floats(0.1, 10))
def test_kernels_are_their_formulas(seed, n, m, d, sigma):
    a, b = normal(seed, n, d), normal(seed + 1, m, d)
    expected = torch.exp(-(a[:, None] - b).square().sum(dim=2) / (2 * sigma**2))
    torch.testing.assert_close(Gaussian(sigma)(a, b), expected)
    expected = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=2)
    torch.testing.assert_close(Cosine()(a, b), expected)


def test_a_bandwidth_of_another_kind_of_number_is_the_same_kernel():
    for sigma in (np.float32(0.5), torch.tensor(0.5)):
        assert repr(Gaussian(sigma)) == "Gaussian(sigma=0.5)" and Gaussian(sigma) == Gaussian(0.5)


@pytest.mark.parametrize("kernel", [*KERNELS, Product(Gaussian(2.0), Cosine(), split=4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gram_matrix_is_symmetric_and_has_ones_on_its_diagonal(kernel, dtype):
    x = (5 + normal(0, 70, 11) / 2).to(dtype)
    gram = kernel.gram(x)
    assert gram.dtype == dtype and torch.equal(gram, gram.T)
    assert torch.equal(gram.diagonal(), torch.ones(70, dtype=dtype))
    torch.testing.assert_close(gram, kernel(x, x))


@pytest.mark.parametrize("signs", [torch.ones(60), torch.arange(60) % 2 * 2.0 - 1])
def test_distances_near_one_between_features_of_norm_fifty_survive_float32(signs):
    """All in one place, and in two clusters far apart."""
    d = 128
    x = (signs[:, None] * 50 / d**0.5 + normal(1, 60, d) / (2 * d) ** 0.5).float()
    assert x.norm(dim=1).mean() == pytest.approx(50, rel=0.01)
    assert torch.pdist(x.double()).median() == pytest.approx(1, rel=0.2) or signs.min() < 0
    for sigma in (0.3, 1.0):
        found, exact = Gaussian(sigma).gram(x), Gaussian(sigma).gram(x.double())
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-7)


@small
@given(seeds, sizes, sizes, sizes, st.sampled_from(PAIRS))
def test_a_product_has_the_elementwise_product_of_the_gram_matrices(seed, n, d, m, pair):
    x, t = 3 + normal(seed, n, d), normal(seed + 1, n, m)
    kernel_x, kernel_t = pair
    gram = Product(kernel_x, kernel_t, split=d).gram(torch.cat([x, t], dim=1))
    torch.testing.assert_close(gram, kernel_x.gram(x) * kernel_t.gram(t))


def test_the_length_of_a_vector_does_not_matter_to_cosine_however_small_or_large():
    x = normal(0, 6, 4).float()
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(Cosine()(x * scale, x), Cosine()(x, x))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((kind, torch.float32) for kind in ("f4", "f2", torch.float32, torch.bfloat16)),
        *((kind, torch.float64) for kind in ("f8", "i8", "?", torch.float64, torch.int32)),
    ],
)
def test_features_come_out_in_single_or_double_precision(kind, expected):
    ones = torch.ones(2, 3)
    given = ones.to(kind) if isinstance(kind, torch.dtype) else ones.numpy().astype(kind)
    found = as_features(given)
    assert torch.equal(found, ones.to(expected)) and found.dtype == expected


LAYOUTS = {
    "transposed": lambda x: x.T.contiguous().T,
    "array": lambda x: x.numpy(),
    "fortran": lambda x: np.asfortranarray(x.numpy()),
    "read-only": lambda x: np.frombuffer(x.numpy().tobytes()).reshape(x.shape),
    "nested lists": lambda x: x.tolist(),
    "with graph": lambda x: x.clone().requires_grad_(),
    "backwards": lambda x: x.numpy()[::-1].copy()[::-1],
    "other byte order": lambda x: x.numpy().astype(">f8"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_features_lie_in_memory_does_not_matter(layout):
    x = normal(0, 30, 4)
    assert torch.equal(as_features(LAYOUTS[layout](x)), x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(3), r"shape \(n, d\), got \(3,\)"),
        (torch.ones(3, 2, 2), r"shape \(n, d\), got \(3, 2, 2\)"),
        (torch.ones(0, 2), r"shape \(0, 2\) are empty"),
        (torch.ones(2, 0), r"shape \(2, 0\) are empty"),
        (torch.tensor([[1.0], [float("nan")]]), "NaN or infinity, first in row 1"),
        (np.array([[-np.inf], [1.0]]), "NaN or infinity, first in row 0"),
        (torch.ones(2, 2, dtype=torch.complex64), "must be real, got torch.complex64"),
        (iter([torch.ones(3, 2)]), "from a list_iterator: .* VendiScore take chunks"),
    ],
)
def test_features_that_are_not_finite_rows_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        as_features(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Cosine().gram(torch.tensor([[1.0, 0], [0, 0]])), "row 1 is a zero vector"),
        (lambda: Gaussian(1e-200).gram(torch.eye(2)), "too large for sigma 1e-200"),
        (lambda: Cosine()(torch.ones(2, 3), torch.ones(2, 4)), "agree in d, got 3 and 4"),
        (lambda: Gaussian(0), "greater than 0, got 0"),
        (lambda: Gaussian(-1.5), "greater than 0, got -1.5"),
        (lambda: Gaussian(float("nan")), "greater than 0, got nan"),
        (lambda: Gaussian(float("inf")), "greater than 0, got inf"),
    ],
)
def test_what_a_kernel_cannot_compare_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_differs_by_more_than_rounding_stays(width, dtype):
    cosines = 1 - torch.tensor([0.0, 0.9, 1.5, 1e3], dtype=dtype) * rounding(dtype, width)
    found = exact_ones(cosines.clone(), width)
    assert (found == 1).tolist() == [True, True, False, False]
    assert torch.equal(found[2:], cosines[2:])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [Gaussian(0.2), Gaussian(1.0), Cosine()])
def test_copies_have_similarity_one_wherever_the_others_are(kernel, width, dtype):
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.rand(2, width, generator=generator, dtype=dtype) + 0.01
        x = 9 * x / x.sum(dim=1, keepdim=True)
        found = kernel(x[[0, 0, 1]], x[[0, 0, 0, 1]])
        assert torch.equal(found[:2, :3], torch.ones_like(found[:2, :3])) and found[2, 3] == 1
