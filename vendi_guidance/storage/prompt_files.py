"""Prompts from a file of any length, or one prompt from the command line.

The whole file is checked first, so that an error in line 900,000 is reported at once. Then it is
read again line by line.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vendi_guidance.storage.files import append_rows, sha256_of, whole_file
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.tables import SUFFIXES, read_table, text_in

NO_TEXT = "has no text under 'prompt': write a prompt or delete the line"
PATH_LIKE = re.compile(r"\S*[/\\]\S*|\S*\w\.[a-z]\w{0,7}|.*\.(xlsx?|ods|docx?|ya?ml|md|arrow)")
"""A word with a slash or an ending, or words that end in that of a document."""


@dataclass(frozen=True)
class Prompts:
    """Prompts that have been checked; each iteration reads them again."""

    source: str  # the file, or the prompt itself
    count: int
    sha256: str  # of the file's bytes, or of the prompt

    def __iter__(self) -> Iterator[str]:
        return self.starting_at(0)

    def starting_at(self, number: int) -> Iterator[str]:
        """The prompts without the first `number`; ValueError if the file has fewer by now."""
        prompts = _read(Path(self.source)) if is_prompt_file(self.source) else [self.source]
        for prompt in islice(prompts, number, self.count):
            yield prompt
            number += 1
        if number < self.count:
            before = counted(self.count, "prompt")
            raise ValueError(f"{self.source} had {before} and has only {number} now")


def open_prompts(source: str) -> Prompts:
    """Open and check the prompts in a UTF-8 file, recognised by its suffix: `.txt` (one prompt per
    line; blank lines are skipped), or a table (see `read_table`) with a column of `TEXT_COLUMNS`;
    else `source` is a single prompt.

    ValueError if a prompt is empty or looks like the path of another file, or the file has no
    prompts or a line that cannot be read, which is named; FileNotFoundError if there is no file.
    """
    if not is_prompt_file(source):
        if not source.strip():
            raise ValueError("the prompt is empty: give a text, or a file of prompts")
        if PATH_LIKE.fullmatch(source):
            raise ValueError(
                f"{source!r} looks like a file, but prompts are read only from files that end in "
                f"{', '.join(SUFFIXES)}: give such a file, or a prompt of several words"
            )
        if fault := fault_of(source):
            raise ValueError(f"the prompt {fault}")
        return Prompts(source, 1, hashlib.sha256(source.encode()).hexdigest())
    path = Path(source)
    if not path.is_file():
        hint = f"a prompt that ends in {path.suffix} must come from a file"
        raise FileNotFoundError(f"there is no prompt file {source!r} ({hint})")
    count = sum(1 for _ in _read(path))
    if not count:
        raise ValueError(f"{path} has no prompts: write at least one")
    return Prompts(source, count, sha256_of(path))


def save_prompts(path: Path, prompts: Iterable[str]) -> Path:
    """Write a `.jsonl` file that `open_prompts` can read; returns its path."""
    with whole_file(path) as temporary:
        append_rows(temporary, ({"prompt": prompt} for prompt in prompts))
    return path


def is_prompt_file(source: str) -> bool:
    """Whether `source` names a file of prompts rather than being a prompt."""
    return Path(source).suffix.lower() in SUFFIXES


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
