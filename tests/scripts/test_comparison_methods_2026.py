"""The formulas of the methods of 2026 that we compare ours with."""

import math

import pytest
import torch

from scripts.comparison.features import _entropy, _similarity, dispersed, without_mean
from scripts.comparison.initial_noise import contrast, pink
from tests.helpers.every_score import normal
from vendi_guidance import Cosine, vendi


@pytest.mark.parametrize("exponent", [0.2, 1.0])
def test_pink_noise_has_its_power_and_its_samples_deviation(exponent):
    white = normal(0, 500, 1, 8, 8) * torch.linspace(1, 2, 500)[:, None, None, None]
    coloured = pink(white, exponent)
    stds = [it.flatten(1).std(dim=1) for it in (white, coloured)]
    torch.testing.assert_close(*stds, rtol=1e-4, atol=1e-4)
    before, after = (torch.fft.fft2(it).abs().square().mean(dim=(0, 1)) for it in (white, coloured))
    ratio = after / before
    expected = (math.hypot(1, 1) / math.hypot(2, 3)) ** -exponent
    assert float(ratio[1, 1] / ratio[2, 3]) == pytest.approx(expected, rel=0.1)
    assert float(ratio[0, 0] / ratio[0, 1]) == pytest.approx(1, rel=0.1)


def test_the_contrast_of_two_samples_is_that_of_a_softmax_by_hand():
    maps, held = normal(0, 2, 3, 4, 4), normal(1, 2, 3, 4, 4)  # pooled to one place
    a, b, c, d = (it.mean(dim=(1, 2)) for it in (*maps, *held))
    cosine = torch.nn.functional.cosine_similarity
    across = (cosine(a, b, dim=0) / 0.1).exp()
    own = [(cosine(x, y, dim=0) / 0.1).exp() for x, y in ((a, c), (b, d))]  # gamma is 1
    expected = -sum((it / (it + across)).log() for it in own) / 2
    torch.testing.assert_close(contrast(maps, held), expected)


def test_a_share_of_the_mean_of_tokens_and_of_maps_is_taken():
    maps = normal(0, 2, 3, 4, 5) + 1
    tokens = maps.flatten(2).transpose(1, 2)
    found = without_mean(tokens, 0.25)
    torch.testing.assert_close(found.mean(dim=1), 0.75 * tokens.mean(dim=1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.var(dim=1), tokens.var(dim=1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(without_mean(maps, 0.25).flatten(2).transpose(1, 2), found)


@pytest.mark.parametrize(
    ("slope", "objective"),
    [
        (_similarity, lambda k: -k.exp().mean().log()),
        (_entropy, lambda k: -torch.special.xlogy(it := torch.linalg.eigvalsh(k / 4), it).sum()),
    ],
)
def test_a_dispersion_is_gradient_ascent_of_its_objective(slope, objective):
    x = (normal(0, 4, 2, 3) + 2).requires_grad_()
    flat = x.flatten(1)
    unit = flat / flat.norm(dim=1, keepdim=True)
    [gradient] = torch.autograd.grad(objective(unit @ unit.T), x)
    first = x.detach() + 0.1 * flat.detach().norm(dim=1)[:, None, None] ** 2 * gradient
    torch.testing.assert_close(dispersed(x.detach(), slope, 0.1, 1), first)
    far = dispersed(x.detach(), slope, 3.0, 30)
    assert float(vendi(far.flatten(1), Cosine())) > float(vendi(flat.detach(), Cosine()))


def test_samples_that_are_alike_stay_so_however_often_they_are_moved():
    alike = normal(0, 1, 6).expand(8, 6) * torch.arange(1, 9)[:, None]  # rounding errors differ
    moved = dispersed(alike, _entropy, 5.0, 100)
    torch.testing.assert_close(moved, alike, atol=1e-4, rtol=1e-4)
