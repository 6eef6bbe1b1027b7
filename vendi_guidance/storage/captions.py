"""Captions of a folder of images, from wherever people keep them.

In this order: a table (`metadata.csv` or `captions.csv`), a `.txt` file beside each image, or names
of subfolders. (`metadata.jsonl`, which comes before all of these, is read by `imagefolder`.)
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TABLES = ("metadata.csv", "captions.csv")
FILE_COLUMNS = ("file_name", "file", "image", "path")
CAPTION_COLUMNS = ("prompt", "text", "caption")
"""The first of these that a table has counts."""


class Captions(NamedTuple):
    """Captions by the path of their image, and where they are from, in words."""

    source: str
    of: dict[Path, str]


def find_captions(folder: Path, files: Sequence[Path]) -> Captions | None:
    """The captions of the image files below a folder; None if none are found.

    Raises:
        ValueError: a table that is not UTF-8 or not CSV, or that names none of the images; or a
            `captions.csv` without columns of files and captions.
    """
    for name in TABLES:
        if (folder / name).is_file():
            found = _of_table(folder / name, folder, files)
            if found is not None:
                return Captions(name, found)
    found = _of_text_files(files)
    if 2 * len(found) >= len(files):  # less is a stray readme.txt beside readme.png
        return Captions("the .txt file beside each image", found)
    places = [file.relative_to(folder).parts for file in files]
    if all(len(parts) > 1 for parts in places):
        named = (parts[0].replace("_", " ") for parts in places)
        return Captions("the names of subfolders", dict(zip(files, named, strict=True)))
    return None


def _of_table(path: Path, folder: Path, files: Sequence[Path]) -> dict[Path, str] | None:
    """None without columns of files and captions, which a `metadata.csv` need not have."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines, strict=True)
            header = list(rows.fieldnames or [])
            named, caption = (
                next((name for name in names if name in header), None)
                for names in (FILE_COLUMNS, CAPTION_COLUMNS)
            )
            if named is not None and caption is not None:
                pairs = [(row[named], (row[caption] or "").strip()) for row in rows]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.reader.line_num} is not CSV: {error}") from None
    if named is None or caption is None:
        if path.name == "captions.csv":
            raise ValueError(
                f"{path} has the columns {', '.join(header) or '(none)'}: name that of the "
                "files 'file_name' and that of their captions 'caption'"
            )
        return None
    known = {file.relative_to(folder).as_posix(): file for file in files}
    found: dict[Path, str] = {}
    for name, text in pairs:
        if text and name in known:
            found.setdefault(known[name], text)  # the first, where an image has several
    if not found:
        example = repr(pairs[0][0]) if pairs else "nothing"
        raise ValueError(
            f"{path} has no caption of an image in {folder}: its column {named!r} starts with "
            f"{example}, and the first image is {files[0].relative_to(folder)}"
        )
    return found


def _of_text_files(files: Sequence[Path]) -> dict[Path, str]:
    """The first line of each: programs write their settings below it."""
    found = {}
    for file in files:
        beside = file.with_suffix(".txt")
        if beside.is_file():
            lines = beside.read_text(encoding="utf-8-sig", errors="replace").splitlines()
            if caption := next(filter(None, map(str.strip, lines)), None):
                found[file] = caption
    return found
