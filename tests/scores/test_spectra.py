import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.every_score import NAMES, WITH_PROMPTS, every_score, normal, scores_of
from tests.helpers.largest_tensor import LargestTensor
from vendi_guidance.kernels.standard import Cosine, Gaussian, Precomputed, Product
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import (
    conditional_rke,
    conditional_vendi,
    information_vendi,
    rke,
    vendi,
)
from vendi_guidance.scores.spectra import Exact, RandomFourier

KERNELS = [Gaussian(1.5), Cosine()]
ORDERS = [0.5, 1, 1.5, 2, math.inf]

small = settings(deadline=None, max_examples=30)


def modes(seed: int, n: int, d: int, count: int, spread: float) -> torch.Tensor:
    r = np.random.default_rng(seed)
    centres, drawn = 3 * r.normal(size=(count, d)), r.integers(count, size=n)
    return torch.tensor(centres[drawn] + spread * r.normal(size=(n, d)))


def probabilities(seed: int, n: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(n)))


def test_random_features_estimate_the_kernel_without_bias():
    x, r, seeds = normal(0, 30, 4), 32, 200
    for kernel in (Gaussian(1.0), Product(Gaussian(0.8), Gaussian(3.0), split=2)):
        mean = torch.zeros(30, 30, dtype=torch.float64)
        for seed in range(seeds):
            z = RandomFourier(2 * r, seed).map(kernel, 4)(x)
            torch.testing.assert_close(z.square().sum(dim=1), torch.ones(30, dtype=torch.float64))
            mean += z @ z.T / seeds
        # an entry is the mean of r * seeds cosines, of variance 1/2 at most... and 900 are compared
        torch.testing.assert_close(mean, kernel.gram(x), rtol=0, atol=5 * (2 * r * seeds) ** -0.5)


def test_rke_of_random_features_is_one_over_the_squared_norm_of_their_covariance():
    x, sigma, r = normal(0, 50, 3), 0.7, 10
    omega = Gaussian(sigma).frequencies(3, r, torch.Generator().manual_seed(5)).to(x)
    covariance = np.zeros((2 * r, 2 * r))
    for item in x:
        phase = (item @ omega).numpy()
        z = np.concatenate([np.cos(phase), np.sin(phase)]) / r**0.5
        covariance += np.outer(z, z) / 50
    spectrum = RandomFourier(2 * r, seed=5)
    expected = 1 / (covariance**2).sum()
    assert float(rke(x, Gaussian(sigma), spectrum=spectrum)) == pytest.approx(expected)
    p = np.linalg.eigvalsh(covariance)
    expected = np.exp(-(p * np.log(p)).sum())
    assert float(vendi(x, Gaussian(sigma), spectrum=spectrum)) == pytest.approx(expected)


@pytest.mark.parametrize("order", ORDERS)
def test_constant_samples_have_a_conditional_score_of_one_under_random_features(order):
    """The frequencies of the prompts are the same in both terms, so their error cancels."""
    x, t = torch.full((80, 4), 3.0, dtype=torch.float64), normal(0, 80, 3)
    both, spectrum = (Gaussian(1.0), Gaussian(0.7)), RandomFourier(60)
    score = conditional_vendi(x, t, *both, order=order, spectrum=spectrum)
    assert float(score) == pytest.approx(1, rel=1e-6)
    information = information_vendi(x, t, *both, order=order, spectrum=spectrum)
    assert float(information) == pytest.approx(1, rel=1e-6)
    assert float(conditional_rke(x, t, *both, spectrum=spectrum)) == pytest.approx(1)


