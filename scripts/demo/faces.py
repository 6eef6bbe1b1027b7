"""The faces demo's images: portraits in the style Open Peeps, with their attributes and captions.

Every image is composed from known values of all attributes, including what its caption leaves open.
The artwork is CC0; `dicebear-core` and `dicebear-styles` compose it, and `resvg-py` rasterises it.
"""

import io
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import compress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.features.probe import Look
from vendi_guidance.storage.messages import optional_import

SIZE = 128  # pixels
CONCEPT = "portrait"
CAPTION = (
    "{concept}, {hair}, {hair colour} hair, {skin} skin, {glasses}, {expression}, "
    "{clothes} clothes, {background} background"
)

DRAWN: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Attribute -> value -> its name or colour in the artwork; empty for nothing."""

ATTRIBUTES = {name: tuple(values) for name, values in DRAWN.items()}
"""Attribute -> values, the most common one first."""

COUNTS = [len(values) for values in ATTRIBUTES.values()]

# Looks that captions leave open are as unbalanced as on the web, so that a model trained on them
# repeats itself as real models do.
ALIKE = 0.8  # share of images in which all open attributes have their most common value
COMMON = 0.4  # extra share of that value in the other images; the rest is uniform
NAMED = (0.2, 0.3, 0.3, 0.2)  # shares of captions that name 0, 1, 2 and 3 attributes
EMPTY = 0.1  # share of empty captions, for classifier-free guidance


@dataclass(frozen=True)
class Faces:
    """Portraits to train with.

    Attributes:
        kinds: (looks, attributes) the distinct looks, as indices of attribute values.
        shown: (n,) the row of `kinds` that each image shows.
        named: (n, attributes) bool, the attributes that its caption names.
    """

    kinds: np.ndarray
    shown: np.ndarray
    named: np.ndarray

    @property
    def images(self) -> Tensor:
        """(looks, 3, 128, 128) uint8."""
        kinds = tqdm(self.kinds, desc="portraits", unit="image")
        return torch.from_numpy(np.stack([pixels(values_of(kind)) for kind in kinds]))

    @property
    def labels(self) -> Tensor:
        """(looks, 1 + attributes) indices of the concept, which is always 0, and of the values."""
        return torch.from_numpy(np.insert(self.kinds, 0, 0, axis=1))

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count,) rows of `images` and their captions."""
        chosen = rng.integers(len(self.shown), size=count)
        empty = rng.random(count) < EMPTY
        captions = [
            "" if is_empty else caption(values_of(self.kinds[self.shown[i]]), self.named[i])
            for i, is_empty in zip(chosen, empty, strict=True)
        ]
        return self.shown[chosen], captions


def sample_faces(count: int, seed: int) -> Faces:
    """`count` training images: named attributes are uniform, the others unbalanced."""
    rng = np.random.default_rng(seed)
    kinds: list[np.ndarray] = []
    named: list[np.ndarray] = []
    while len(kinds) < count:
        is_named = rng.permutation(len(COUNTS)) < rng.choice(len(NAMED), p=NAMED)
        uniform = rng.integers(COUNTS)
        is_common = rng.random() < ALIKE or rng.random(len(COUNTS)) < COMMON
        kind = np.where(~is_named & is_common, 0, uniform)
        if not is_held_out(kind):
            kinds.append(kind)
            named.append(is_named)
    looks, shown = np.unique(np.stack(kinds), axis=0, return_inverse=True)
    return Faces(looks, shown.flatten(), np.stack(named))


def open_shares() -> list[tuple[float, list[list[float]]]]:
    """The distribution of attributes that captions leave open, as a mixture: each component's
    share, and its distribution of each attribute's values. Held-out looks are ignored."""

    def with_common(share: float) -> list[list[float]]:
        uniform = [(1 - share) / size for size in COUNTS]
        return [[share + p, *[p] * (n - 1)] for p, n in zip(uniform, COUNTS, strict=True)]

    return [(ALIKE, with_common(1.0)), (1 - ALIKE, with_common(COMMON))]


def sample_held_out(count: int, seed: int) -> Faces:
    """`count` looks that are in no training set, with all values equally likely."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(COUNTS, size=(20 * count, len(COUNTS)))
    held_out = np.stack([kind for kind in kinds if is_held_out(kind)][:count])
    return Faces(held_out, np.arange(count), np.zeros(held_out.shape, dtype=bool))


def is_held_out(kind: Sequence[int] | np.ndarray) -> bool:
    """Whether a look is kept out of training: a tenth of all are, but not the most common one."""
    return any(kind) and crc32(bytes(int(i) for i in kind)) % 10 == 0


def values_of(kind: Sequence[int] | np.ndarray) -> Look:
    """The names of a look's attribute values."""
    return tuple(values[i] for values, i in zip(ATTRIBUTES.values(), kind, strict=True))


def caption(look: Look, named: Sequence[bool] | np.ndarray) -> str:
    """A caption that names some attributes of a look: "portrait, bun, red hair"."""
    parts = CAPTION.removeprefix("{concept}, ").split(", ")
    words = [
        part.format(**{name: value})
        for part, name, value in zip(parts, ATTRIBUTES, look, strict=True)
    ]
    return ", ".join([CONCEPT, *compress(words, named)])


def pixels(look: Look) -> np.ndarray:
    """The portrait of a look: (3, 128, 128) uint8."""
    resvg = _import("resvg_py")
    hair, colour, skin, glasses, expression, clothes, background = (
        drawn[str(value)] for drawn, value in zip(DRAWN.values(), look, strict=True)
    )
    options = {
        "seed": "",
        "size": SIZE,
        "headVariant": [hair],
        "headContrastColor": [colour],
        "skinColor": [skin],
        "accessoriesProbability": 100 if glasses else 0,
        "accessoriesVariant": [glasses or "glasses"],
        "expressionVariant": [expression],
        "clothingColor": [clothes],
        "backgroundColor": [background],
        "facialHairProbability": 0,
        "maskProbability": 0,
    }
    svg = _import("dicebear").Avatar(_style(), options).to_string()
    encoded = resvg.svg_to_bytes(svg_string=svg, width=SIZE, height=SIZE)
    with Image.open(io.BytesIO(bytes(encoded))) as opened:
        return np.asarray(opened.convert("RGB")).transpose(2, 0, 1)


def _import(module: str) -> Any:
    return optional_import(module, module, "drawing the faces", "dev")


@cache
def _style() -> Any:
    definition = files("dicebear_styles").joinpath("open-peeps.json").read_text("utf-8")
    return _import("dicebear").Style(json.loads(definition))
