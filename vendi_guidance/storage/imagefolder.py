"""The images and metadata of a run on disk.

`datasets.load_dataset("imagefolder", data_dir=...)` can read the folder: `metadata.jsonl` has a
line with `file_name`, `prompt` and settings for each image. Images are named by number, never by
prompt. Times differ between equal runs and are therefore in a separate file, `timings.jsonl`.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.tables import read_table

METADATA = "metadata.jsonl"
TIMINGS = "timings.jsonl"


def image_name(number: int) -> str:
    return f"{number:06d}.png"


def save_image(path: Path, image: Image.Image, about: dict[str, Any] | None = None) -> None:
    """Write a PNG file, completely or not at all, with a text chunk (iTXt) for each JSON value."""
    texts = PngInfo()
    for name, value in (about or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        # file names may contain lone surrogates, which UTF-8 cannot encode
        texts.add_itxt(name, text.encode("utf-8", "replace").decode())
    with whole_file(path) as temporary:
        image.save(temporary, format="PNG", pnginfo=texts)


def remove_images(folder: Path) -> None:
    """Delete the images and metadata of a run, but no other files in its folder."""
    (folder / METADATA).unlink(missing_ok=True)  # first, so it never lists a missing image
    (folder / TIMINGS).unlink(missing_ok=True)
    for image in folder.glob("*.png"):
        if image.stem.isdecimal() and image.name == image_name(int(image.stem)):
            image.unlink()


class Listed(NamedTuple):
    """An image listed in `metadata.jsonl`."""

    place: str  # file and line, for messages
    path: Path
    row: dict[str, Any]  # values of the line, and "seconds" if known


def read_metadata(folder: Path) -> list[Listed]:
    """The images listed in a folder's `metadata.jsonl`, each as in its first line; ignores an
    incomplete last line. FileNotFoundError if there is none; ValueError if it is empty, or a line
    cannot be read, has no `file_name` or names a file outside the folder."""
    seconds = read_timings(folder, "seconds")
    found: dict[Path, Listed] = {}
    for place, row in read_table(folder / METADATA, torn_end=True):
        name = row.get("file_name")
        file = path_in(folder, name, place)
        taken = {"seconds": seconds[name]} if name in seconds else {}
        found.setdefault(file, Listed(place, file, taken | row))
    if not found:
        raise ValueError(f"{folder / METADATA} is empty: the run has no images")
    return [*found.values()]


def path_in(folder: Path, name: Any, place: str) -> Path:
    """The path of a file that the table at `place` names, by Windows' rules if there is none by the
    system's, and which may be a link to anywhere; ValueError if it names none in the folder."""
    if not isinstance(name, str):
        raise ValueError(f"{place} has no text under the key 'file_name'")
    if "\\" in name and "\0" not in name and not (folder / name).exists():
        name = name.replace("\\", "/")
    # the operating system would truncate the name at NUL
    if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{place} names {name!r}, which is not in {folder}")
    return folder / name


def read_timings(folder: Path, name: str) -> dict[str, float]:
    """The cost of each image, by its file name, as far as it is known; `name` is "seconds", or
    "evaluations" of the network."""
    path = folder / TIMINGS
    rows = [row for _, row in read_table(path, torn_end=True)] if path.is_file() else []
    return {
        row["file_name"]: row[name]  # the last line of an image takes precedence
        for row in rows
        if isinstance(row.get("file_name"), str)
        and isinstance(row.get(name), int | float)
        and 0 <= row[name] < 1e9  # a damaged file may say anything
    }
