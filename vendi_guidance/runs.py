"""A generation run on disk: pictures, and one line about each.

The folder is a Hugging Face imagefolder, which `datasets.load_dataset("imagefolder", data_dir=...)`
reads as it is: `metadata.jsonl` holds `file_name`, `prompt` and whatever else is known about a
picture. Pictures are named by their number, never by their prompt. What never comes out the same
twice, the seconds each took, stands beside it in `timings.jsonl`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vendi_guidance.files import read_rows, whole_file
from vendi_guidance.pictures import open_picture

METADATA = "metadata.jsonl"
TIMINGS = "timings.jsonl"


@dataclass(frozen=True)
class Run:
    """A run read back.

    Attributes:
        folder: where it lies.
        rows: what `metadata.jsonl` says, one dict a picture; "seconds" too where they are known.
        images: the n pictures, in the same order.
    """

    folder: Path
    rows: list[dict[str, Any]]
    images: list[Image.Image]

    @property
    def prompts(self) -> list[str]:
        """The n prompts, in the order of the pictures."""
        return [row["prompt"] for row in self.rows]


def picture_name(number: int) -> str:
    return f"{number:06d}.png"


def save_picture(path: Path, image: Image.Image, about: dict[str, Any] | None = None) -> None:
    """Write a PNG, whole or not at all.

    Args:
        about: JSON values to write into it, each a text chunk (iTXt) of that name.
    """
    texts = PngInfo()
    for name, value in (about or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        # a file's name may hold what is no character
        texts.add_itxt(name, text.encode("utf-8", "replace").decode())
    with whole_file(path) as temporary:
        image.save(temporary, format="PNG", pnginfo=texts)


def remove_pictures(folder: Path) -> None:
    """Delete the pictures and metadata of a run; other files in its folder stay."""
    (folder / METADATA).unlink(missing_ok=True)  # first, so that it never names a missing picture
    (folder / TIMINGS).unlink(missing_ok=True)
    for picture in folder.glob("*.png"):
        if picture.stem.isdecimal():
            picture.unlink()


def read_run(folder: Path) -> Run:
    """Read a run back, all its pictures into memory. A torn last line of metadata is left out.

    Raises:
        ValueError: the folder holds no run, or a line or a picture that cannot be read, or a line
            names a file outside; the message names it.
        FileNotFoundError: the folder, its `metadata.jsonl` or a picture is missing.
    """
    metadata = folder / METADATA
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not metadata.is_file():
        raise FileNotFoundError(
            f"{folder} holds no {METADATA}: give a folder that scripts/generate.py wrote"
        )
    seconds = read_timings(folder / TIMINGS)
    rows, paths = [], []
    for place, row in read_rows(metadata, torn_end=True):
        for key in ("file_name", "prompt"):
            if not isinstance(row.get(key), str):
                raise ValueError(f"{place} has no text under the key {key!r}")
        name = row["file_name"]
        paths.append(inside(folder, name, place))
        rows.append({"seconds": seconds[name]} | row if name in seconds else row)
    if not rows:
        raise ValueError(f"{metadata} is empty: the run has no pictures")
    return Run(folder, rows, [_read_image(path) for path in paths])


def read_timings(path: Path) -> dict[str, float]:
    """Seconds by picture; of two lines about one picture the later holds."""
    if not path.is_file():
        return {}
    rows = [row for _, row in read_rows(path, torn_end=True)]
    return {
        row["file_name"]: row["seconds"]
        for row in rows
        if isinstance(row.get("file_name"), str) and isinstance(row.get("seconds"), int | float)
    }


def inside(folder: Path, name: str, place: str) -> Path:
    """The path of a picture, which must not lead out of the folder, links followed."""
    path = folder / name
    # NUL would end the name for the system
    if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{place} names {name!r}, which does not lie in {folder}")
    return path


def _read_image(path: Path) -> Image.Image:
    if not path.is_file():
        raise FileNotFoundError(f"the picture {path} is missing, though {METADATA} names it")
    try:
        return open_picture(path)
    except ValueError as error:
        raise ValueError(f"the picture {path} cannot be read: {error}") from None
