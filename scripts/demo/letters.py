"""The flow demo's images: letters in typefaces, with their class, weight and slant, and captions.

Every image has a known (letter, class, weight, slant) and family, including what its caption leaves
open. The typefaces come from npm's `@fontsource` packages, all under the SIL Open Font License 1.1;
the class of a family is its category in Google Fonts.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from scripts.demo.packages import fetch_package
from scripts.demo.sheets import SIZE, read_sheet, write_sheets
from vendi_guidance.features.probe import Look

INK = 56  # pixels: height and width that all letters of a typeface fit in
CONCEPTS = tuple(f"letter {letter}" for letter in string.ascii_lowercase)
ATTRIBUTES = {
    "class": ("serif", "sans-serif", "monospaced", "handwriting", "display"),
    "weight": ("regular", "bold"),
    "slant": ("upright", "italic"),
}
CAPTION = "{concept}, {class}, {weight}, {slant}"

# Looks that captions leave open are as unbalanced as on the web, so that a model trained on them
# repeats itself as real models do.
SHARES = {"class": (0.20, 0.60, 0.08, 0.06, 0.06), "weight": (0.8, 0.2), "slant": (0.9, 0.1)}
NAMED = 0.5  # share of captions that name an attribute, independently for each
EMPTY = 0.1  # share of empty captions, for classifier-free guidance


def _versioned(names: str, version: str = "5.3.0") -> tuple[str, ...]:
    return tuple(name if "@" in name else f"{name}@{version}" for name in names.split())


FAMILIES = {
    "serif": _versioned("eb-garamond libre-baskerville playfair-display pt-serif vollkorn"),
    "sans-serif": _versioned("fira-sans lato montserrat open-sans source-sans-3@5.3.1"),
    "monospaced": _versioned("anonymous-pro courier-prime ibm-plex-mono victor-mono"),
    "handwriting": _versioned("caveat dancing-script gaegu kalam mali shantell-sans"),
    "display": _versioned("grandstander grenze-gotisch lobster-two orbitron pixelify-sans tourney"),
}
"""Class -> families, each with its package's version."""

SLANTED = ("caveat", "dancing-script", "kalam")
"""Handwriting that has no italics but slants anyway: its images count as italic."""

HELD_OUT = ("pt-serif", "open-sans", "ibm-plex-mono", "mali", "grandstander")
"""Families that neither the flow model nor the probe is trained on; they test the probe."""

SHEET_FACES = "faces.txt"
STEP = 17  # between the 16 shades of grey that are stored

_WEIGHTS, _SLANTS = ("400", "700"), ("normal", "italic")  # in file names


