"""The photographs demo's images: products of a shop, with their type, colour and wearer.

Fashion Product Images (Small) has about 44,000 catalogue photographs of 60x80 pixels by P. Aggarwal
(https://www.kaggle.com/datasets/paramaggarwal/fashion-product-images-small). They are read from
parquet files, as the hub's copy `ashraq/fashion-product-images-small` has them.
"""

import io
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from PIL import Image, ImageOps
from pyarrow import parquet
from torch import Tensor
from tqdm import tqdm

SIZE = 80  # pixels
NAMED = 0.5  # share of captions that name the colour; independently, the wearer
EMPTY = 0.1  # share of empty captions, for classifier-free guidance
HELD_OUT = 20, 7  # photographs whose number leaves this remainder are not trained on

CAPTION = "a photo of a {colour} {whose} {concept}"

DATA: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
TYPES, WHOSE = DATA["types"], DATA["whose"]
"""Type and wearer in captions -> the shop's names of them."""

COLOURS: dict[str, list[str]] = DATA["colours"]
"""Group -> the shop's names in it."""

FOR_WOMEN, FOR_MEN = DATA["mostly"]["women's"], DATA["mostly"]["men's"]
"""Types whose photographs are nearly all of one wearer's."""


@dataclass(frozen=True)
class Photos:
    """Photographs whose type, colour and wearer are known.

    Attributes:
        images: (n, 3, 80, 80) uint8.
        looks: (n, 3) indices of type (`TYPES`), group of colours (`COLOURS`) and wearer (`WHOSE`).
        colours: the shop's name of each one's colour.
        numbers: (n,) the data set's number of each.
    """

    images: Tensor
    looks: Tensor
    colours: Sequence[str]
    numbers: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def split(self) -> tuple["Photos", "Photos"]:
        """The photographs to train on, and those that are held out."""
        period, remainder = HELD_OUT
        is_held_out = self.numbers % period == remainder
        return self.of(~is_held_out), self.of(is_held_out)

    def with_images(self, images: Tensor) -> "Photos":
        """The same with other (n, 3, 80, 80) images, such as reconstructed ones."""
        return Photos(images, self.looks, self.colours, self.numbers)

    @property
    def captions(self) -> list[str]:
        """The full caption of each."""
        return [self.caption_of(row, True, True) for row in range(len(self))]

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, 1) rows and their captions."""
        rows = rng.integers(len(self), size=count)
        named, empty = rng.random((2, count)) < NAMED, rng.random(count) < EMPTY
        flags = zip(rows, *named, empty, strict=True)
        return rows[:, None], ["" if no else self.caption_of(row, *two) for row, *two, no in flags]

    def caption_of(self, row: int, names_colour: bool, names_whose: bool) -> str:
        """The caption of one, which names its type."""
        kind, _, whose = self.looks[row].tolist()
        return caption(
            [*TYPES][kind],
            self.colours[row].lower() if names_colour else None,
            [*WHOSE][whose] if names_whose else None,
        )

    def of(self, chosen: Tensor) -> "Photos":
        """Those for which an (n,) mask is True."""
        rows = chosen.nonzero().flatten().tolist()
        colours = [self.colours[row] for row in rows]
        return Photos(self.images[rows], self.looks[rows], colours, self.numbers[rows])


def caption(kind: str, colour: str | None = None, whose: str | None = None) -> str:
    """The caption of a look: "a photo of a navy blue men's shirt"."""
    return " ".join(CAPTION.format(colour=colour or "", whose=whose or "", concept=kind).split())


def sample_captions(count: int, rng: np.random.Generator) -> list[str]:
    """`count` captions with all types, colour groups and usual wearers, without photographs."""
    captions = []
    for kind in rng.choice([*TYPES], size=count):
        usual = ["women's"] * (kind not in FOR_MEN) + ["men's"] * (kind not in FOR_WOMEN)
        names_colour, names_whose = rng.random(2) < NAMED
        colour = rng.choice([*COLOURS]) if names_colour else None
        captions.append(caption(kind, colour, rng.choice(usual) if names_whose else None))
    return captions


def read_photos(folder: Path) -> Photos:
    """Read the photographs of the types, colours and wearers above from a folder's parquet files.

    Raises:
        click.UsageError: there are no parquet files, they lack a column, or no photograph is known.
    """
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise click.UsageError(
            f"there are no parquet files in {folder}: fetch them with hf download "
            f"ashraq/fashion-product-images-small --repo-type dataset --local-dir {folder}"
        )
    columns = ["id", "image", "gender", "articleType", "baseColour"]
    images: list[np.ndarray] = []
    looks, colours, numbers = [], [], []
    for file in tqdm(files, desc="photographs", unit="file"):
        missing = {*columns} - {*parquet.read_schema(file).names}
        if missing:
            raise click.UsageError(f"{file} has no column {', '.join(sorted(missing))}")
        for one in parquet.read_table(file, columns=columns).to_pylist():
            look = look_of(one)
            if look is not None:
                images.append(read_image(one["image"]["bytes"]))
                looks.append(look)
                colours.append(one["baseColour"])
                numbers.append(int(one["id"]))
    if not images:
        raise click.UsageError(f"no photograph in {folder} has a known type, colour and wearer")
    return Photos(
        torch.from_numpy(np.stack(images)), torch.tensor(looks), colours, torch.tensor(numbers)
    )


def look_of(one: dict[str, Any]) -> list[int] | None:
    """Indices of a record's type, group of colours and wearer; None if one is unknown."""
    groups = [one["baseColour"] in names for names in COLOURS.values()]
    if one["articleType"] not in TYPES.values() or one["gender"] not in WHOSE.values():
        return None
    if True not in groups:
        return None
    kind, whose = [*TYPES.values()].index(one["articleType"]), [*WHOSE.values()]
    return [kind, groups.index(True), whose.index(one["gender"])]


def read_image(content: bytes) -> np.ndarray:
    """(3, 80, 80) uint8, on white."""
    with Image.open(io.BytesIO(content)) as opened:
        square = ImageOps.pad(opened.convert("RGB"), (SIZE, SIZE), color="white")
    return np.asarray(square).transpose(2, 0, 1)
