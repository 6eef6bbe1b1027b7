"""A generation run on disk: pictures, and one line about each.

The folder is a Hugging Face imagefolder, which `datasets.load_dataset("imagefolder", data_dir=...)`
reads as it is: `metadata.jsonl` holds `file_name`, `prompt` and whatever else is known about a
picture. Pictures are named by their number, never by their prompt.
"""

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from vendi_guidance.files import whole_file

METADATA = "metadata.jsonl"
PROMPT_FILES = (".txt", ".jsonl", ".csv")


@dataclass(frozen=True)
class Run:
    """A run read back.

    Attributes:
        folder: where it lies.
        rows: what `metadata.jsonl` says, one dict a picture.
        images: the n pictures, in the same order.
    """

    folder: Path
    rows: list[dict[str, Any]]
    images: list[Image.Image]

    @property
    def prompts(self) -> list[str]:
        """The n prompts, in the order of the pictures."""
        return [row["prompt"] for row in self.rows]


def read_prompts(source: str) -> list[str]:
    """The prompts that `source` stands for.

    Args:
        source: a file, recognised by its ending: `.txt` (one prompt a line; blank lines are
            skipped), `.jsonl` (the key "prompt") or `.csv` (the column "prompt"); anything else is
            itself one prompt. Files are UTF-8.

    Raises:
        ValueError: an empty prompt, or a file without prompts or with a line that cannot be read;
            the message names file and line.
        FileNotFoundError: there is no such file.
    """
    path = Path(source)
    if path.suffix.lower() not in PROMPT_FILES:
        if not source.strip():
            raise ValueError("the prompt is empty: say what to draw, or name a file of prompts")
        return [source]
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no prompt file {source!r} (a prompt that ends in {path.suffix} must come "
            "from a file)"
        )
    read = {".txt": _text_prompts, ".jsonl": _json_prompts, ".csv": _csv_prompts}
    try:
        prompts = list(read[path.suffix.lower()](path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None
    if not prompts:
        raise ValueError(f"{path} holds no prompts: write at least one")
    return prompts


def save_picture(folder: Path, number: int, image: Image.Image, row: dict[str, Any]) -> None:
    """Add a picture to a run: first its file, whole or not at all, then its line.

    Args:
        folder: of the run; it exists.
        number: of the picture, which names its file.
        row: what is known of it, JSON values; "prompt" among them.
    """
    name = f"{number:06d}.png"
    with whole_file(folder / name) as temporary:
        image.save(temporary, format="PNG")
    with (folder / METADATA).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"file_name": name, **row}) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def remove_run(folder: Path) -> None:
    """Delete the pictures and metadata of a run; other files in its folder stay."""
    (folder / METADATA).unlink(missing_ok=True)  # first, so that it never names a missing picture
    for picture in folder.glob("*.png"):
        if picture.stem.isdecimal():
            picture.unlink()


def read_run(folder: Path) -> Run:
    """Read a run back, all its pictures into memory.

    Raises:
        ValueError: the folder holds no run, or a line or a picture that cannot be read; the
            message names it.
        FileNotFoundError: the folder, its `metadata.jsonl` or a picture is missing.
    """
    metadata = folder / METADATA
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not metadata.is_file():
        raise FileNotFoundError(
            f"{folder} holds no {METADATA}: give a folder that scripts/generate.py wrote"
        )
    rows = []
    for place, row in _json_rows(metadata):
        for key in ("file_name", "prompt"):
            if not isinstance(row.get(key), str):
                raise ValueError(f"{place} has no text under the key {key!r}")
        rows.append(row)
    if not rows:
        raise ValueError(f"{metadata} is empty: the run has no pictures")
    return Run(folder, rows, [_read_image(folder / row["file_name"]) for row in rows])


def _read_image(path: Path) -> Image.Image:
    if not path.is_file():
        raise FileNotFoundError(f"the picture {path} is missing, though {METADATA} names it")
    try:
        with Image.open(path) as opened:
            return opened.convert("RGB")
    except Exception as error:  # Pillow meets broken files with errors of many kinds
        raise ValueError(f"the picture {path} cannot be read: {error}") from None


def _text_prompts(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig") as lines:
        yield from (line.strip() for line in lines if line.strip())


def _json_prompts(path: Path) -> Iterator[str]:
    for place, row in _json_rows(path):
        yield _checked(row.get("prompt"), place)


def _csv_prompts(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        try:
            header = next(rows, ["prompt"])
            if "prompt" not in header:
                raise ValueError(f"{path}, line 1 has no column 'prompt', only {', '.join(header)}")
            column = header.index("prompt")
            for row in filter(None, rows):
                prompt = row[column] if column < len(row) else None
                yield _checked(prompt, f"{path}, line {rows.line_num}")
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num} is not CSV: {error}") from None


def _checked(prompt: object, place: str) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"{place} has no text under 'prompt': write one or delete the line")
    return prompt


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, each with its place in words; blank lines are skipped."""
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{place} is not JSON: {error.msg}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{place} is not a JSON object")
            yield place, row
