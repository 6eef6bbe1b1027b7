import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from tests.helpers.every_score import (
    DTYPES,
    KINDS,
    WIDTHS,
    every_score,
    normal,
    sample,
    scores_of,
    spectrum,
)
from vendi_guidance.kernels.standard import Cosine, Gaussian, Precomputed
from vendi_guidance.scores.entropy import renyi_entropy
from vendi_guidance.scores.functional import (
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from vendi_guidance.scores.spectra import Exact, RandomFourier

KERNELS = [Gaussian(0.8), Cosine()]
PAIRS = [(a, b) for a in (Gaussian(0.8), Cosine()) for b in (Gaussian(1.9), Cosine())]
ORDERS = [0.5, 1, 1.5, 2, math.inf]
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "scores.json").read_text())

small = settings(deadline=None, max_examples=30)
pairs = st.sampled_from(PAIRS)
renyi_orders = st.sampled_from(ORDERS)


@st.composite
def samples(draw, max_n=12):
    """(x, t) in float64: a few modes, sometimes with exact duplicates, never a zero vector."""
    n, d, m = draw(st.integers(1, max_n)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    r = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = r.normal(size=(4, d))[r.integers(4, size=n)]
    t = r.normal(size=(3, m))[r.integers(3, size=n)]
    spread = draw(st.sampled_from([0.0, 0.1, 1.0]))
    x, t = x + spread * r.normal(size=(n, d)), t + spread * r.normal(size=(n, m))
    return torch.tensor(x), torch.tensor(t)


def golden_sample(case):
    r = np.random.default_rng(case["seed"])
    n, d, m = case["n"], case["d"], case["m"]
    cx, ct = r.normal(size=(case["modes_x"], d)), r.normal(size=(case["modes_t"], m))
    ix, it = r.integers(case["modes_x"], size=n), r.integers(case["modes_t"], size=n)
    x = cx[ix] + case["spread"] * r.normal(size=(n, d))
    t = ct[it] + case["spread"] * r.normal(size=(n, m))
    return x, t


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["seed"])
@pytest.mark.parametrize("name", ["gaussian", "cosine"])
def test_scores_match_the_golden_values(case, name):
    x, t = golden_sample(case)
    rank, n = case["truncation"], case["n"]
    p = np.random.default_rng(case["seed"] + 1).dirichlet(np.ones(n))
    k = Gaussian(case["sigma_x"]) if name == "gaussian" else Cosine()
    both = (x, t, k, Gaussian(case["sigma_t"]) if name == "gaussian" else Cosine())
    scores = {
        "vendi_1": lambda: vendi(x, k),
        "vendi_0_5": lambda: vendi(x, k, order=0.5),
        "vendi_1_5": lambda: vendi(x, k, order=1.5),
        "rke": lambda: rke(x, k),
        "vendi_inf": lambda: vendi(x, k, order=math.inf),
        "vendi_weighted": lambda: vendi(x, k, weights=p),
        "truncated_vendi": lambda: vendi(x, k, truncation=rank),
        "truncated_vendi_1_5": lambda: vendi(x, k, order=1.5, truncation=rank),
        "conditional_vendi": lambda: conditional_vendi(*both),
        "conditional_rke": lambda: conditional_rke(*both),
        "information_vendi": lambda: information_vendi(*both),
        "information_rke": lambda: information_rke(*both),
        "truncated_conditional_vendi": lambda: conditional_vendi(*both, truncation=rank),
        "truncated_information_vendi": lambda: information_vendi(*both, truncation=rank),
    }
    for field, expected in case[name].items():
        assert float(scores[field]()) == pytest.approx(expected, rel=1e-9), field


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, math.inf])
def test_vendi_agrees_with_the_vendi_score_package(kernel, order):
    reference = pytest.importorskip("vendi_score.vendi")
    x, p = normal(0, 30, 40), np.random.default_rng(1).dirichlet(np.ones(30)).astype(">f8")[::-1]
    gram, q = kernel.gram(x).numpy(), "inf" if order == math.inf else order
    expected = reference.score_K(gram, q=q), reference.score_K(gram, q=q, p=p)
    for items, how in ((x, kernel), (range(30), Precomputed(gram))):
        found = vendi(items, how, order=order), vendi(items, how, order=order, weights=p)
        assert tuple(map(float, found)) == pytest.approx(expected)


@pytest.mark.parametrize("spectrum", [Exact(), RandomFourier(30)])
@settings(deadline=None, max_examples=15)
@given(samples(), renyi_orders, st.data())
def test_repeating_an_item_is_weighting_it(spectrum, sample, order, data):
    """As often each, it changes nothing; not at all, it leaves the item out."""
    x, _ = sample
    n = len(x)
    often = st.lists(st.integers(0, 4), min_size=n, max_size=n)
    times = torch.tensor(data.draw(often | st.integers(1, 4).map(lambda count: [count] * n)))
    assume(times.sum() > 0)
    repeated = x.repeat_interleave(times, dim=0)
    same = {"order": order, "spectrum": spectrum}
    weighted = float(vendi(x, Gaussian(0.8), weights=times / times.sum(), **same))
    assert weighted == pytest.approx(float(vendi(repeated, Gaussian(0.8), **same)), rel=1e-5)
    if len(set(times.tolist())) == 1:
        assert weighted == pytest.approx(float(vendi(x, Gaussian(0.8), **same)), rel=1e-5)


