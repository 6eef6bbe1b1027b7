"""The images and metadata of a run on disk, and captions of any other folder of images.

`datasets.load_dataset("imagefolder", data_dir=...)` can read the folder: `metadata.jsonl` has a
line with `file_name`, `prompt` and settings for each image. Images are named by number, never by
prompt. Times differ between equal runs and are therefore in a separate file, `timings.jsonl`.
"""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vendi_guidance.storage.files import read_rows, whole_file

METADATA = "metadata.jsonl"
TIMINGS = "timings.jsonl"
TABLES = ("metadata.csv", "captions.csv")
FILE_COLUMNS = ("file_name", "file", "image", "path")
CAPTION_COLUMNS = ("prompt", "text", "caption")  # the first that a table has is used


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
    """The images listed in a folder's `metadata.jsonl`; ignores an incomplete last line.
    FileNotFoundError if there is none; ValueError if it is empty, or a line cannot be read, has no
    `file_name` or names a file outside the folder."""
    seconds = read_timings(folder, "seconds")
    found = []
    for place, row in read_rows(folder / METADATA, torn_end=True):
        name = row.get("file_name")
        if not isinstance(name, str):
            raise ValueError(f"{place} has no text under the key 'file_name'")
        taken = {"seconds": seconds[name]} if name in seconds else {}
        found.append(Listed(place, path_in(folder, name, place), taken | row))
    if not found:
        raise ValueError(f"{folder / METADATA} is empty: the run has no images")
    return found


def path_in(folder: Path, name: str, place: str) -> Path:
    """The path of a file that the table at `place` names, which may be a link to anywhere;
    ValueError if the name itself leaves the folder."""
    # the operating system would truncate the name at NUL
    if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{place} names {name!r}, which is not in {folder}")
    return folder / name


def read_timings(folder: Path, name: str) -> dict[str, float]:
    """The cost of each image, by its file name, as far as it is known; `name` is "seconds", or
    "evaluations" of the network."""
    path = folder / TIMINGS
    rows = [row for _, row in read_rows(path, torn_end=True)] if path.is_file() else []
    return {
        row["file_name"]: row[name]  # the last line of an image takes precedence
        for row in rows
        if isinstance(row.get("file_name"), str)
        and isinstance(row.get(name), int | float)
        and 0 <= row[name] < 1e9  # a damaged file may say anything
    }


class Captions(NamedTuple):
    """Captions by the path of their image, and where they come from, for messages."""

    source: str
    of: dict[Path, str]


def find_captions(folder: Path, files: Sequence[Path]) -> Captions | None:
    """The captions of the image files below a folder, from the first of these that is found: a
    table, a `.txt` file beside each image, names of subfolders. None if there are none. ValueError
    if a table is not UTF-8 or not CSV, or names none of the images, or `captions.csv` has no
    columns of files and captions."""
    for name in TABLES:
        path = folder / name
        if path.is_file() and (found := _from_table(path, folder, files)) is not None:
            return Captions(name, found)
    found = _from_text_files(files)
    if 2 * len(found) >= len(files):  # fewer may be unrelated, as readme.txt beside readme.png
        return Captions("the .txt file beside each image", found)
    if any(file.parent == folder for file in files):
        return None
    names = {file: file.relative_to(folder).parts[0].replace("_", " ") for file in files}
    return Captions("the names of subfolders", names)


def _from_table(path: Path, folder: Path, files: Sequence[Path]) -> dict[Path, str] | None:
    """Captions from a table; None for a `metadata.csv` without columns of files and captions."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines, strict=True)
            header = list(rows.fieldnames or [])
            file_column = next((name for name in FILE_COLUMNS if name in header), None)
            caption_column = next((name for name in CAPTION_COLUMNS if name in header), None)
            if file_column is not None and caption_column is not None:
                pairs = [(row[file_column], (row[caption_column] or "").strip()) for row in rows]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.reader.line_num} is not CSV: {error}") from None
    if file_column is None or caption_column is None:
        if path.name == "captions.csv":
            raise ValueError(
                f"{path} has the columns {', '.join(header) or '(none)'}: name the column of files "
                "'file_name' and the column of captions 'caption'"
            )
        return None
    known = {file.relative_to(folder).as_posix(): file for file in files}
    found: dict[Path, str] = {}
    for name, text in pairs:
        if text and name in known:
            found.setdefault(known[name], text)  # keeps the first caption of an image
    if not found:
        example = repr(pairs[0][0]) if pairs else "nothing"
        raise ValueError(
            f"{path} has no caption of an image in {folder}: its column {file_column!r} starts "
            f"with {example}, and the first image is {files[0].relative_to(folder)}"
        )
    return found


def _from_text_files(files: Sequence[Path]) -> dict[Path, str]:
    """The first line of the `.txt` file beside each image; some programs write settings below."""
    found = {}
    for file in files:
        text = file.with_suffix(".txt")
        if text.is_file():
            lines = text.read_text(encoding="utf-8-sig", errors="replace").splitlines()
            if caption := next(filter(None, map(str.strip, lines)), None):
                found[file] = caption
    return found
