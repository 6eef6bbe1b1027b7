"""Prompts from a file, or one prompt from the command line."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vendi_guidance.storage.files import append_rows, sha256_of, whole_file
from vendi_guidance.storage.tables import SUFFIXES, read_table, text_in

NO_TEXT = "has no text under 'prompt': write a prompt or delete the line"
PATH_LIKE = re.compile(r"\S*[/\\]\S*|\S*\w\.[a-z]\w{0,7}|.*\.(xlsx?|ods|docx?|ya?ml|md|arrow)")
"""A word with a slash or an ending, or words that end in that of a document."""


class Prompts(NamedTuple):
    """Prompts that have been checked."""

    texts: Sequence[str]
    sha256: str  # of the file's bytes, or of the prompt


def open_prompts(source: str) -> Prompts:
    """Open and check the prompts in a UTF-8 or UTF-16 file, recognised by its suffix: `.txt` (one
    prompt per line; blank lines are skipped), or a table (see `read_table`) with a column of
    `TEXT_COLUMNS`; else `source` is a single prompt.

    ValueError if a prompt is empty or looks like the path of another file, or the file has no
    prompts or a line that cannot be read, which is named; FileNotFoundError if there is no file.
    """
    path = Path(source)
    if path.suffix.lower() not in SUFFIXES:
        if not source.strip():
            raise ValueError("the prompt is empty: give a text, or a file of prompts")
        if PATH_LIKE.fullmatch(source):
            raise ValueError(
                f"{source!r} looks like a file, but prompts are read only from files that end in "
                f"{', '.join(SUFFIXES)}: give such a file, or a prompt of several words"
            )
        if fault := fault_of(source):
            raise ValueError(f"the prompt {fault}")
        return Prompts([source], hashlib.sha256(source.encode()).hexdigest())
    if not path.is_file():
        hint = f"a prompt that ends in {path.suffix} must come from a file"
        raise FileNotFoundError(f"there is no prompt file {source!r} ({hint})")
    if not (texts := [*_read(path)]):
        raise ValueError(f"{path} has no prompts: write at least one")
    return Prompts(texts, sha256_of(path))


def save_prompts(path: Path, prompts: Iterable[str]) -> Path:
    """Write a `.jsonl` file that `open_prompts` can read; returns its path."""
    with whole_file(path) as temporary:
        append_rows(temporary, ({"prompt": prompt} for prompt in prompts))
    return path


def _read(path: Path) -> Iterator[str]:
    for place, row in read_table(path):
        listed = row.get("prompts")  # of different prompts, unlike several captions of an image
        for prompt in listed if isinstance(listed, list) else [text_in(row, place)]:
            if fault := fault_of(prompt):
                raise ValueError(f"{place} {fault} (it has {', '.join(row) or 'no columns'})")
            yield prompt


def fault_of(prompt: Any) -> str | None:
    """Why a prompt is invalid, as the end of a sentence; None if it is valid."""
    if not isinstance(prompt, str) or not prompt.strip():
        return NO_TEXT
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        return f"has {prompt[error.start]!a}, half of a surrogate pair: write it again"
    return None