@small
@given(samples(), pairs, st.sampled_from([1, 1.5, 2, math.inf]), st.sampled_from([None, 1, 3, 50]))
def test_vendi_is_conditional_times_information_vendi(sample, pair, order, rank):
    x, t = sample
    settings_ = {"order": order, "truncation": rank}
    conditional = conditional_vendi(x, t, *pair, **settings_)
    product = conditional * information_vendi(x, t, *pair, **settings_)
    assert float(product) == pytest.approx(float(vendi(x, pair[0], **settings_)))


@small
@given(samples(), pairs, renyi_orders)
def test_constant_prompts_explain_nothing_and_all_different_ones_everything(sample, pair, order):
    x, t = sample
    score, by_rke = vendi(x, pair[0], order=order), rke(x, pair[0])
    for prompts, own, own_rke, explained in (
        (t[:1].expand(len(x), -1), score, by_rke, 1),
        (100 * torch.eye(len(x)), 1, 1, by_rke),
    ):
        conditional = float(conditional_vendi(x, prompts, *pair, order=order))
        assert conditional == pytest.approx(float(own), rel=1e-5)
        assert float(conditional_rke(x, prompts, *pair)) == pytest.approx(float(own_rke))
        assert float(information_rke(x, prompts, *pair)) == pytest.approx(float(explained))


@pytest.mark.parametrize("pair", PAIRS)
def test_order_two_over_many_tiles_is_that_of_the_whole_matrix(pair):
    """It takes no spectrum; a truncation that keeps all makes it take one."""
    n = 600
    x, t, whole = normal(0, n, 5), normal(1, n, 3), {"order": 2, "truncation": n}
    gram_x, gram_t = pair[0].gram(x), pair[1].gram(t)
    norm_x, norm_t = gram_x.square().sum(), gram_t.square().sum()
    norm_joint = (gram_x * gram_t).square().sum()
    for short, long, items, kernels, expected in (
        (rke, vendi, [x], pair[:1], n**2 / norm_x),
        (conditional_rke, conditional_vendi, [x, t], pair, norm_t / norm_joint),
        (information_rke, information_vendi, [x, t], pair, n**2 * norm_joint / (norm_x * norm_t)),
    ):
        found = short(*items, *kernels), long(*items, *kernels, **whole)
        assert tuple(map(float, found)) == pytest.approx((float(expected),) * 2)


@every_score
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_score_is_a_float64_number_without_a_graph(name, dtype):
    x = normal(0, 6, 3).to(dtype).requires_grad_()
    for kernel in KERNELS:
        score = scores_of(6)[name](x, x, kernel, kernel, Exact())
        assert score.shape == () and score.dtype == torch.float64 and not score.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order must be greater than 0 .* got 0"),
        ({"truncation": 0, "order": 2}, "truncation must be .* at least 1, got 0"),
        ({"weights": [0.5, 0.5]}, r"shape \(3,\), one for each item, got \(2,\)"),
        ({"weights": [[0.5, 0.25, 0.25]]}, r"shape \(3,\), one for each item, got \(1, 3\)"),
        ({"weights": [1.0, 0.5, -0.5], "order": 2}, "non-negative numbers, got -0.5"),
        ({"weights": [1.0, math.nan, 0.0]}, "non-negative numbers, got nan"),
        ({"weights": [1.0, 1.0, 1.0]}, "sum to 1, got 3.0"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    x, k = torch.eye(3), Gaussian(1.0)
    calls = [lambda: vendi(x, k, **options)]
    if "weights" not in options:
        calls += [lambda: conditional_vendi(x, x, k, k, **options)]
        calls += [lambda: information_vendi(x, x, k, k, **options)]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["gaussian", "cosine"])
def test_copies_have_the_scores_of_the_definition(kind, width, dtype, kernel):
    x = sample(kind, width, dtype)
    k = Cosine() if kernel == "cosine" else Gaussian(width**0.5)
    a, b = x[0].double(), x[-1].double()
    cosine = float(a @ b / (a.norm() * b.norm()))
    alike = cosine if kernel == "cosine" else math.exp(-float((a - b).square().sum()) / 2 / width)
    p, t = spectrum(kind, alike), torch.full((len(x), 3), 0.3, dtype=dtype)
    near = {"rel": 2e-5, "abs": 1e-6} if dtype == torch.float32 else {"rel": 1e-13, "abs": 1e-14}
    for order in (1, 1.5, 2, math.inf):
        expected = pytest.approx(float(renyi_entropy(p, order).exp()), **near)
        assert float(vendi(x, k, order=order)) == expected
        assert float(conditional_vendi(x, t, k, k, order=order)) == expected
        assert float(information_vendi(x, t, k, k, order=order)) == pytest.approx(1, **near)
