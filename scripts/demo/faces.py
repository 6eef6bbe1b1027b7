"""The faces demo's images: portraits of the style Open Peeps, with their attributes, and captions.

Every image is drawn from a value of each attribute, so what a caption leaves open is known exactly.
The artwork is CC0; the packages `dicebear-core` and `dicebear-styles` compose it, `resvg-py` makes
pixels of it.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import compress
from typing import Any
from zlib import crc32

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.checks import optional_import
from vendi_guidance.features.probe import Look

SIZE = 128  # pixels
CONCEPT = "portrait"
CAPTION = (
    "{concept}, {hair}, {hair colour} hair, {skin} skin, {glasses}, {expression}, "
    "{clothes} clothes, {background} background"
)

_HAIR = {  # those whose colour can be chosen
    "short hair": "grayShort",
    "fringe": "bangs",
    "bun": "grayBun",
    "chignon": "grayMedium",
    "curls": "mediumBangs2",
    "mohawk": "mohawk",
    "spikes": "mohawk2",
    "quiff": "short4",
}
HAIR_COLOURS = {
    "brown": "#724133",
    "black": "#2c1b18",
    "blonde": "#d6b370",
    "red": "#c93305",
    "white": "#e8e1e1",
}
SKINS = {"light": "#ffdbb4", "tan": "#d08b5b", "brown": "#ae5d29", "dark": "#694d3d"}
_GLASSES = {
    "no glasses": None,
    "glasses": "glasses3",
    "sunglasses": "sunglasses",
    "eyepatch": "eyepatch",
}
_EXPRESSIONS = {"smiling": "smile", "grinning": "smileBig", "amazed": "fear", "cross": "veryAngry"}
_CLOTHES = {
    "blue": "#8fa7df",
    "red": "#e78276",
    "yellow": "#fdea6b",
    "green": "#78e185",
    "pink": "#e279c7",
}
BACKGROUNDS = {
    "white": "#ffffff",
    "pink": "#ffc4d0",
    "blue": "#a9dcf5",
    "green": "#c4ecb4",
    "violet": "#b9a5e0",
}
ATTRIBUTES = {
    "hair": tuple(_HAIR),
    "hair colour": tuple(HAIR_COLOURS),
    "skin": tuple(SKINS),
    "glasses": tuple(_GLASSES),
    "expression": tuple(_EXPRESSIONS),
    "clothes": tuple(_CLOTHES),
    "background": tuple(BACKGROUNDS),
}
"""Attribute -> values, the most common one first."""

COUNTS = [len(values) for values in ATTRIBUTES.values()]

# Where a caption leaves them open, looks are as unbalanced as on the web: a model trained on them
# repeats itself, as real models do.
ALIKE = 0.8  # share of images all of whose open attributes have their most common value
COMMON = 0.4  # share of that value among the others; the rest is even
NAMED = (0.2, 0.3, 0.3, 0.2)  # shares of captions that name 0, 1, 2 and 3 attributes
EMPTY = 0.1  # share of empty captions, for classifier-free guidance


@dataclass(frozen=True)
class Faces:
    """Portraits to train with.

    Attributes:
        kinds: (looks, attributes) indices of the values of each combination that occurs.
        shown: (n,) the row of `kinds` that an image shows.
        named: (n, attributes) bool: what its caption names.
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
        """(looks, 1 + attributes) indices: of the concept, always 0, and of the values."""
        return torch.from_numpy(np.insert(self.kinds, 0, 0, axis=1))

    def draw(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, 1) rows of `images`, and captions."""
        chosen = rng.integers(len(self.shown), size=count)
        empty = rng.random(count) < EMPTY
        captions = [
            "" if nothing else caption(values_of(self.kinds[self.shown[i]]), self.named[i])
            for i, nothing in zip(chosen, empty, strict=True)
        ]
        return self.shown[chosen, None], captions


def draw_faces(count: int, seed: int) -> Faces:
    """`count` training images: what a caption names is even, what it leaves open is not."""
    rng = np.random.default_rng(seed)
    kinds: list[np.ndarray] = []
    named: list[np.ndarray] = []
    while len(kinds) < count:
        names = rng.permutation(len(COUNTS)) < rng.choice(len(NAMED), p=NAMED)
        even = rng.integers(COUNTS)
        common = rng.random() < ALIKE or rng.random(len(COUNTS)) < COMMON
        kind = np.where(~names & common, 0, even)
        if not is_held_out(kind):
            kinds.append(kind)
            named.append(names)
    looks, shown = np.unique(np.stack(kinds), axis=0, return_inverse=True)
    return Faces(looks, shown.flatten(), np.stack(named))


def open_shares() -> list[tuple[float, list[list[float]]]]:
    """The kinds of training images: each one's share, and the shares of values of what captions
    leave open; but for the looks that are held out."""

    def with_common(share: float) -> list[list[float]]:
        even = [(1 - share) / size for size in COUNTS]
        return [[share + p, *[p] * (n - 1)] for p, n in zip(even, COUNTS, strict=True)]

    return [(ALIKE, with_common(1.0)), (1 - ALIKE, with_common(COMMON))]


def draw_held_out(count: int, seed: int) -> Faces:
    """`count` combinations that no training has seen, all values even."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(COUNTS, size=(20 * count, len(COUNTS)))
    held_out = np.stack([kind for kind in kinds if is_held_out(kind)][:count])
    return Faces(held_out, np.arange(count), np.zeros(held_out.shape, dtype=bool))


