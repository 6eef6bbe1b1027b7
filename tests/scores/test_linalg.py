import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.scores.linalg import (
    gauss_quadrature,
    tridiagonalise,
)


def matrix(eigenvalues: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """A symmetric matrix with these eigenvalues."""
    n = len(eigenvalues)
    q = torch.linalg.qr(normal(seed, n, n)).Q
    return (q * eigenvalues.double()) @ q.T


def ones(count: int) -> torch.Tensor:
    return torch.ones(count, dtype=torch.float64)


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
