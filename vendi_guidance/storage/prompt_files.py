"""Prompts, from a file of any length or from the command line itself.

A file is read to its end before anything is made of it, so that what is wrong in line 900,000 is
said at once; and then again line by line, so that memory holds one line.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vendi_guidance.storage.files import read_rows, sha256_of

PROMPT_FILES = (".txt", ".jsonl", ".csv")

NO_TEXT = "has no text under 'prompt': write one or delete the line"

AT_ONCE = 1000
"""So many lines of JSON are parsed as one, which takes a third of the time."""


@dataclass(frozen=True)
class Prompts:
    """Prompts that can be read; iterating reads them from the first on.

    Attributes:
        source: a file, or the one prompt.
        count: how many there are.
        sha256: of the file's bytes, or of the prompt.
    """

    source: str
    count: int
    sha256: str

    def __iter__(self) -> Iterator[str]:
        return self.starting_at(0)

    def starting_at(self, number: int) -> Iterator[str]:
        """The prompts but for the first `number`.

        Raises:
            ValueError: the file has changed.
        """
        if not _is_file_name(self.source):
            return islice([self.source], number, None)
        return self._from_file(Path(self.source), number)

    def _from_file(self, path: Path, number: int) -> Iterator[str]:
        for prompt in islice(_read(path, number), self.count - number):
            yield prompt
            number += 1
        if number < self.count:
            raise ValueError(f"{path} had {self.count} prompts and has only {number} now")


def open_prompts(source: str) -> Prompts:
    """The prompts that `source` stands for, all of them checked.

    Args:
        source: a file, recognised by its ending: `.txt` (one prompt a line; blank lines are
            skipped), `.jsonl` (the key "prompt") or `.csv` (the column "prompt"); anything else is
            itself one prompt. Files are UTF-8.

    Raises:
        ValueError: an empty prompt, or a file without prompts or with a line that cannot be read;
            the message names file and line.
        FileNotFoundError: there is no such file.
    """
    if not _is_file_name(source):
        if not source.strip():
            raise ValueError("the prompt is empty: say what to draw, or name a file of prompts")
        if fault := _fault(source):
            raise ValueError(f"the prompt {fault}")
        return Prompts(source, 1, hashlib.sha256(source.encode()).hexdigest())
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no prompt file {source!r} (a prompt that ends in {path.suffix} must come "
            "from a file)"
        )
    count = _count_json(path) if path.suffix.lower() == ".jsonl" else _count(_read(path))
    if not count:
        raise ValueError(f"{path} holds no prompts: write at least one")
    return Prompts(source, count, sha256_of(path))


def _is_file_name(source: str) -> bool:
    return Path(source).suffix.lower() in PROMPT_FILES


def _read(path: Path, skip: int = 0) -> Iterator[str]:
    read = {".txt": _text_prompts, ".jsonl": _json_prompts, ".csv": _csv_prompts}
    try:
        yield from read[path.suffix.lower()](path, skip)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None


def _text_prompts(path: Path, skip: int) -> Iterator[str]:
    with path.open(encoding="utf-8-sig") as lines:
        prompts = (stripped for line in lines if (stripped := line.strip()))
        yield from islice(prompts, skip, None)


def _json_prompts(path: Path, skip: int) -> Iterator[str]:
    for place, row in read_rows(path, skip=skip):
        if fault := _fault(row.get("prompt")):
            raise ValueError(f"{place} {fault}")
        yield row["prompt"]


def _csv_prompts(path: Path, skip: int) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        try:
            header = next(rows, ["prompt"])
            if "prompt" not in header:
                raise ValueError(f"{path}, line 1 has no column 'prompt', only {', '.join(header)}")
            column = header.index("prompt")
            for row in islice(filter(None, rows), skip, None):
                prompt = row[column] if column < len(row) else ""
                if not prompt.strip():
                    raise ValueError(f"{path}, line {rows.line_num} {NO_TEXT}")
                yield prompt
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num} is not CSV: {error}") from None


def _fault(prompt: Any) -> str | None:
    """What is wrong with a prompt, in words that follow its place."""
    if not isinstance(prompt, str) or not prompt.strip():
        return NO_TEXT
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        return f"holds {prompt[error.start]!a}, half a character: write it anew"
    return None


def _count(prompts: Iterable[str]) -> int:
    return sum(1 for _ in prompts)


def _count_json(path: Path) -> int:
    """How many prompts a file has; anything odd in it is left to a closer look, line by line."""
    count = 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = (line for line in file if line.strip())
            while block := list(islice(lines, AT_ONCE)):
                rows = json.loads(f"[{','.join(block)}]")
                prompts = [row["prompt"] for row in rows]
                if len(prompts) != len(block) or not all(map(str.strip, prompts)):
                    raise ValueError
                "".join(prompts).encode()
                count += len(block)
    except (ValueError, TypeError, KeyError, RecursionError):
        return _count(_read(path))
    return count