def is_held_out(kind: Sequence[int] | np.ndarray) -> bool:
    """A tenth of all combinations is, but not the most common one."""
    return any(kind) and crc32(bytes(int(i) for i in kind)) % 10 == 0


def values_of(kind: Sequence[int] | np.ndarray) -> Look:
    """The names of a combination."""
    return tuple(values[i] for values, i in zip(ATTRIBUTES.values(), kind, strict=True))


def caption(look: Look, named: Sequence[bool] | np.ndarray) -> str:
    """The words for what is named of a look: "portrait, bun, red hair"."""
    parts = CAPTION.removeprefix("{concept}, ").split(", ")
    words = [
        part.format(**{name: value})
        for part, name, value in zip(parts, ATTRIBUTES, look, strict=True)
    ]
    return ", ".join([CONCEPT, *compress(words, named)])


def pixels(look: Look) -> np.ndarray:
    """The portrait with these values: (3, 128, 128) uint8."""
    resvg = _needed("resvg_py")
    hair, colour, skin, glasses, expression, clothes, background = look
    worn = _GLASSES[glasses]
    options = {
        "seed": "",
        "size": SIZE,
        "headVariant": [_HAIR[hair]],
        "headContrastColor": [HAIR_COLOURS[colour]],
        "skinColor": [SKINS[skin]],
        "accessoriesProbability": 100 if worn else 0,
        "accessoriesVariant": [worn or "glasses"],
        "expressionVariant": [_EXPRESSIONS[expression]],
        "clothingColor": [_CLOTHES[clothes]],
        "backgroundColor": [BACKGROUNDS[background]],
        "facialHairProbability": 0,
        "maskProbability": 0,
    }
    drawing = _needed("dicebear").Avatar(_style(), options).to_string()
    encoded = resvg.svg_to_bytes(svg_string=drawing, width=SIZE, height=SIZE)
    with Image.open(io.BytesIO(bytes(encoded))) as opened:
        return np.asarray(opened.convert("RGB")).transpose(2, 0, 1)


def _needed(module: str) -> Any:
    return optional_import(module, module, "drawing the faces", "dev")


@cache
def _style() -> Any:
    definition = files("dicebear_styles").joinpath("open-peeps.json").read_text("utf-8")
    return _needed("dicebear").Style(json.loads(definition))
