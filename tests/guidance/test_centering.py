"""Centred objectives: scores and gradients are those of features with their means taken off."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from vendi_guidance.guidance.centering import mean_removal, subtract_means
from vendi_guidance.guidance.objectives import (
    OBJECTIVES,
    RKE,
    ConditionalRKE,
    ConditionalVendi,
    Vendi,
)
from vendi_guidance.guidance.window import SlidingWindow, unit_rows
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores import functional as scores

PROMPT = Gaussian(0.5)
CENTERS = ["global", "prompt"]
D, M = 6, 4


def objectives(latent=Gaussian(0.8), prompt=PROMPT):  # noqa: B008
    return {
        "vendi": Vendi(latent),
        "rke": RKE(latent),
        "conditional-vendi": ConditionalVendi(latent, prompt),
        "conditional-rke": ConditionalRKE(latent, prompt),
    }


def samples(n, seed=0, dtype=torch.float64):
    """(n, D) latents that have much in common, and (n, M) prompts of three kinds."""
    r = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=r, dtype=torch.float64).to(dtype)

    common, kinds = draw(D), draw(3, M)
    return 2 * (common + draw(n, D)), kinds[torch.arange(n) % 3] + 0.1 * draw(n, M)


def situation(n, b, seed=0, dtype=torch.float64):
    """(latents in flight, their prompts, a window of n)."""
    latents, prompts = samples(n + b, seed, dtype)
    window = SlidingWindow(max(n, 1), dtype=dtype)
    if n:
        window.append(latents[:n], prompts[:n])
    return latents[n:], prompts[n:], window


def directions(f, weights):
    """Rows of f: (n, d) with their means, weighted by rows of weights: (n, n), taken off."""
    return unit_rows(f - weights / weights.sum(dim=1, keepdim=True) @ f)


@pytest.mark.parametrize("latent", [Gaussian(0.8), Cosine()], ids=["gaussian", "cosine"])
@pytest.mark.parametrize("b", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_gradients_are_those_of_finite_differences(name, center, n, b, latent):
    z, prompts, window = situation(n, b)
    objective, step = objectives(latent)[name], 1e-5

    def score(moved):
        return objective.gradient(moved, prompts, window, center).score

    expected = torch.zeros_like(z)
    for at in torch.cartesian_prod(torch.arange(b), torch.arange(D)):
        nudge = torch.zeros_like(z)
        nudge[tuple(at)] = step
        expected[tuple(at)] = (score(z + nudge) - score(z - nudge)) / (2 * step)
    gradient = objective.gradient(z, prompts, window, center).gradient
    # of one sample, or two alike in prompt, the score is the same wherever they are
    assert (gradient - expected).norm() <= 1e-6 * expected.norm() + 1e-9


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("n", [0, 7])
def test_scores_are_those_of_the_evaluator_on_directions_from_the_mean(center, n):
    z, prompts, window = situation(n, 3)
    latents, t = samples(n + 3)
    f, t = unit_rows(latents), unit_rows(t)
    of_prompts = PROMPT.gram(t) if center == "prompt" else torch.ones(n + 3, n + 3).double()
    latent = Gaussian(0.8)
    plain, conditional = directions(f, torch.ones_like(of_prompts)), directions(f, of_prompts)
    expected = {
        "vendi": scores.vendi(plain, latent),
        "rke": scores.rke(plain, latent),
        "conditional-vendi": scores.conditional_vendi(conditional, t, latent, PROMPT),
        "conditional-rke": scores.conditional_rke(conditional, t, latent, PROMPT),
    }
    for name, objective in objectives().items():
        score = objective.gradient(z, prompts, window, center).score
        assert score.item() == pytest.approx(expected[name].item(), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 12), b=st.integers(1, 5), seed=st.integers(0, 1000))
def test_inner_products_are_those_of_the_directions(n, b, seed):
    f = unit_rows(samples(n + b, seed)[0])
    weights = torch.rand(n + b, n + b, dtype=f.dtype) + torch.eye(n + b, dtype=f.dtype)
    off, gram = mean_removal(weights), f @ f.T
    old = torch.zeros_like(gram)
    old[:n, :n] = gram[:n, :n]
    centred = subtract_means(off, off @ old @ off.T, gram[n:])
    u = directions(f, weights)
    if n + b > 1:
        torch.testing.assert_close(centred.inner, u @ u.T, atol=1e-10, rtol=0)
        torch.testing.assert_close(centred.lengths, (off @ f).norm(dim=1))


def test_without_a_center_nothing_is_taken_off():
    z, prompts, window = situation(7, 3)
    for objective in objectives().values():
        ascent = objective.gradient(z, prompts, window, None)
        score, gradient = objective.value_and_gradient(z, prompts, window)
        assert torch.equal(ascent.score, score) and torch.equal(ascent.gradient, gradient)
        centred = objective.gradient(z, prompts, window, "global")
        assert not torch.allclose(centred.gradient, gradient)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_where_all_prompts_are_alike_their_mean_is_the_plain_one(name):
    z, prompts, window = situation(7, 3)
    if name.startswith("conditional"):
        same = prompts[:1]
        latents = window.features.clone()
        window.clear()
        window.append(latents, same.expand(7, M))
        prompts = same.expand(3, M)
    by_prompt, plain = (
        objectives()[name].gradient(z, prompts, window, center) for center in ("prompt", "global")
    )
    for one, other in zip(by_prompt, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_prompts_with_nothing_in_common_have_means_of_their_own():
    z, _, window = situation(0, 6)
    prompts = torch.eye(2, dtype=z.dtype).repeat_interleave(3, dim=0)
    objective = objectives(prompt=Gaussian(0.05))["conditional-rke"]
    together = objective.gradient(z, prompts, window, "prompt").gradient
    halves = [
        objective.gradient(z[i], prompts[i], window, "prompt") for i in (slice(3), slice(3, 6))
    ]
    for own, half in zip(together.split(3), halves, strict=True):
        cosine = torch.nn.functional.cosine_similarity(own, half.gradient)
        assert cosine.tolist() == pytest.approx([1] * 3)


@pytest.mark.parametrize("center", [None, *CENTERS])
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_the_order_of_the_window_does_not_matter(name, center):
    z, prompts, window = situation(7, 3)
    other = SlidingWindow(7, dtype=torch.float64)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    other.append(window.features[order], window.prompts[order])
    one, two = (objectives()[name].gradient(z, prompts, each, center) for each in (window, other))
    for value, same in zip(one, two, strict=True):
        torch.testing.assert_close(value, same)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_only_the_direction_of_latents_counts_and_a_rotation_turns_the_gradient(name, center):
    z, prompts, window = situation(7, 3)
    objective = objectives()[name]
    ascent = objective.gradient(z, prompts, window, center)
    longer = objective.gradient(10 * z, prompts, window, center)
    torch.testing.assert_close(longer.score, ascent.score)
    torch.testing.assert_close(longer.gradient, ascent.gradient / 10)
    torch.testing.assert_close((ascent.gradient * z).sum(dim=1), torch.zeros(3).double())
    turn = torch.linalg.qr(samples(D, seed=3)[0]).Q
    turned = SlidingWindow(7, dtype=torch.float64)
    turned.append(window.features @ turn, window.prompts)
    rotated = objective.gradient(z @ turn, prompts, turned, center)
    torch.testing.assert_close(rotated.gradient, ascent.gradient @ turn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_samples_that_are_their_own_means_stay_where_they_are(name, center, dtype):
    z, prompts, empty = situation(0, 1, dtype=dtype)
    same = z.expand(4, D), prompts.expand(4, M)
    for latents, t in ((z, prompts), same):
        ascent = objectives()[name].gradient(latents, t, empty, center)
        assert torch.isfinite(ascent.score)
        assert torch.equal(ascent.gradient, torch.zeros_like(latents))
    if center == "prompt" and name.startswith("conditional"):
        z, _, empty = situation(0, 3, dtype=dtype)
        objective = objectives(prompt=Gaussian(0.01))[name]
        ascent = objective.gradient(z, torch.eye(3, M, dtype=dtype), empty, center)
        assert torch.equal(ascent.gradient, torch.zeros_like(z))


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_rounding_does_not_move_two_samples_which_are_always_opposite(name, center):
    for seed in range(20):
        z, prompts, empty = situation(0, 2, seed, torch.float32)
        ascent = objectives()[name].gradient(z, prompts[:1].expand(2, M), empty, center)
        assert torch.equal(ascent.gradient, torch.zeros_like(z))
        assert ascent.crowding.tolist() == [0, 0]


def fresh(objective, z, prompts, window, center):
    """The gradient where nothing has been computed before."""
    twin = SlidingWindow(window.size, dtype=window.dtype)
    twin.append(window.features, window.prompts)
    return objective.gradient(z, prompts, twin, center).gradient


@pytest.mark.parametrize("center", [None, *CENTERS])
def test_what_is_kept_between_steps_is_never_of_another_batch_window_or_objective(center):
    z, prompts, window = situation(5, 3)
    window.resize(20)
    others = samples(3, seed=1)[1]
    all_objectives = [*objectives().values(), *objectives(prompt=Gaussian(0.2)).values()]

    def check(z, prompts):
        for objective in all_objectives:
            gradient = objective.gradient(z, prompts, window, center).gradient
            torch.testing.assert_close(gradient, fresh(objective, z, prompts, window, center))

    check(z, prompts)
    check(z, others)
    check(z[:2], others[:2])
    check(z + 1, others)
    window.append(*samples(3, seed=2))
    check(z, others)
    check(z, prompts)


@pytest.mark.parametrize("center", [None, *CENTERS])
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_one_window_serves_latents_in_single_and_double_precision(name, center):
    z, prompts, window = situation(5, 3)
    double = objectives()[name].gradient(z, prompts, window, center).gradient
    single = objectives()[name].gradient(z.float(), prompts.float(), window, center).gradient
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)
