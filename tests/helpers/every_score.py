"""All scores with the same signature: samples, prompts, their kernels and a spectrum."""

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
    labels = [row % 3 for row in range(n)]
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
        "cluster_vendi": lambda x, t, k, j, s: scores.cluster_vendi(x, labels, k, spectrum=s),
        "cluster_rke": lambda x, t, k, j, s: scores.cluster_rke(x, labels, k, spectrum=s),
        "intdiv": lambda x, t, k, j, s: scores.intdiv(x, k),
    }


NAMES = tuple(scores_of(1))
WITH_PROMPTS = [name for name in NAMES if name.startswith(("conditional", "information"))]
every_score = pytest.mark.parametrize("name", NAMES)
