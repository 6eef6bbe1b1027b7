import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.every_score import normal
from vendi_guidance.scores.linalg import (
    OVERSAMPLING,
    gauss_quadrature,
    leading_eigenpairs,
    tridiagonalise,
)

small = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


def matrix(eigenvalues: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """A symmetric matrix with these eigenvalues."""
    n = len(eigenvalues)
    q = torch.linalg.qr(normal(seed, n, n)).Q
    return (q * eigenvalues.double()) @ q.T


def ones(count: int) -> torch.Tensor:
    return torch.ones(count, dtype=torch.float64)


SPECTRA = {
    "geometric": 0.9 ** torch.arange(300.0),
    "slowly falling": 1 / (1 + torch.arange(300.0)) ** 0.5,
    "flat": 1 + 0.01 * torch.linspace(1, 0, 300),
    "identity": ones(300),
    "repeated": torch.cat([2 * ones(7), ones(5), 0.5 * ones(60), 0.01 * ones(228)]),
    "repeated more often than there are vectors": torch.cat([2 * ones(100), ones(200)]),
    "rank three": torch.cat([torch.tensor([3.0, 2, 1]), 0 * ones(297)]),
    "rank one": torch.cat([ones(1), 0 * ones(299)]),
    "zero": 0 * ones(300),
}
spectra = pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA.keys())


@spectra
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 5, 12])
def test_leading_eigenvalues_are_those_of_the_matrix(spectrum, count, dtype):
    a, is_double = matrix(spectrum).to(dtype), dtype == torch.float64
    start = normal(1, 300, count + OVERSAMPLING).to(dtype)
    values, vectors = leading_eigenpairs(a.__matmul__, start, count)
    expected = spectrum.double().sort(descending=True).values[:count]
    assert values.shape == (count,) and values.dtype == torch.float64
    assert vectors.shape == (300, count)
    torch.testing.assert_close(values, expected, rtol=2e-4, atol=1e-12 if is_double else 1e-6)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(count, dtype=dtype))
    # an orthonormal basis shows no more than there is
    assert (values <= expected + (1e-12 if is_double else 1e-5)).all()
    # an eigenvalue is right to the square of what its vector is
    residual = torch.linalg.vector_norm(a @ vectors - vectors * values.to(dtype), dim=0)
    assert (residual <= 0.05 * expected[0] + (1e-12 if is_double else 1e-5)).all()


@small
@given(seeds, st.integers(1, 6))
def test_quadrature_is_exact_for_polynomials(seed, steps):
    """Degree up to 2 steps - 1 (Golub & Meurant, 2010), and no further."""
    a = matrix(torch.from_numpy(np.random.default_rng(seed).uniform(0, 1, size=40)), seed)
    v = normal(seed + 1, 40, 3)
    nodes, weights = gauss_quadrature(tridiagonalise(a.__matmul__, v, steps))
    assert nodes.shape == weights.shape == (3, steps)
    squared = v.square().sum(dim=0)
    power = v
    for degree in range(2 * steps + 1):
        found = squared * (weights * nodes**degree).sum(dim=1)
        expected = (v * power).sum(dim=0)
        if degree < 2 * steps:
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
        else:
            assert not torch.allclose(found, expected, rtol=1e-12, atol=0)
        power = a @ power


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [3, 4, 10, 30])
@pytest.mark.parametrize(
    "eigenvalues",
    [
        torch.cat([ones(10), 0.5 * ones(10), 0.1 * ones(10)]),
        torch.cat([ones(1), 1e-3 * ones(29)]),
        torch.cat([ones(2), 0 * ones(28)]),
        ones(30),
        0 * ones(30),
        torch.linspace(0, 1, 30),
    ],
    ids=["three kinds", "two kinds", "rank two", "identity", "zero", "all different"],
)
def test_steps_beyond_the_krylov_space_add_nothing(eigenvalues, steps, dtype):
    """With k different eigenvalues, k steps are exact for every function."""
    steps = 30 if len(eigenvalues.unique()) == 30 else steps
    a, v = matrix(eigenvalues), normal(1, 30, 3)
    v[:, 2] = 0
    values, vectors = torch.linalg.eigh(a)
    single = a.to(dtype)
    nodes, weights = gauss_quadrature(tridiagonalise(single.__matmul__, v.to(dtype), steps))
    assert nodes.isfinite().all() and (weights >= 0).all()
    counted = nodes[:2][weights[:2] > 1e-6]
    assert values.min() - 1e-5 < counted.min() and counted.max() < values.max() + 1e-5
    torch.testing.assert_close(weights.sum(dim=1), ones(3))
    for f in (torch.exp, torch.sin, lambda p: torch.special.entr(p.clamp(min=0))):
        expected = ((vectors.T @ v).square() * f(values)[:, None]).sum(dim=0)
        found = v.square().sum(dim=0) * (weights * f(nodes)).sum(dim=1)
        exact = dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-11 if exact else 1e-3)
