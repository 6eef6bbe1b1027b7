"""Tables of prompts or captions: CSV, TSV, JSON, JSON Lines, Parquet, and a text on each line."""

import csv
import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from vendi_guidance.storage.messages import counted, optional_import

FILE_COLUMNS = ("file_name", "filename", "file", "image", "path")
TEXT_COLUMNS = ("prompt", "prompts", "text", "caption", "captions")
"""Columns of texts: the first that has a value is used."""
SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".json", ".parquet")

Rows = Iterator[tuple[str, dict[str, Any]]]
csv.field_size_limit(2**27)  # a column may hold ComfyUI's workflows


def read_table(path: Path, *, torn_end: bool = False) -> Rows:
    """The rows of a table, each with file and line for messages; `torn_end` ignores an incomplete
    last line of JSON Lines, as a crash leaves it. ValueError, which names file and line, if a line
    cannot be read; ImportError if pyarrow is needed and not installed."""
    kind = path.suffix.lower()
    try:
        if kind in (".csv", ".tsv"):
            yield from _read_csv(path)
        elif kind == ".txt":
            with _open(path) as lines:
                yield from ((str(path), {"prompt": line}) for line in map(str.strip, lines) if line)
        elif kind == ".parquet":
            yield from _read_parquet(path)
        elif kind == ".json":
            yield from _read_json(path, torn_end)
        else:
            yield from _read_json_lines(path, torn_end)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None


def encoding_of(start: bytes) -> str:
    """UTF-16 if a file starts with its mark, as Windows programs save it, otherwise UTF-8."""
    return "utf-16" if start[:2] in (BOM_UTF16_BE, BOM_UTF16_LE) else "utf-8-sig"


def _open(path: Path, newline: str | None = None) -> TextIO:
    with path.open("rb") as file:
        encoding = encoding_of(file.read(2))
    return path.open(encoding=encoding, newline=newline)


def pick(row: Mapping[str, Any], columns: Iterable[str]) -> Any:
    """The value of the first of these columns that has one, in any case; None without any."""
    for name in columns:
        if row.get(name) is not None:  # nearly always, and there may be a million rows
            return row[name]
    values = {name.strip().lower(): value for name, value in row.items() if value is not None}
    return next((values[name] for name in columns if name in values), None)


def text_in(row: Mapping[str, Any], place: str) -> Any:
    """The value in a row's column of texts, or the first if it is a list of texts, as JSON too;
    ValueError, which names the place, for a list of anything else."""
    found = listed = pick(row, TEXT_COLUMNS)
    if isinstance(found, str) and found.startswith("["):
        try:
            listed = json.loads(found)
        except (ValueError, RecursionError):  # a text such as "[photo] a cat"
            return found
    if not isinstance(listed, list):
        return found
    if not listed or not isinstance(listed[0], str):
        raise ValueError(f"{place} has {found!r:.80} for a text: give a text, or a list of texts")
    return listed[0]


def _read_csv(path: Path) -> Rows:
    """Rows of a table with commas, semicolons, tabs or bars, whichever its header has most."""
    name = str(path)  # once, as there may be a million lines
    with _open(path, newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
        delimiter = max(",;\t|", key=first.count)
        lines.seek(0)
        is_plain = delimiter == "\t" and not _is_quoted(lines, delimiter)
        lines.seek(0)
        quoting: Any = csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL
        rows = csv.reader(lines, strict=True, delimiter=delimiter, quoting=quoting)
        try:
            header = next(filter(None, rows), [])
            for row in filter(None, rows):
                place = f"{name}, line {rows.line_num}"
                if len(row) != len(header):
                    if any(row[len(header) :]):
                        raise ValueError(
                            f"{place} has {counted(len(row), 'cell')} for columns "
                            f"{', '.join(header)}: put texts with {delimiter!r} in quotes"
                        )
                    row += [""] * (len(header) - len(row))
                yield place, dict(zip(header, row, strict=False))
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num} is not CSV: {error}") from None


def _is_quoted(lines: Iterable[str], delimiter: str) -> bool:
    """Whether double quotes enclose cells, rather than being a part of texts, as TSV allows."""
    try:
        return all(True for _ in csv.reader(lines, strict=True, delimiter=delimiter))
    except csv.Error:
        return False


def _read_json_lines(path: Path, torn_end: bool) -> Rows:
    name = str(path)  # once, as there may be a million lines
    with _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{name}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                if torn_end and not line.endswith("\n"):
                    return
                reason = getattr(error, "msg", type(error).__name__)
                raise ValueError(f"{place} is not JSON: {reason}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{place} is not a JSON object")
            yield place, row


def _read_json(path: Path, torn_end: bool) -> Rows:
    """The texts or objects of a JSON list, an object over any number of lines, or JSON Lines."""
    with _open(path) as file:
        text = file.read()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("["):
            raise ValueError(f"{path} is not JSON: {error}") from None
        yield from _read_json_lines(path, torn_end)
        return
    for number, row in enumerate(content if isinstance(content, list) else [content], start=1):
        place = f"{path}, item {number}"
        if not isinstance(row, (dict, str)):
            raise ValueError(f"{place} is neither a text nor a JSON object")
        yield place, {TEXT_COLUMNS[0]: row} if isinstance(row, str) else row


def _read_parquet(path: Path) -> Rows:
    parquet = optional_import("pyarrow.parquet", "pyarrow", f"reading {path}", "train")
    try:
        batches = parquet.ParquetFile(path).iter_batches(256)  # rows may hold images
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield f"{path}, row {number}", row
    except (OSError, RuntimeError, ValueError) as error:  # pyarrow's errors are among these
        raise ValueError(f"{path} is not Parquet: {str(error).splitlines()[0]}") from None
