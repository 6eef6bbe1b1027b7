"""Captions of a folder of images, in the usual layouts.

The first that is found is used: a table (`metadata.csv` or `captions.csv`), a `.txt` file beside
each image, or names of subfolders. `metadata.jsonl` precedes all and is read by `imagefolder`.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TABLES = ("metadata.csv", "captions.csv")
FILE_COLUMNS = ("file_name", "file", "image", "path")
CAPTION_COLUMNS = ("prompt", "text", "caption")
"""The first of these columns that a table has is used."""


class Captions(NamedTuple):
    """Captions of images."""

    source: str  # where they come from, for messages
    of: dict[Path, str]  # by the path of their image


def find_captions(folder: Path, files: Sequence[Path]) -> Captions | None:
    """The captions of the image files below a folder; None if none are found.

    Raises:
        ValueError: a table is not UTF-8 or not CSV, or names none of the images; or `captions.csv`
            has no columns of files and captions.
    """
    for name in TABLES:
        if (folder / name).is_file():
            found = _from_table(folder / name, folder, files)
            if found is not None:
                return Captions(name, found)
    found = _from_text_files(files)
    if 2 * len(found) >= len(files):  # fewer may be unrelated, as readme.txt beside readme.png
        return Captions("the .txt file beside each image", found)
    paths = [file.relative_to(folder).parts for file in files]
    if all(len(parts) > 1 for parts in paths):
        names = (parts[0].replace("_", " ") for parts in paths)
        return Captions("the names of subfolders", dict(zip(files, names, strict=True)))
    return None


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
