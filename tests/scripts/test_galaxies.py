"""The script for galaxies: its network around the score of a mixture, known in closed form."""

import math
import sys

import click
import pytest
import torch

from scripts.comparison import galaxies
from scripts.comparison.galaxies import HIGHEST, STEPS, Network, generate, load
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.guidance.settings import Rounds

SIZE, VARIANCE = 8, 0.01
WEIGHTS = torch.tensor([0.85, 0.05, 0.05, 0.05])
MODES = 2 * torch.randn(4, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
UNGUIDED = Rounds(diversity=0)


def responsibilities(z, signal, variance):
    squares = (z[:, None] - signal * MODES).square().sum(dim=(2, 3))
    return (WEIGHTS.log() - squares / (2 * variance)).softmax(dim=1)


def score(z, t):
    """Of a mixture of Gaussians that noise has reached for a time t."""
    signal = math.exp(-t / 2)
    variance = signal**2 * VARIANCE - math.expm1(-t)
    shares = responsibilities(z, signal, variance)
    return (torch.einsum("nk,khw->nhw", shares, signal * MODES) - z) / variance


def modes_of(latents):
    return (latents[:, None] - MODES).square().sum(dim=(2, 3)).argmin(dim=1)


@pytest.mark.parametrize("ratio", [0.05, 1.0, 6.4, 100.0])
def test_the_prediction_is_the_mean_of_clean_images_given_the_noisy_one(ratio):
    network = Network(score)
    signal, noise = level = network.at(ratio)
    assert signal**2 + noise**2 == pytest.approx(1) and level.ratio == pytest.approx(ratio)
    z = torch.randn(5, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    z = signal * MODES[[0, 1, 2, 3, 0]] + noise * z
    variance = signal**2 * VARIANCE + noise**2
    shares = responsibilities(z, signal, variance)
    gain = signal * VARIANCE / variance
    expected = gain * z + (1 - gain * signal) * torch.einsum("nk,khw->nhw", shares, MODES)
    torch.testing.assert_close(network.denoise(z, level), expected, rtol=1e-3, atol=1e-3)
    assert network.evaluated == 5
    highest = network.at(math.inf)
    assert network.at(2 * HIGHEST) == highest
    assert highest == pytest.approx((math.exp(-5), HIGHEST * math.exp(-5)))


def test_the_probability_flow_ends_on_the_mixture():
    latents, evaluations = generate(score, SIZE, UNGUIDED, seed=0)
    assert evaluations == STEPS
    distance = (latents - MODES[modes_of(latents)]).square().mean(dim=(1, 2)).sqrt()
    assert (distance < 3 * VARIANCE**0.5).all()


def test_rounds_reach_rare_modes_for_sixteen_evaluations_more():
    plain = [generate(score, SIZE, UNGUIDED, seed)[0] for seed in range(3)]
    guided, evaluations = zip(*(generate(score, SIZE, Rounds(), s) for s in range(3)), strict=True)
    assert {*evaluations} == {STEPS + 16}
    rare = [sum(int((modes_of(one) > 0).sum()) for one in some) for some in (plain, guided)]
    assert rare[1] > rare[0]


def test_the_command_writes_tables_and_a_picture(monkeypatch, tmp_path):
    monkeypatch.setattr(galaxies, "NETWORKS", {"toy-8": ("toy", SIZE)})
    monkeypatch.setattr(galaxies, "load", lambda survey, size: score)
    monkeypatch.setattr(galaxies, "efficientnet", lambda: open_image_embedder("pixels:8"))
    few = {key: (settings, seeds[:2]) for key, (settings, seeds) in galaxies.SAMPLES.items()}
    monkeypatch.setattr(galaxies, "SAMPLES", few)
    monkeypatch.setattr(galaxies, "REFERENCE", range(4, 8))
    galaxies.main.callback(["toy-8"], tmp_path)
    lines = (tmp_path / "galaxies.md").read_text().splitlines()
    assert [line.count("×") for line in lines] == [0, 0, 0] + [2] * 7
    assert [line.split()[-2] for line in lines[2:]] == ["32"] * 2 + ["48"] * 6
    assert (tmp_path / "galaxies.webp").stat().st_size > 0


def test_a_missing_package_is_named_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "galaxygrad", None)
    with pytest.raises(click.UsageError, match=r"^galaxygrad is needed: pip install galaxygrad=="):
        load("hsc", 32)
