"""All scores with the same signature: samples, prompts, their kernels and a spectrum. And samples
with known scores: copies of one item, with or without a different one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from vendi_guidance.scores import functional as scores


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


def scores_of(n: int) -> dict[str, Callable[..., Any]]:
    """Name -> function (x, t, kernel_x, kernel_t, spectrum) -> score of n items."""
    weights = np.random.default_rng(2).dirichlet(np.ones(max(n, 1)))[:n]
    return {
        "vendi": lambda x, t, k, j, s: scores.vendi(x, k, spectrum=s),
        "truncated": lambda x, t, k, j, s: scores.vendi(x, k, truncation=3, order=1.5, spectrum=s),
        "weighted": lambda x, t, k, j, s: scores.vendi(x, k, weights=weights, spectrum=s),
        "of order 0.5": lambda x, t, k, j, s: scores.vendi(x, k, order=0.5, spectrum=s),
        "largest": lambda x, t, k, j, s: scores.vendi(x, k, order=math.inf, spectrum=s),
        "rke": lambda x, t, k, j, s: scores.rke(x, k, spectrum=s),
        "conditional_vendi": lambda x, t, k, j, s: scores.conditional_vendi(x, t, k, j, spectrum=s),
        "conditional_rke": lambda x, t, k, j, s: scores.conditional_rke(x, t, k, j, spectrum=s),
        "information_vendi": lambda x, t, k, j, s: scores.information_vendi(x, t, k, j, spectrum=s),
        "information_rke": lambda x, t, k, j, s: scores.information_rke(x, t, k, j, spectrum=s),
    }


NAMES = tuple(scores_of(1))
WITH_PROMPTS = [name for name in NAMES if name.startswith(("conditional", "information"))]
every_score = pytest.mark.parametrize("name", NAMES)


WIDTHS = [1, 2, 3, 16, 512, 4096, 65536]
DTYPES = [torch.float32, torch.float64]
KINDS = ["one", "constant", "copies", "all but one alike"]


def sample(kind: str, width: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """(n, width) samples; an item that differs from the others is the last."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, 1, width, generator=generator, dtype=dtype)
    if kind == "constant":
        return torch.full((4, width), 0.3, dtype=dtype)
    copies = a.repeat(1 if kind == "one" else 4, 1)
    return torch.cat([copies, b]) if kind == "all but one alike" else copies


def spectrum(kind: str, similarity: float) -> torch.Tensor:
    """The nonzero eigenvalues of K/n if the last sample has this similarity to the others."""
    if kind != "all but one alike":
        return torch.ones(1, dtype=torch.float64)
    # on the span of the four copies and the other sample, K is [[4, 2k], [2k, 1]]
    root = math.sqrt(9 + 16 * similarity**2) / 2
    return torch.tensor([2.5 + root, 2.5 - root], dtype=torch.float64) / 5
