"""Captions of the images in any folder: from tables, texts beside or in images, or subfolders."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from vendi_guidance.storage.files import DAMAGED
from vendi_guidance.storage.imagefolder import METADATA, path_in
from vendi_guidance.storage.images import read_bytes
from vendi_guidance.storage.messages import first_few
from vendi_guidance.storage.tables import FILE_COLUMNS, TEXT_COLUMNS, pick, read_table, text_in

TABLES = (METADATA, "metadata.csv", "metadata.tsv", "metadata.parquet", "captions.csv")
BESIDE = (".txt", ".caption", ".json")
SPLITS = {"train", "test", "val", "valid", "validation", "dev"}
REPEATS = re.compile(r"\d+_(.*[^\W\d].*)")  # 10_name, in the folders of kohya's trainers
SETTINGS = re.compile(r"(?:^|\n)(?=Negative prompt: |Steps: )")  # after Automatic1111's prompt
LEADS = (
    *("positive", "guider", "conditioning", "conditioning_1", "conditioning_to"),
    *("text", "text_g", "t5xxl", "clip_l", "prompt", "string", "value"),
)
"""Inputs of ComfyUI's nodes that lead from a sampler to the prompt, or are the prompt."""


class Captions(NamedTuple):
    """Captions by the path of their image."""

    source: str  # for messages
    of: dict[Path, str]
    lost: str = ""  # rows of tables whose images are not there, as the end of a sentence


def find_captions(folder: Path, files: Sequence[Path]) -> Captions | None:
    """The captions of the image files below a folder, from the first of these that is found: a
    table in it, all tables in its subfolders, a text file beside each image, metadata in the
    images, names of subfolders. None if there are none. ValueError if a table cannot be read, names
    none of the images or one outside its folder, or `captions.csv` has no columns of files and
    captions."""
    below = sorted(
        {parent for file in files for parent in file.parents if folder in parent.parents}
    )
    for parents in ([folder], below):
        if (found := _from_tables(folder, parents, files)) is not None:
            return found
    for read in (_from_text_files, _from_images):
        captions = read(files)
        if 2 * len(captions.of) >= len(files):  # fewer may be unrelated, such as readme.txt
            return captions
    return _from_subfolders(folder, files)


def _from_tables(folder: Path, parents: Iterable[Path], files: Sequence[Path]) -> Captions | None:
    """Captions from the first table of each of these folders; None if there is no table."""
    known, found = {*files}, dict[Path, str]()
    sources, lost = list[str](), list[str]()
    for table, rows in filter(None, map(_table_in, parents)):
        sources.append(table.relative_to(folder).as_posix())
        for place, row in rows:
            name, text = pick(row, FILE_COLUMNS), text_in(row, place)
            if not isinstance(name, str):
                raise ValueError(f"{place} has no text under the key 'file_name'")
            file = path_in(table.parent, name.strip(), place)
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
    """The first line in the file beside each image that has its name and a suffix of `BESIDE`;
    some programs write settings below."""
    found, suffixes = {}, dict[str, None]()
    for file in files:
        for suffix in BESIDE:
            with suppress(OSError, StopIteration, *DAMAGED):  # absent, or has no text
                content = read_bytes(file.with_suffix(suffix)).decode("utf-8-sig", "replace")
                text = text_in(json.loads(content), "") if suffix == ".json" else content
                found[file] = next(filter(None, map(str.strip, text.splitlines())))
                suffixes[suffix] = None
                break
    return Captions(f"the {' or '.join(suffixes)} file beside each image", found)


def _from_images(files: Sequence[Path]) -> Captions:
    """The prompts that programs wrote into their images; a named pipe would keep us waiting."""
    found = {file: said for file in filter(Path.is_file, files) if (said := embedded_prompt(file))}
    programs = sorted({program for program, _ in found.values()})
    source = f"the metadata that {', '.join(programs)} wrote into the images"
    return Captions(source, {file: prompt for file, (_, prompt) in found.items()})


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


def embedded_prompt(file: Path) -> tuple[str, str] | None:
    """The program and the prompt in an image file's header; None if there is none."""
    with suppress(Exception):  # anything may stand there
        with Image.open(file, formats=("PNG", "JPEG", "WEBP")) as image:
            texts = dict(image.info)
            if "exif" in texts and (comment := image.getexif().get_ifd(0x8769).get(0x9286)):
                texts["parameters"] = comment[8:].decode("utf-16-be")  # after b"UNICODE\0"
        if {"prompt", "seed", "versions"} <= {*texts} and (prompt := texts["prompt"].strip()):
            return "vendi-guidance", prompt
        for name, (program, read) in READERS.items():
            if name in texts and (prompt := str(read(texts[name]) or "").strip()):
                return program, prompt
    return None


def _from_graph(text: str) -> str | None:
    """The text that a sampler's positive input leads to."""
    graph: dict[str, Any] = json.loads(text)
    todo = [key for key, node in graph.items() if "Sampler" in node["class_type"]]
    seen = set()
    while todo:
        key = todo.pop()
        inputs = {} if key in seen else graph[key]["inputs"]
        seen.add(key)
        for value in (inputs[name] for name in LEADS if inputs.get(name)):
            if isinstance(value, str):
                return value
            todo.append(value[0])
    return None


READERS = {
    "invokeai_metadata": ("InvokeAI", lambda text: json.loads(text)["positive_prompt"]),
    "parameters": ("Automatic1111 or Forge", lambda text: SETTINGS.split(text)[0]),
    "prompt": ("ComfyUI", _from_graph),
}
"""Key of a text -> the program that writes it, and how to read a prompt from it."""
