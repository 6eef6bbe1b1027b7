"""Captions of a folder of images, from wherever people keep them.

In this order: a table (`metadata.csv`, `captions.csv`, `captions.tsv`, ...), a `.txt` file beside
each image, or names of subfolders. (`metadata.jsonl`, which comes before all of these, is read by
`imagefolder`.)
"""

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import NamedTuple

TABLES: tuple[str, ...] = (
    "metadata.csv",
    "metadata.tsv",
    "captions.csv",
    "captions.tsv",
    "captions.txt",
)
TABLES += ("prompts.csv", "prompts.tsv")

DELIMITERS = ",;\t|"

FILE_COLUMNS = (
    *("filename", "file", "filepath", "path", "image", "imagename", "imagefile", "imagepath"),
    *("img", "imgname", "imgpath", "picture", "name"),
)
CAPTION_COLUMNS = ("prompt", "text", "caption", "description", "sentence", "comment")
"""In lower case, without spaces, underscores and a plural's s; the first that there is counts."""


class Captions(NamedTuple):
    """Captions by the path of their image, and where they are from, in words."""

    source: str
    of: dict[Path, str]


def find_captions(folder: Path, files: Sequence[Path]) -> Captions | None:
    """The captions of the image files below a folder; None if none are found.

    Raises:
        ValueError: a table that is not UTF-8 or not CSV, or that names none of the images; or a
            `captions.csv` or `.tsv` without columns of files and captions.
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
    """None without columns of files and captions, which other tables need not have."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        named, captions = (_column(header, names) for names in (FILE_COLUMNS, CAPTION_COLUMNS))
        if named is None or captions is None:
            if path.name in ("captions.csv", "captions.tsv"):
                raise ValueError(
                    f"{path} has the columns {', '.join(header) or '(none)'}: name that of the "
                    "files 'file' and that of their captions 'caption'"
                )
            return None
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num} is not CSV: {error}") from None
    find = _finder(folder, files)
    found: dict[Path, str] = {}
    for row in rows:
        if len(row) == len(header) and row[captions].strip() and (file := find(row[named])):
            found.setdefault(file, row[captions].strip())  # the first, where an image has several
    if not found:
        example = repr(rows[0][named]) if rows and rows[0] else "nothing"
        raise ValueError(
            f"{path} has no caption of an image in {folder}: its column {header[named]!r} starts "
            f"with {example}, and the first image is {files[0].relative_to(folder)}"
        )
    return found


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    """The number of the column that has the first of these names that there is."""
    keys = ["".join(filter(str.isalnum, cell.lower())).removesuffix("s") for cell in header]
    return next((keys.index(name) for name in names if name in keys), None)


def _finder(folder: Path, files: Sequence[Path]) -> Callable[[str], Path | None]:
    """Finds the image that a table names: by its path in the folder, or, where only one image has
    it, by its name, with its suffix or without."""
    exact = {file.relative_to(folder).as_posix(): file for file in files}
    count = Counter(name for file in files for name in {file.name, file.stem})
    loose = {name: file for file in files for name in (file.name, file.stem) if count[name] == 1}

    def find(name: str) -> Path | None:
        path = PurePosixPath(name.strip().replace("\\", "/"))
        return exact.get(str(path)) or loose.get(path.name) or loose.get(path.stem)

    return find


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
