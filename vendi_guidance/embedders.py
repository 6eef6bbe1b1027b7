"""Pictures to features.

`Probe` is the demo's embedder and its ground truth: a small classifier of emoji pictures that
says which concept, which vendor and which skin tone, and whose last hidden layer is the feature.
`TextEmbedder` gives the features of prompts that an SDXL itself is conditioned on.
"""

from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from typing import NamedTuple

import numpy as np
import torch
from huggingface_hub import PyTorchModelHubMixin
from PIL import Image
from torch import Tensor, nn
from transformers import CLIPTextModelWithProjection, CLIPTokenizer


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
        arrays = [np.asarray(image.convert("RGB").resize((64, 64))) for image in images]
        stacked = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)
        return stacked.to(next(self.parameters())) / 127.5 - 1


class TextEmbedder:
    """Prompt features: the pooled embedding of an SDXL's second text encoder, at unit length.

    Args:
        tokenizer, encoder: the SDXL's `tokenizer_2` and `text_encoder_2`. Words beyond the
            tokenizer's limit are not seen, as the SDXL does not see them.
    """

    def __init__(self, tokenizer: CLIPTokenizer, encoder: CLIPTextModelWithProjection) -> None:
        self.tokenizer = tokenizer
        self.encoder = encoder.eval()

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str]) -> "TextEmbedder":
        """Those of an SDXL that `save_pretrained` wrote, in single precision."""
        return cls(
            CLIPTokenizer.from_pretrained(folder, subfolder="tokenizer_2"),
            CLIPTextModelWithProjection.from_pretrained(
                folder, subfolder="text_encoder_2", use_safetensors=True, dtype=torch.float32
            ),
        )

    @torch.no_grad()
    def embed(self, prompts: Sequence[str]) -> Tensor:
        """Features of n prompts: (n, m) float32, of unit length."""
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
        tokens = self.tokenizer(
            list(places), padding="max_length", truncation=True, return_tensors="pt"
        )
        parts = tokens.input_ids.to(self.encoder.device).split(256)
        distinct = torch.cat([self.encoder(part).text_embeds.float() for part in parts])
        return nn.functional.normalize(distinct, dim=1)[[places[prompt] for prompt in prompts]]
