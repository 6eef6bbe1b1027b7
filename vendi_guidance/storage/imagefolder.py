"""A generation run on disk: images, and one line of metadata for each.

The folder is a Hugging Face imagefolder, which `datasets.load_dataset("imagefolder", data_dir=...)`
reads as it is: `metadata.jsonl` has `file_name`, `prompt` and the settings of each image. Images
are named by number, never by prompt. The seconds that each took differ from run to run and are
therefore in a file of their own, `timings.jsonl`.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vendi_guidance.storage.files import read_rows, whole_file

METADATA = "metadata.jsonl"
TIMINGS = "timings.jsonl"


def image_name(number: int) -> str:
    return f"{number:06d}.png"


def save_image(path: Path, image: Image.Image, about: dict[str, Any] | None = None) -> None:
    """Write a PNG file, completely or not at all.

    Args:
        about: JSON values to write into it, each as a text chunk (iTXt) with its name.
    """
    texts = PngInfo()
    for name, value in (about or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        # file names may contain lone surrogates
        texts.add_itxt(name, text.encode("utf-8", "replace").decode())
    with whole_file(path) as temporary:
        image.save(temporary, format="PNG", pnginfo=texts)


def remove_images(folder: Path) -> None:
    """Delete the images and metadata of a run; other files in its folder stay."""
    (folder / METADATA).unlink(missing_ok=True)  # first, so that it never names a missing image
    (folder / TIMINGS).unlink(missing_ok=True)
    for image in folder.glob("*.png"):
        if image.stem.isdecimal() and image.name == image_name(int(image.stem)):
            image.unlink()


class Listed(NamedTuple):
    """An image that `metadata.jsonl` lists: `row` has the line's values, and "seconds" where they
    are known; `place` is file and line, for messages."""

    place: str
    path: Path
    row: dict[str, Any]


def read_metadata(folder: Path) -> list[Listed]:
    """The images that a folder's `metadata.jsonl` lists, without a last line cut off by a crash.

    Raises:
        ValueError: there is no line, or one that cannot be read, has no `file_name` or names a file
            outside the folder.
        FileNotFoundError: the folder has no `metadata.jsonl`.
    """
    seconds = read_timings(folder, "seconds")
    found = []
    for place, row in read_rows(folder / METADATA, torn_end=True):
        name = row.get("file_name")
        if not isinstance(name, str):
            raise ValueError(f"{place} has no text under the key 'file_name'")
        path = folder / name
        # the operating system would cut the name at NUL
        if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{place} names {name!r}, which is not in {folder}")
        whole = {"seconds": seconds[name]} | row if name in seconds else row
        found.append(Listed(place, path, whole))
    if not found:
        raise ValueError(f"{folder / METADATA} is empty: the run has no images")
    return found


def read_timings(folder: Path, name: str) -> dict[str, float]:
    """What each image took, by its file name: "seconds", or "evaluations" of the network; only of
    images where that is known."""
    path = folder / TIMINGS
    rows = [row for _, row in read_rows(path, torn_end=True)] if path.is_file() else []
    return {
        row["file_name"]: row[name]  # the last line about an image counts
        for row in rows
        if isinstance(row.get("file_name"), str) and isinstance(row.get(name), int | float)
    }
