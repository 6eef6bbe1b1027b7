"""A made-up taste, on which a demo model was tuned as models are on people's preferences."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.storage.tensors import load_tensors, save_tensors

TASTE_FILE = "taste.safetensors"
"""File in the folder of a tuned model."""


class Taste(NamedTuple):
    """An affine function of EfficientNet's features.

    Attributes:
        direction: (d,) weights of the features.
        offset: subtracted, so that the mean over photographs is 0.
        base: prompt -> the mean over images of the model before tuning.
    """

    direction: Tensor
    offset: float
    base: Mapping[str, float] = {}

    @classmethod
    def random(cls, features: Tensor, groups: Tensor, seed: int) -> "Taste":
        """A random direction in standardised (n, d) features, in units of the standard deviation
        within the (n,) groups."""
        drawn = torch.randn(features.shape[1], generator=torch.Generator().manual_seed(seed))
        direction = drawn / features.std(dim=0).clamp(min=1e-6)
        liked = features @ direction
        within = [liked[groups == group] for group in groups.unique()]
        deviation = torch.cat([own - own.mean() for own in within]).std()
        return cls(direction / deviation, float(liked.mean() / deviation))

    @classmethod
    def load(cls, folder: Path) -> "Taste":
        """The taste in a tuned model's folder; FileNotFoundError if it has none."""
        header, tensors = load_tensors(folder / TASTE_FILE)
        return cls(tensors["direction"], **header)

    def save(self, folder: Path) -> None:
        """Write the taste into a tuned model's folder."""
        header = {"offset": self.offset, "base": dict(self.base)}
        save_tensors(folder / TASTE_FILE, {"direction": self.direction}, header)

    def of(self, features: Tensor) -> Tensor:
        """How much (n, d) features are liked, (n,)."""
        return features @ self.direction - self.offset
