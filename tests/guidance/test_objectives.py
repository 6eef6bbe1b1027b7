"""Objectives: their scores are those of `scores`, their gradients those of finite differences."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.every_score import DTYPES, KINDS, WIDTHS, sample, spectrum
from vendi_guidance.guidance.objectives import RKE, MedianGaussian, Objective, Vendi
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.entropy import renyi_entropy

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "gradients.json").read_text())


def objectives(sigma_latent=0.8, sigma_prompt=0.3, truncation=None) -> dict[str, Objective]:
    latent, prompt = Gaussian(sigma_latent), Gaussian(sigma_prompt)
    return {
        "vendi": Vendi(latent, truncation=truncation),
        "rke": RKE(latent),
        "conditional-vendi": Vendi(latent, prompt, truncation),
        "conditional-rke": RKE(latent, prompt),
    }


def filled_window(features: torch.Tensor, prompts: torch.Tensor) -> SlidingWindow:
    window = SlidingWindow(max(1, len(features)), dtype=torch.float64)
    if len(features):
        window.append(features, prompts)
    return window


def golden_case(case):
    r = np.random.default_rng(case["seed"])
    n, b = case["window"], case["in_flight"]

    def unit(rows):
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    z = 3 * r.normal(size=(b, case["latent_size"]))
    features = unit(r.normal(size=(n, case["latent_size"])))
    centres = unit(r.normal(size=(3, case["prompt_size"])))
    chosen = r.integers(3, size=n + b)
    t = unit(centres[chosen] + 0.1 * r.normal(size=(n + b, case["prompt_size"])))
    z, features, t = map(torch.tensor, (z, features, t))
    return z, t[n:], filled_window(features, t[:n])


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"seed{case['seed']}")
@pytest.mark.parametrize("name", list(objectives()))
def test_golden_scores_and_gradients(case, name):
    z, prompts, window = golden_case(case)
    sigmas = case["sigma_latent"], case["sigma_prompt"]
    objective = objectives(*sigmas, case["truncation"])[name]
    score, gradient = objective.gradient(z, prompts, window)
    expected = case["objectives"][name]
    assert score.item() == pytest.approx(expected["score"], rel=1e-9)
    expected_gradient = torch.tensor(expected["gradient"], dtype=torch.float64)
    error = (gradient - expected_gradient).norm() / expected_gradient.norm()
    assert error < 1e-9


def slopes(objective, z, prompts, window, step=1e-5):
    """The score's slopes in random directions, by its gradient and by finite differences."""
    nudges = torch.randn(6, *z.shape, generator=torch.Generator().manual_seed(1)).to(z)

    def score(x):
        return objective.gradient(x, prompts, window).score

    gradient = objective.gradient(z, prompts, window).gradient
    found = (nudges * gradient).flatten(1).sum(dim=1)
    ends = [score(z + step * nudge) - score(z - step * nudge) for nudge in nudges]
    return found, torch.stack(ends) / (2 * step)


def situation(name):
    """(z, prompts, window) where gradients usually break."""
    r = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=r, dtype=torch.float64)

    n, b, d, m = {
        "nothing remembered": (0, 3, 6, 4),
        "one remembered": (1, 2, 6, 4),
        "alone": (0, 1, 6, 4),
        "one in flight": (7, 1, 6, 4),
    }.get(name, (9, 3, 6, 4))
    z, f, centres = 2 * draw(b, d), unit_rows(draw(n, d)), unit_rows(draw(3, m))
    t = unit_rows(centres[torch.arange(n + b) % 3] + 0.1 * draw(n + b, m))
    if name == "duplicates in the window":
        f[1:5] = f[0]
    if name == "duplicates in flight":
        z[1], t[n + 1] = 1.7 * z[0], t[n]
    if name == "in flight a duplicate of the window":
        f[2], t[2] = unit_rows(z)[0], t[n]
    if name == "all prompts equal":
        t[:] = t[0]
    if name == "no two prompts alike":
        t = torch.eye(n + b, dtype=torch.float64)
    return z, t[n:], filled_window(f, t[:n])


SITUATIONS = ["usual", "nothing remembered", "one remembered", "alone", "one in flight"]
SITUATIONS += ["duplicates in the window", "duplicates in flight", "all prompts equal"]
SITUATIONS += ["in flight a duplicate of the window", "no two prompts alike"]


@pytest.mark.parametrize(
    ("name", "truncation"),
    [("rke", None), ("conditional-rke", None)]
    + [(name, t) for name in ("vendi", "conditional-vendi") for t in (None, 1, 4, 500)],
)
@pytest.mark.parametrize("where", SITUATIONS)
def test_gradients_are_those_of_finite_differences(where, name, truncation):
    z, prompts, window = situation(where)
    objective = objectives(truncation=truncation)[name]
    score, gradient = objective.gradient(z, prompts, window)
    assert gradient.shape == z.shape
    assert torch.isfinite(gradient).all() and torch.isfinite(score)
    found, expected = slopes(objective, z, prompts, window)
    # where the true gradient is zero (a lone sample, say), only rounding is left
    assert (found - expected).norm() <= 1e-6 * expected.norm() + 1e-9