def test_random_features_far_from_the_origin_survive_float32():
    # Multiples of 2^-8, so that the shift loses nothing.
    x = (normal(0, 60, 4) * 256).round() / 256
    far = (x + 30_000).float()
    spectrum = RandomFourier(100)
    expected = float(vendi(x, Gaussian(1.0), spectrum=spectrum))
    assert float(vendi(far, Gaussian(1.0), spectrum=spectrum)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("of_prompts", [Gaussian(1.0), Cosine()])
def test_equal_prompts_are_compared_once_for_scores_of_order_2(of_prompts):
    class Counted(Gaussian):
        entries = 0

        def blocks(self, x):
            block = of_prompts.blocks(x)

            def counted(rows, columns):
                values = block(rows, columns)
                Counted.entries += values.numel()
                return values

            return counted

    x, distinct = normal(0, 1200, 3), normal(1, 40, 5)  # of several tiles
    t = distinct[torch.from_numpy(np.random.default_rng(2).integers(40, size=1200))]
    k_x, k_t = Gaussian(1.0).gram(x), of_prompts.gram(t)
    expected = float(k_t.square().sum() / (k_x * k_t).square().sum())
    found = float(conditional_rke(x, t, Gaussian(1.0), Counted(1.0)))
    assert found == pytest.approx(expected, rel=1e-12) and Counted.entries < 50 * 50
    assert float(rke(x.float().repeat(2, 1), Gaussian(1.0))) == pytest.approx(
        float(rke(x.float(), Gaussian(1.0))), rel=1e-6
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "x",
    [
        *(modes(0, 400, 8, count=30, spread=0.5), normal(1, 400, 30)),
        *(normal(2, 20, 5).repeat(20, 1), torch.ones(400, 2).double(), 1000 * normal(3, 400, 5)),
    ],
    ids=["modes", "slowly falling", "copies", "all alike", "all different"],
)
def test_truncated_scores_from_leading_eigenvalues_are_those_from_all(x, weighted):
    p, kernel = probabilities(0, 400) if weighted else None, Gaussian(1.5)
    every = Exact().eigenvalues(x, kernel, p)
    for truncation, order in itertools.product((1, 5), (0.5, 1, math.inf)):
        full = float(Entropy(order, truncation).of(every))
        found = vendi(x, kernel, order=order, truncation=truncation, weights=p)
        assert float(found.log()) == pytest.approx(full, abs=1e-4)


def test_a_dual_truncated_beyond_its_width_keeps_zeros():
    """K has n eigenvalues: 4 of them are all the mass, and the fill-up adds nothing."""
    x = normal(0, 50, 4)
    plain = float(vendi(x, Cosine()))
    for truncation in (4, 5, 49, 50, 51):
        assert float(vendi(x, Cosine(), truncation=truncation)) == pytest.approx(plain)


K = Gaussian(1.0)
N = 6000
PAIRS = N * N / (50 if torch.empty(0).is_cpu else 2)  # a GPU's tiles are larger
MEMORY = {
    "order two": (lambda x: rke(x, K), PAIRS),
    "conditional": (lambda x: conditional_rke(x, x, K, K), PAIRS),
    "information": (lambda x: information_vendi(x, x, K, Cosine(), order=2), PAIRS),
    "random features": (lambda x: vendi(x, K, spectrum=RandomFourier(64)), 4096 * 64),
    "cosines": (lambda x: vendi(x, Cosine()), 2 * N),
}


@pytest.mark.parametrize("name", MEMORY)
def test_no_matrix_of_all_pairs_is_held(name):
    score, most = MEMORY[name]
    x = torch.randn(N, 2, generator=torch.Generator().manual_seed(0))
    with LargestTensor() as largest:
        score(x)
    assert 0 < largest.numel <= most


SPECTRA = [Exact(), RandomFourier(16)]
every_spectrum = pytest.mark.parametrize("spectrum", SPECTRA, ids=["exact", "random features"])


@every_score
@every_spectrum
def test_every_score_refuses_bad_features(name, spectrum):
    kernel = Gaussian(1.0) if isinstance(spectrum, RandomFourier) else Cosine()
    for x, message in (
        (torch.tensor([[1.0, 0.0], [math.inf, 1.0]]), "NaN or infinity, first in row 1"),
        (torch.ones(0, 2), r"shape \(0, 2\) are empty"),
        (torch.tensor([[1.0, 0.0]] * 5 + [[0.0, 0.0]]), r"row \d is a zero vector"),
    ):
        if "zero" not in message or kernel == Cosine():
            with pytest.raises(ValueError, match=message):
                scores_of(len(x))[name](x, torch.ones(len(x), 1), kernel, kernel, spectrum)
    if name in WITH_PROMPTS:
        with pytest.raises(ValueError, match="got n = 5 and n = 4"):
            scores_of(5)[name](torch.ones(5, 2), torch.ones(4, 2), kernel, kernel, spectrum)


@every_score
@every_spectrum
def test_one_item_scores_one(name, spectrum):
    x, t = np.array([[1.0, 2.0]]), np.array([[3.0]])
    for kernel in [Gaussian(1.0)] + [Cosine()] * (not isinstance(spectrum, RandomFourier)):
        found = scores_of(1)[name](x, t, kernel, kernel, spectrum)
        assert float(found) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("spectrum", "kernel"),
    [
        (RandomFourier(64), Gaussian(20.0)),  # a cosine has no frequencies
        (Exact(), Gaussian(20.0)),
        (Exact(), Cosine()),
    ],
)
def test_features_of_norm_one_hundred_score_in_any_precision_as_their_values_do(spectrum, kernel):
    x, t = normal(0, 120, 64), normal(1, 120, 16)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        narrow = (100 * x / x.norm(dim=1, keepdim=True)).to(dtype), t.to(dtype)
        wide = [each.double() for each in narrow]
        for name in ("vendi", "rke", "conditional_vendi", "conditional_rke", "information_vendi"):
            found, expected = (
                float(scores_of(120)[name](*both, kernel, Gaussian(4.0), spectrum))
                for both in (narrow, wide)
            )
            assert found == pytest.approx(expected, rel=1e-5 if dtype == torch.float32 else 1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomFourier(7), "features must be even, .* got 7"),
        (lambda: RandomFourier(-2), "features must be .* at least 1, got -2"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


FEATURE_KERNELS = [Gaussian(1.0), Gaussian(1e-3), Gaussian(1e4), Cosine()]


SIZES = st.sampled_from([*range(1, 9)] * 4 + [0, *range(18, 60, 3)])


@st.composite
def feature_items(draw, n):
    """Ordinary and odd features: constant, copied, huge, tiny, zero, of any precision and form."""
    d = draw(st.sampled_from([1, 2, 3, 4] * 3 + [0]))
    r = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = r.normal(size=(n, d)) * draw(st.sampled_from([0.0, 1e-30, 1.0, 1.0, 100.0, 1e6, 1e25]))
    if n and draw(st.booleans()):
        x = x[r.integers(n, size=n)]
    if x.size and draw(st.integers(0, 9)) == 0:
        x[r.integers(n), 0] = draw(st.sampled_from([math.nan, math.inf, 1e300]))
    dtype = draw(st.sampled_from(["float16", "float32", "float64", "float64", "int64", "bool"]))
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    tensor = torch.tensor(x)
    form = draw(st.sampled_from(["tensor", "array", "transposed", "softmax", "flat"]))
    if form == "softmax" and d:
        return tensor.double().softmax(dim=1)
    return {
        "array": x,
        "transposed": tensor.T.contiguous().T,
        "flat": tensor.flatten() if draw(st.booleans()) else tensor,
    }.get(form, tensor)


@st.composite
def items_with_kernels(draw, n):
    if draw(st.integers(0, 4)):
        return draw(feature_items(n)), draw(st.sampled_from(FEATURE_KERNELS))
    r = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = r.uniform(-1, 1, size=(9, 9))  # hardly ever positive semi-definite
    rows = r.integers(9, size=n) - draw(st.sampled_from([0, 0, 0, 1]))
    return rows, Precomputed(np.tril(matrix, -1) + np.tril(matrix, -1).T + np.eye(9))


@pytest.mark.slow
@settings(deadline=None, max_examples=250, derandomize=True)
@given(st.data(), SIZES, st.sampled_from(NAMES), st.sampled_from(SPECTRA), st.booleans())
def test_any_input_has_a_finite_score_or_a_sentence(data, n, name, spectrum, leading):
    """`leading`: matrices count as large already where they are small."""
    (x, kernel_x), (t, kernel_t) = (data.draw(items_with_kernels(n)) for _ in "xt")
    with pytest.MonkeyPatch.context() as patch:
        if leading:
            patch.setattr("vendi_guidance.scores.linalg.PARTIAL_RATIO", 1)
        try:
            score = float(scores_of(n)[name](x, t, kernel_x, kernel_t, spectrum))
        except ValueError as error:
            assert str(error)
            return
    assert math.isfinite(score)
    if not name.startswith(("conditional", "information")):
        assert 0.99 < score < 1.01 * max(n, 1)  # a list of one chunk without rows is one item
