"""Distances of two images as people see them, by packages that load their own weights."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from vendi_guidance.evaluation.batches import LazyImages
from vendi_guidance.features.images import resized
from vendi_guidance.features.weights import reason
from vendi_guidance.kernels.precision import float32_by_default, isolated
from vendi_guidance.scores.groups import rows_by_label

PACKAGES = ("dreamsim", "lpips")


class Perceptual:
    """A distance of two images: "dreamsim" (Fu et al., NeurIPS 2023), or "lpips" (Zhang et al.,
    CVPR 2018) with AlexNet at 256 x 256 pixels. ImportError if the package of this name is not
    installed; ValueError if it cannot load its weights."""

    @float32_by_default()
    def __init__(self, name: str, device: str = "cpu") -> None:
        self.name, self.device = name, device
        try:
            library = import_module(name)
        except ImportError:
            raise ImportError(f"{name} is not installed: pip install {name}") from None
        try:
            if name == "dreamsim":
                folder = Path(torch.hub.get_dir(), name)  # by default the current folder
                folder.parent.mkdir(parents=True, exist_ok=True)  # it makes only the last one
                self.network, self.prepare = library.dreamsim(device=device, cache_dir=str(folder))
            else:
                self.network = library.LPIPS(net="alex", verbose=False).eval().to(device)
                self.prepare = lambda image: 2 * resized(image, 256)[None] - 1
        except Exception as error:  # libraries raise errors of every kind
            raise ValueError(f"{name} cannot load its weights: {reason(error)}") from error

    @isolated()
    def distances(self, images: LazyImages, prompts: Sequence[str]) -> Tensor:
        """(n,) float64 mean distances of each image from the others of its prompt; NaN without."""
        found = torch.empty(len(images), dtype=torch.float64, device="cpu")
        for rows in rows_by_label(prompts, len(images)).values():
            others = len(rows) - 1 or torch.nan
            pixels = torch.cat([self.prepare(images[row]) for row in rows]).to(self.device)
            for row, one in zip(rows, pixels, strict=True):  # an image is at distance 0 from itself
                found[row] = self.network(one.expand_as(pixels), pixels).sum() / others
        return found
