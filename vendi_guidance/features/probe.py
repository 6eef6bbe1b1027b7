"""The demo's embedder and its ground truth: a small classifier of emoji pictures.

It says which concept, which vendor and which skin tone a picture shows, and its last hidden layer
is the feature.
"""

from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from huggingface_hub import PyTorchModelHubMixin
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn


class Looks(NamedTuple):
    """What the probe sees in n pictures: names, one a picture."""

    concepts: list[str]
    vendors: list[str]
    tones: list[str]


class Probe(nn.Module, PyTorchModelHubMixin):
    """A convolutional classifier of 64x64 emoji pictures with three heads.

    `Probe.from_pretrained(folder)` and `save_pretrained(folder)` come from huggingface_hub
    (safetensors and JSON).

    Args:
        concepts, vendors, tones: the names of the classes of each head.
    """

    def __init__(
        self, concepts: Sequence[str], vendors: Sequence[str], tones: Sequence[str]
    ) -> None:
        super().__init__()
        self.names = (list(concepts), list(vendors), list(tones))
        widths = (3, 24, 48, 96, 128)
        blocks: list[nn.Module] = []
        for width, wider in pairwise(widths):
            blocks += [
                nn.Conv2d(width, wider, 3, padding=1),
                nn.GroupNorm(8, wider),
                nn.SiLU(),
                nn.Conv2d(wider, wider, 3, stride=2, padding=1),
                nn.GroupNorm(8, wider),
                nn.SiLU(),
            ]
        self.body = nn.Sequential(
            *blocks, nn.Flatten(), nn.Linear(128 * 4 * 4, 128), nn.LayerNorm(128), nn.SiLU()
        )
        self.heads = nn.ModuleList(nn.Linear(128, len(names)) for names in self.names)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """(n, 3, 64, 64) in [-1, 1] to the three heads' logits, (n, classes) each."""
        features = self.body(pixels)
        return [head(features) for head in self.heads]

    @torch.no_grad()
    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """Features of n pictures: (n, 128) float32."""
        return torch.cat([self.body(part) for part in self._pixels(images).split(256)])

    @torch.no_grad()
    def looks(self, images: Sequence[Image.Image]) -> Looks:
        """The most likely concept, vendor and tone of each of n pictures."""
        logits = [self(part) for part in self._pixels(images).split(256)]
        best = (torch.cat(head).argmax(1).tolist() for head in zip(*logits, strict=True))
        return Looks(
            *([names[i] for i in row] for names, row in zip(self.names, best, strict=True))
        )

    def _pixels(self, images: Sequence[Image.Image]) -> Tensor:
        stacked = torch.stack([probe_pixels(image) for image in images])
        return stacked.to(next(self.parameters()))


def probe_pixels(image: Image.Image) -> Tensor:
    """A picture as the probe wants it: (3, 64, 64) in [-1, 1]."""
    array = np.array(image.convert("RGB").resize((64, 64)))
    return torch.from_numpy(array).permute(2, 0, 1) / 127.5 - 1


def load_probe(folder: str | Path) -> Probe:
    """The probe in a folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: its weights are damaged.
    """
    if not Path(folder, "config.json").is_file():
        raise FileNotFoundError(
            f"there is no probe in {folder or '(no folder)'}: it has no config.json"
        )
    try:
        with redirect_stdout(None):  # huggingface_hub prints that it loads
            return Probe.from_pretrained(folder)
    except SafetensorError as error:
        raise ValueError(f"the weights in {folder} are damaged: {error}") from None