@dataclass(frozen=True)
class Letters:
    """Images of letters in some faces; a face is a family in one weight and slant.

    Attributes:
        families: the family of each face.
        kinds: (faces, 3) indices (class, weight, slant) of each face.
        pixels: (letters, faces, 64, 64) uint8, black on white.
    """

    families: tuple[str, ...]
    kinds: np.ndarray
    pixels: Tensor

    def select(self, faces: np.ndarray) -> "Letters":
        """The images of the faces that a (faces,) bool mask selects."""
        names = tuple(compress(self.families, faces))
        return Letters(names, self.kinds[faces], self.pixels[:, torch.from_numpy(faces)])

    @property
    def held_out(self) -> np.ndarray:
        """(faces,) bool: whether the family is held out of training."""
        return np.isin(self.families, HELD_OUT)

    @property
    def images(self) -> Tensor:
        """(letters * faces, 3, 64, 64) uint8: all images, ordered by letter, then by face."""
        return self.pixels.flatten(0, 1)[:, None].expand(-1, 3, -1, -1)

    @property
    def labels(self) -> Tensor:
        """(letters * faces, 4) indices (letter, class, weight, slant) of the images."""
        letters, faces = np.indices(self.pixels.shape[:2]).reshape(2, -1)
        return torch.from_numpy(np.column_stack([letters, self.kinds[faces]]))

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, 2) indices (letter, face) and their captions."""
        letter = rng.integers(len(CONCEPTS), size=count)
        named = rng.random((count, len(ATTRIBUTES))) < NAMED
        unbalanced = [rng.choice(len(p), size=count, p=p) for p in SHARES.values()]
        uniform = [rng.integers(len(values), size=count) for values in ATTRIBUTES.values()]
        kinds = np.where(named, np.stack(uniform, axis=1), np.stack(unbalanced, axis=1))
        face = [rng.choice(np.flatnonzero((self.kinds == kind).all(axis=1))) for kind in kinds]
        empty = rng.random(count) < EMPTY
        captions = [
            "" if is_empty else caption(CONCEPTS[i], *compress(values_of(kind), is_named))
            for is_empty, i, is_named, kind in zip(empty, letter, named, kinds, strict=True)
        ]
        return np.stack([letter, face], axis=1), captions


def values_of(kind: Sequence[int]) -> Look:
    """The names of the indices (class, weight, slant)."""
    return tuple(values[i] for values, i in zip(ATTRIBUTES.values(), kind, strict=True))


def caption(concept: str, *values: str) -> str:
    """A caption that names some values of a look: "letter g, serif, bold, italic"."""
    return ", ".join([concept, *values])


def fetch(folder: Path) -> None:
    """Unpack the npm packages that are missing under `folder`, one sub-folder per family."""
    for families in FAMILIES.values():
        for family in families:
            fetch_package(f"@fontsource/{family}", folder / family.split("@")[0])


def load(folder: Path) -> Letters:
    """Draw the letters of all faces. `folder` contains the packages, as `fetch` leaves them."""
    names: list[str] = []
    kinds: list[tuple[int, ...]] = []
    pixels: list[Tensor] = []
    for group, families in enumerate(FAMILIES.values()):
        for family in (family.split("@")[0] for family in families):
            files = {
                (group, weight, int(slant or family in SLANTED)): file
                for weight in range(2)
                for slant in range(2)
                if (file := _font_file(folder, family, weight, slant)).exists()
            }
            size = min(fitting_size(file) for file in files.values())
            for kind, file in files.items():
                names.append(family)
                kinds.append(kind)
                pixels.append(draw_letters(file, size))
    return Letters(tuple(names), np.array(kinds), torch.stack(pixels, dim=1))


def _font_file(folder: Path, family: str, weight: int, slant: int) -> Path:
    face = f"{family}-latin-{_WEIGHTS[weight]}-{_SLANTS[slant]}.woff"
    return folder / family / "files" / face


def _bounding_boxes(font: ImageFont.FreeTypeFont) -> np.ndarray:
    """(letters, 4): left, top, right and bottom of each letter, from the start of its baseline."""
    return np.array([font.getbbox(letter, anchor="ls") for letter in string.ascii_lowercase])


def fitting_size(file: Path) -> int:
    """The largest font size at which all letters on one baseline fit in `INK` x `INK` pixels."""
    left, top, right, bottom = _bounding_boxes(ImageFont.truetype(file, 1_000)).T
    return int(1_000 * INK / max(bottom.max() - top.min(), (right - left).max()))


def draw_letters(file: Path, size: int) -> Tensor:
    """(letters, 64, 64) uint8: each letter is centred horizontally, all together vertically."""
    font = ImageFont.truetype(file, size)
    boxes = _bounding_boxes(font)
    baseline = (SIZE - boxes[:, 1].min() - boxes[:, 3].max()) / 2
    pages = []
    for letter, (left, _, right, _) in zip(string.ascii_lowercase, boxes, strict=True):
        page = Image.new("L", (SIZE, SIZE), 255)
        place = (round((SIZE - left - right) / 2), round(baseline))
        ImageDraw.Draw(page).text(place, letter, fill=0, font=font, anchor="ls")
        pages.append(np.array(page))
    return torch.from_numpy(np.stack(pages))


def save_sheets(letters: Letters, folder: Path) -> None:
    """Write one WebP per class, with a row per letter and a column per face, and a text file with
    the faces ("gelasio, serif, bold, italic"). 16 shades make the files a third smaller."""
    images = letters.images.unflatten(0, letters.pixels.shape[:2])
    images = ((images / STEP).round() * STEP).to(torch.uint8)
    sheets = {
        name: images[:, torch.from_numpy(letters.kinds[:, 0] == group)]
        for group, name in enumerate(ATTRIBUTES["class"])
    }
    looks = map(values_of, letters.kinds)
    faces = [caption(family, *look) for family, look in zip(letters.families, looks, strict=True)]
    write_sheets(folder, sheets, SHEET_FACES, faces)


def load_sheets(folder: Path) -> Letters:
    """Read what `save_sheets` wrote.

    Raises:
        ValueError: a sheet cannot be read, its size does not match the list of faces, or a face has
            an unknown look.
        FileNotFoundError: a file is missing.
    """
    names = folder / SHEET_FACES
    lines = names.read_text(encoding="utf-8").splitlines()
    families, kinds = zip(*(_face(line, names) for line in lines), strict=True)
    sheets = [
        read_sheet(folder / f"{name}.webp", len(CONCEPTS), [kind[0] for kind in kinds].count(group))
        for group, name in enumerate(ATTRIBUTES["class"])
    ]
    return Letters(families, np.array(kinds), torch.cat(sheets, dim=1)[:, :, 0])


def _face(line: str, file: Path) -> tuple[str, tuple[int, ...]]:
    """A family and its (class, weight, slant), parsed from a line of `SHEET_FACES`."""
    family, *look = line.split(", ")
    for kind in np.ndindex(*map(len, ATTRIBUTES.values())):
        if list(values_of(kind)) == look:
            return family, kind
    raise ValueError(f"{file}: {line!r} is no face such as 'gelasio, serif, bold, italic'")


@click.command(context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/letters", help="Typefaces.")
@click.option("--output", type=click.Path(path_type=Path), default="assets/demo-letters")
def main(data: Path, output: Path) -> None:
    """Write the training images, one sheet per class. Fetches missing npm packages."""
    fetch(data)
    letters = load(data)
    letters = letters.select(~letters.held_out)
    save_sheets(letters, output)
    click.echo(f"{len(letters.families)} faces of {len(CONCEPTS)} letters in {output}")


if __name__ == "__main__":
    main()
