"""A generation run on disk: pictures, and one line about each.

The folder is a Hugging Face imagefolder, which `datasets.load_dataset("imagefolder", data_dir=...)`
reads as it is: `metadata.jsonl` holds `file_name`, `prompt` and whatever else is known about a
picture. Pictures are named by their number, never by their prompt. What never comes out the same
twice, the seconds each took, stands beside it in `timings.jsonl`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vendi_guidance.storage.files import read_rows, whole_file
from vendi_guidance.storage.images import open_picture

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
    pictures = read_metadata(folder)
    for place, _, row in pictures:
        if not isinstance(row.get("prompt"), str):
            raise ValueError(f"{place} has no text under the key 'prompt'")
    return Run(
        folder, [row for _, _, row in pictures], [_read_image(path) for _, path, _ in pictures]
    )


class Listed(NamedTuple):
    """A picture that `metadata.jsonl` names.

    Attributes:
        place: the line, for messages.
        path: where the picture is.
        row: what the line says, and "seconds" where they are known.
    """

    place: str
    path: Path
    row: dict[str, Any]


def read_metadata(folder: Path) -> list[Listed]:
    """The pictures that a folder's `metadata.jsonl` names; a torn last line is left out.

    Raises:
        ValueError: a line that cannot be read, has no `file_name` or names a file outside, or none
            at all.
        FileNotFoundError: the folder has no `metadata.jsonl`.
    """
    seconds = _read_timings(folder / TIMINGS)
    found = []
    for place, row in read_rows(folder / METADATA, torn_end=True):
        name = row.get("file_name")
        if not isinstance(name, str):
            raise ValueError(f"{place} has no text under the key 'file_name'")
        whole = {"seconds": seconds[name]} | row if name in seconds else row
        found.append(Listed(place, _inside(folder, name, place), whole))
    if not found:
        raise ValueError(f"{folder / METADATA} is empty: the run has no pictures")
    return found


def _read_timings(path: Path) -> dict[str, float]:
    """Seconds by picture; of two lines about one picture the later holds."""
    if not path.is_file():
        return {}
    rows = [row for _, row in read_rows(path, torn_end=True)]
    return {
        row["file_name"]: row["seconds"]
        for row in rows
        if isinstance(row.get("file_name"), str) and isinstance(row.get("seconds"), int | float)
    }


def _inside(folder: Path, name: str, place: str) -> Path:
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
