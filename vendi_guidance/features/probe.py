"""The demo's embedder and labeler: a classifier of the concept, vendor and skin tone of emoji.

Its last hidden layer is the feature.
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

from vendi_guidance.features.base import Labels
from vendi_guidance.features.network import digest_of


class Looks(NamedTuple):
    """What the probe predicts for n images: names, one per image."""

    concepts: list[str]
    vendors: list[str]
    tones: list[str]

    def labels(self, asked: Sequence[str | None]) -> Labels:
        """Concepts as labels, (vendor, tone) pairs as variants, of images asked for as `asked`."""
        return Labels(asked, self.concepts, list(zip(self.vendors, self.tones, strict=True)))


class Probe(nn.Module, PyTorchModelHubMixin):
    """A convolutional classifier of 64x64 emoji with three heads, saved and loaded by
    huggingface_hub's `save_pretrained` and `from_pretrained` (safetensors and JSON).

    Args:
        concepts, vendors, tones: the names of the classes of each head.
    """

    def __init__(
        self, concepts: Sequence[str], vendors: Sequence[str], tones: Sequence[str]
    ) -> None:
        super().__init__()
        self.names = (list(concepts), list(vendors), list(tones))
        blocks: list[nn.Module] = []
        for width, wider in pairwise((3, 24, 48, 96, 128)):
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
        """Features of n images: (n, 128) float32."""
        pixels = torch.stack([probe_pixels(image) for image in images]).to(next(self.parameters()))
        return torch.cat([self.body(part) for part in pixels.split(256)])

    def looks(self, images: Sequence[Image.Image]) -> Looks:
        """The most likely concept, vendor and tone of each of n images."""
        return self.looks_of(self.embed(images))

    @torch.no_grad()
    def looks_of(self, features: Tensor) -> Looks:
        """The same from the images' features: (n, 128), as `embed` gives them."""
        best = (head(features).argmax(1).tolist() for head in self.heads)
        pairs = zip(self.names, best, strict=True)
        return Looks._make([names[i] for i in row] for names, row in pairs)

    def asked(self, prompts: Sequence[str]) -> list["Asked | None"]:
        """What each of n prompts names, in any case: "waving hand, dark skin tone, fluent style";
        None where the probe does not know the concept, before the first comma."""
        return [self._asked(prompt) for prompt in prompts]

    def _asked(self, prompt: str) -> "Asked | None":
        concepts, vendors, tones = ({name.casefold(): name for name in of} for of in self.names)
        concept, *rest = (part.strip().casefold() for part in prompt.split(","))
        if concept not in concepts:
            return None
        styles = [vendors.get(part.removesuffix(" style")) for part in rest]
        skins = [tones.get(part.removesuffix(" skin tone")) for part in rest]
        return Asked(
            concepts[concept], next(filter(None, styles), None), next(filter(None, skins), None)
        )


class Asked(NamedTuple):
    """What a prompt names: a concept, and perhaps its vendor and tone."""

    concept: str
    vendor: str | None = None
    tone: str | None = None

    def seen_in(self, concept: str, vendor: str, tone: str) -> "Asked":
        """What an image shows of what the prompt names."""
        return Asked(concept, self.vendor and vendor, self.tone and tone)

    def __str__(self) -> str:
        tone, vendor = f"{self.tone} skin tone", f"{self.vendor} style"
        return ", ".join([self.concept, *[tone] * bool(self.tone), *[vendor] * bool(self.vendor)])


class ProbeLabeler:
    """Labels by a probe (see `Labeler`): an image is right if it shows all that its prompt names,
    and its variant is its vendor and tone. `sha256` is that of the network whose features
    `from_features` takes, as embedders' settings have it."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.sha256 = digest_of(probe.body)

    def __call__(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> Labels:
        return self.from_features(self.probe.embed(images), prompts)

    def from_features(self, features: Tensor, prompts: Sequence[str]) -> Labels:
        """The same from the images' features: (n, 128), by the probe's own network."""
        asked, looks = self.probe.asked(prompts), self.probe.looks_of(features)
        shown = [
            str((one or Asked(concept)).seen_in(concept, vendor, tone))
            for one, concept, vendor, tone in zip(asked, *looks, strict=True)
        ]
        variants = list(zip(looks.vendors, looks.tones, strict=True))
        return Labels([one and str(one) for one in asked], shown, variants)


def probe_pixels(image: Image.Image) -> Tensor:
    """An image as the probe's input: (3, 64, 64) in [-1, 1]."""
    array = np.array(image.convert("RGB").resize((64, 64)))
    return torch.from_numpy(array).permute(2, 0, 1) / 127.5 - 1


def load_probe(folder: str | Path) -> Probe:
    """The probe in a folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: its weights are damaged.
    """
    if not Path(folder, "config.json").is_file():
        where = folder or "(no folder)"
        raise FileNotFoundError(f"there is no probe in {where}: it has no config.json")
    try:
        with redirect_stdout(None):  # huggingface_hub prints that it loads
            return Probe.from_pretrained(folder)
    except SafetensorError as error:
        raise ValueError(f"the weights in {folder} are damaged: {error}") from None