@pytest.mark.parametrize("objective", [RKE(Cosine()), Vendi(Cosine(), Gaussian(0.3))])
def test_objectives_hold_for_other_kernels(objective):
    z, prompts, window = situation("usual")
    found, expected = slopes(objective, z, prompts, window)
    assert (found - expected).norm() < 1e-6 * expected.norm()


def test_an_automatic_bandwidth_is_a_share_of_the_median_distance_for_similar_prompts():
    apart = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).double()
    t = apart[torch.arange(6) % 2]
    window = filled_window(features[:4], t[:4])
    found = RKE(MedianGaussian(0.7), Gaussian(0.1)).gradient(features[4:], t[4:], window)
    unit = unit_rows(features)
    distances = [(unit[i] - unit[j]).norm() for i in (4, 5) for j in range(i % 2, 6, 2) if j != i]
    median = torch.stack(distances).median().item()
    expected = RKE(Gaussian(0.7 * median), Gaussian(0.1)).gradient(features[4:], t[4:], window)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("copies", [1, 4])
def test_an_automatic_bandwidth_is_one_where_there_are_no_distances(copies):
    z = torch.ones(copies, 5, dtype=torch.float64)
    score, gradient = RKE(MedianGaussian(0.7)).gradient(z, None, SlidingWindow(1))
    assert score.item() == pytest.approx(1) and torch.equal(gradient, torch.zeros_like(z))


@pytest.mark.parametrize("name", list(objectives()))
def test_similarity_is_the_prompt_kernel_and_one_where_prompts_do_not_count(name):
    t = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).double()
    t[-1] = t[-2]
    similarity = objectives(sigma_prompt=1.0)[name].similarity(t, torch.ones(3, 2, 3).double())
    expected = Gaussian(1.0).gram(unit_rows(t)) if name.startswith("cond") else torch.ones(3, 3)
    torch.testing.assert_close(similarity, expected.double())


CONDITIONAL = RKE(Gaussian(1.0), Gaussian(1.0))
ONES = torch.ones(3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Vendi(Gaussian(1.0), truncation=0), "truncation.*0"),
        (lambda: CONDITIONAL.gradient(ONES, None, SlidingWindow(2)), "needs prompt embeddings"),
        (lambda: CONDITIONAL.gradient(ONES[:2], ONES, SlidingWindow(2)), "2 latents but 3 prompts"),
        (lambda: CONDITIONAL.similarity(None, ONES), "needs prompt embeddings"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", list(objectives()))
def test_a_window_in_half_precision_gives_nearly_the_same_gradient(name, dtype):
    r = torch.Generator().manual_seed(0)
    kinds, t = torch.randn(5, 256, generator=r), torch.randn(5, 8, generator=r)
    chosen = torch.arange(44) % 5
    latents = kinds[chosen] + torch.randn(44, 256, generator=r)
    gradients = []
    for storage in (torch.float32, dtype):
        window = SlidingWindow(40, dtype=storage, device="cpu")
        window.append(latents[:40], t[chosen[:40]])
        gradients.append(objectives()[name].gradient(latents[40:], t[chosen[40:]], window).gradient)
    exact, stored = gradients
    error = (stored - exact).norm(dim=1) / exact.norm(dim=1)
    assert error.max() < (2e-2 if dtype == torch.bfloat16 else 2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [Gaussian(0.8), MedianGaussian(0.7)])
def test_copies_have_the_scores_of_the_definition(kind, width, dtype, kernel):
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    for seed in range(4 if width < 4096 else 2):
        x = sample(kind, width, dtype, seed)
        a, b = x[0].double(), x[-1].double()
        cosine = float(a @ b / (a.norm() * b.norm()))
        # the median distance of copies is 0, which no bandwidth suits: it is 1
        sigma = 0.8 if isinstance(kernel, Gaussian) else 1.0
        p = spectrum(kind, math.exp((cosine - 1) / sigma**2))
        prompts = x.new_full((len(x), 5), 0.3)
        for remembered in {0, len(x) // 2} if kernel == Gaussian(0.8) else {0}:
            window = SlidingWindow(8, dtype=dtype)
            if remembered:
                window.append(x[:remembered], prompts[:remembered])
            for order, objective in (
                (2, RKE(kernel)),
                (1, Vendi(kernel)),
                (2, RKE(kernel, Gaussian(0.3))),
                (1, Vendi(kernel, Gaussian(0.3))),
            ):
                found = objective.gradient(x[remembered:], prompts[remembered:], window)
                expected = float(renyi_entropy(p, order).exp())
                assert float(found.score) == pytest.approx(expected, rel=tolerance)
                if kind != "all but one alike":
                    assert not found.gradient.any()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_copies_of_remembered_samples_are_copies_in_whatever_precision_kept(width, dtype, stored):
    for seed in range(4):
        x = sample("copies", width, dtype, seed)
        window = SlidingWindow(3, dtype=stored)
        window.append(x[:3])
        for objective in (RKE(MedianGaussian(0.7)), Vendi(MedianGaussian(0.7))):
            score, gradient = objective.gradient(x[:1], None, window)
            assert float(score) == pytest.approx(1, rel=1e-6)
            assert not gradient.any()
