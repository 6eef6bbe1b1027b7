"""Samples with known scores: copies of one item, with or without a different one."""

import math

import torch

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
