"""The demo model's images: emoji artwork of three vendors, with names, tones and captions.

Every image has a known (concept, vendor, tone), including what its caption leaves open. The images
are in assets/demo-pictures, whose README has their sources and licences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.evaluation.embedding import IMAGE_SIGMAS, PROMPT_SIGMAS
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.images import open_image

SIZE = 64  # pixels

VENDORS = ("noto", "twemoji", "fluent")
TONES = ("yellow", "light", "medium-light", "medium", "medium-dark", "dark")
# Looks that captions leave open are as unbalanced as on the web, so that a model trained on them
# repeats itself as real models do.
VENDOR_SHARES = (0.60, 0.25, 0.15)
TONE_SHARES = (0.60, 0.08, 0.08, 0.08, 0.08, 0.08)
NAMED = 0.3  # share of captions that name the tone; independently, the vendor
EMPTY = 0.1  # share of empty captions, for classifier-free guidance

CAPTION = "{concept}, {tone} skin tone, {vendor} style"

KERNELS = Gaussian(IMAGE_SIGMAS["probe"]), Gaussian(PROMPT_SIGMAS["sdxl"])
"""Kernels on the probe's image features and the demo model's prompt features, as in `evaluate`."""


@dataclass(frozen=True)
class Emoji:
    """The images of all looks of some concepts.

    Attributes:
        concepts: prompt-ready names, such as "waving hand".
        pixels: (concepts, vendors, tones, 3, 64, 64) uint8, on white.
    """

    concepts: tuple[str, ...]
    pixels: Tensor

    @property
    def captions(self) -> list[str]:
        """The full caption of each look."""
        return [caption(c, v, t) for c in self.concepts for v in VENDORS for t in TONES]

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, 3) indices (concept, vendor, tone) and their captions."""
        concept = rng.integers(len(self.concepts), size=count)
        named = rng.random((2, count)) < NAMED
        vendor = np.where(
            named[0], rng.integers(3, size=count), rng.choice(3, size=count, p=VENDOR_SHARES)
        )
        tone = np.where(
            named[1], rng.integers(6, size=count), rng.choice(6, size=count, p=TONE_SHARES)
        )
        empty = rng.random(count) < EMPTY
        looks = np.stack([concept, vendor, tone], axis=1)
        captions = [""] * count
        for row in np.flatnonzero(~empty):
            style = VENDORS[vendor[row]] if named[0, row] else None
            skin = TONES[tone[row]] if named[1, row] else None
            captions[row] = caption(self.concepts[concept[row]], style, skin)
        return looks, captions

    def images(self, concepts: Sequence[str]) -> list[Image.Image]:
        """An image of every look of these concepts, ordered by concept, vendor and tone."""
        rows = [self.concepts.index(concept) for concept in concepts]
        looks = self.pixels[rows].flatten(0, 2).permute(0, 2, 3, 1)
        return [Image.fromarray(look.numpy()) for look in looks]


def caption(concept: str, vendor: str | None = None, tone: str | None = None) -> str:
    """The caption of a look: "waving hand, dark skin tone, fluent style"."""
    named = [tone and f"{tone} skin tone", vendor and f"{vendor} style"]
    return ", ".join([concept, *filter(None, named)])


SHEET_CONCEPTS = "concepts.txt"


def load_sheets(folder: Path) -> Emoji:
    """Read the sheets: one per vendor, with a row per concept and a column per tone.

    Raises:
        ValueError: a sheet cannot be read, or its size does not match the list of concepts.
        FileNotFoundError: a file is missing.
    """
    concepts = tuple((folder / SHEET_CONCEPTS).read_text(encoding="utf-8").splitlines())
    looks = [_read_sheet(folder / f"{vendor}.webp", len(concepts)) for vendor in VENDORS]
    return Emoji(concepts, torch.stack(looks, dim=1))


def _read_sheet(file: Path, rows: int) -> Tensor:
    """(rows, tones, 3, 64, 64) uint8."""
    try:
        sheet = torch.from_numpy(np.array(open_image(file)))
    except ValueError as error:
        raise ValueError(f"the training images {file} cannot be read: {error}") from None
    expected = (rows * SIZE, len(TONES) * SIZE, 3)
    if sheet.shape != expected:
        height, width = sheet.shape[:2]
        raise ValueError(
            f"{file} has {width}x{height} pixels, but {rows} rows of {len(TONES)} images need "
            f"{expected[1]}x{expected[0]}"
        )
    return sheet.view(rows, SIZE, len(TONES), SIZE, 3).permute(0, 2, 4, 1, 3).contiguous()
