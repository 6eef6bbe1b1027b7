"""Captions of the images in any folder: from tables, texts beside or in images, or subfolders."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from vendi_guidance.storage.embedded import embedded_prompt, is_prompt, known_prompt
from vendi_guidance.storage.files import DAMAGED
from vendi_guidance.storage.imagefolder import METADATA, path_in
from vendi_guidance.storage.images import read_bytes
from vendi_guidance.storage.messages import counted, first_few
from vendi_guidance.storage.tables import (
    FILE_COLUMNS,
    TEXT_COLUMNS,
    encoding_of,
    pick,
    read_table,
    text_in,
)

TABLES = (METADATA, "metadata.csv", "metadata.tsv", "metadata.parquet", "captions.csv")
BESIDE = (".txt", ".caption", ".json")
SPLITS = {"train", "test", "val", "valid", "validation", "dev"}
REPEATS = re.compile(r"\d+_(.*[^\W\d].*)")  # 10_name, in the folders of kohya's trainers


class Captions(NamedTuple):
    """Captions by the path of their image."""

    source: str  # for messages
    of: dict[Path, str]
    lost: str = ""  # what was found and not used, as the end of a sentence


def find_captions(folder: Path, files: Sequence[Path]) -> Captions:
    """The captions of the image files below a folder, from the first of these that is found: a
    table in it, all tables in its subfolders, a text file beside each image, metadata in the
    images, names of subfolders. ValueError if a table cannot be read, names none of the images or
    one outside its folder, or `captions.csv` has no columns of files and captions."""
    below = sorted(
        {parent for file in files for parent in file.parents if folder in parent.parents}
    )
    for parents in ([folder], below):
        if (found := _from_tables(folder, parents, files)) is not None:
            return found
    lost = []
    for read in (_from_text_files, _from_images):
        captions = read(files)
        if 2 * len(captions.of) >= len(files):  # fewer may be unrelated, such as readme.txt
            return captions
        if captions.of:
            lost.append(f"only {counted(len(captions.of), 'image')} with one in {captions.source}")
        lost += filter(None, [captions.lost])
    named = _from_subfolders(folder, files) or Captions("", {})
    return named._replace(lost="; ".join(lost))


def _from_tables(folder: Path, parents: Iterable[Path], files: Sequence[Path]) -> Captions | None:
    """Captions from the first table of each of these folders; None if there is no table."""
    known, found = {*files}, dict[Path, str]()
    sources, lost = list[str](), list[str]()
    for table, rows in filter(None, map(_table_in, parents)):
        sources.append(table.relative_to(folder).as_posix())
        for place, row in rows:
            name, text = pick(row, FILE_COLUMNS), text_in(row, place)
            name = name.strip() if isinstance(name, str) else name
            file = path_in(table.parent, name, place)
            if file not in known:
                lost.append(file.relative_to(folder).as_posix())
            elif text and str(text).strip():
                found.setdefault(file, str(text).strip())  # keeps the first caption of an image
    if not sources:
        return None
    tables = first_few(sources)
    if not found:
        raise ValueError(
            f"{folder / tables} has no caption of an image in {folder}: it starts with "
            f"{repr(lost[0]) if lost else 'nothing'}, and the first image is "
            f"{files[0].relative_to(folder)}"
        )
    remark = f"images not here: {len(lost):,} ({first_few(lost)})" if lost else ""
    return Captions(f"all of {tables}" if len(sources) > 1 else tables, found, remark)


def _table_in(parent: Path) -> tuple[Path, list[Any]] | None:
    """The first table in a folder with columns of files and captions, and its rows with their
    places; None if there is none."""
    for table in (parent / name for name in TABLES if (parent / name).is_file()):
        rows = [*read_table(table, torn_end=True)]
        if any(None not in (pick(row, FILE_COLUMNS), pick(row, TEXT_COLUMNS)) for _, row in rows):
            return table, rows
        if table.stem == "captions":
            names = ", ".join(rows[0][1]) if rows else "(none)"
            raise ValueError(
                f"{table} has the columns {names}: name the column of files 'file_name' and "
                "the column of captions 'caption'"
            )
    return None


def _from_text_files(files: Sequence[Path]) -> Captions:
    """The prompt in the file beside each image that has its name and a suffix of `BESIDE`: in a
    form of `embedded`, or else the first line."""
    found, suffixes = {}, dict[str, None]()
    for file in files:
        for suffix in BESIDE:
            with suppress(OSError, StopIteration, *DAMAGED):  # absent, or has no text
                raw = read_bytes(file.with_suffix(suffix))
                content = raw.decode(encoding_of(raw), "replace")
                text = text_in(json.loads(content), "") if suffix == ".json" else None
                if text is None and (known := known_prompt(content)):
                    text = known.prompt
                elif text is None and is_prompt(content):
                    text = next(filter(None, map(str.strip, content.splitlines())))
                if text is not None and is_prompt(text):
                    found[file], suffixes[suffix] = text.strip(), None
                    break
    return Captions(f"the {' or '.join(suffixes)} file beside each image", found)


def _from_images(files: Sequence[Path]) -> Captions:
    """The prompts that programs wrote into their images."""
    found = {file: said for file in files if (said := embedded_prompt(file))}
    of = {file: said.prompt for file, said in found.items() if said.prompt}
    programs = sorted({found[file].program for file in of})
    source = f"the metadata that {', '.join(programs)} wrote into the images"
    places = dict.fromkeys(place for said in found.values() for place in said.unread)
    unknown = counted(len(found) - len(of), "image")
    lost = f"texts of no known form in {unknown} ({', '.join(places)})" if places else ""
    return Captions(source, of, lost)


def _from_subfolders(folder: Path, files: Sequence[Path]) -> Captions | None:
    """Names of subfolders below those of splits; None if an image is in none."""
    found, source = {}, "the names of subfolders"
    for file in files:
        names = file.relative_to(folder).parts[:-1]
        parts = [name for name in names if name not in SPLITS and not name.endswith(".tar")]
        if not parts:
            return None
        repeats = next(filter(None, map(REPEATS.fullmatch, parts)), None)
        if repeats is not None:
            source = "the names of subfolders, without numbers of repeats"
        found[file] = (repeats[1] if repeats else parts[0]).replace("_", " ")
    return Captions(source, found)
