"""Crash-safe file writes: a whole file or none, or line by line."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

UNFINISHED = (".writing-", ".part")
"""Prefix and suffix of a file's name while it is written."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, renamed to `path` if nothing is raised.

    It is synced to disk before it is renamed: a crash leaves either the old file or the new one.

    Raises:
        OSError: the folder does not exist or cannot be written, or `path` is not a regular file.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not a regular file and cannot be replaced")
    temporary = path.with_name(token_hex(8).join(UNFINISHED))
    temporary.touch(exist_ok=False)  # as the umask says; mkstemp would hide it from other users
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        _name(error, path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder, whose files appear in `path` if nothing is raised.

    A new folder appears by one rename. In one that exists, files are replaced once all are written
    and synced to disk; its other files stay, as nobody knows whose they are.

    Raises:
        OSError: the folder cannot be written, or has a folder by the name of a file.
    """
    home = path if path.is_dir() else path.parent
    home.mkdir(parents=True, exist_ok=True)
    temporary = home / token_hex(8).join(UNFINISHED)
    temporary.mkdir()
    try:
        yield temporary
        files = sorted(temporary.iterdir())
        for file in files:
            with file.open("rb") as written:
                os.fsync(written.fileno())
        if path.is_dir():
            for file in files:
                if (path / file.name).is_dir():
                    raise IsADirectoryError(f"{path / file.name} is a folder, not a file")
            for file in files:
                file.replace(path / file.name)
        else:
            temporary.rename(path)
    except OSError as error:
        _name(error, path)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _name(error: OSError, path: Path) -> None:
    """Let the system's error name the file, which that of a full disk does not."""
    if error.errno is not None and error.filename is None:
        error.filename = str(path)


def remove_unfinished(folder: Path) -> None:
    """Delete the temporary files that killed processes left behind."""
    for file in folder.glob("*".join(UNFINISHED)):
        file.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder's file names to disk; does nothing on Windows, which cannot."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_rows(path: Path, *, torn_end: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON Lines file, each with file and line for messages; skips blank lines.

    Args:
        torn_end: leave out a last line that a crash cut off.

    Raises:
        ValueError: a line that is not a JSON object, or not UTF-8; the message names file and line.
    """
    name = str(path)  # not anew for each of a million lines
    try:
        with path.open(encoding="utf-8-sig") as lines:
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
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from None


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Append lines to a JSON Lines file, sync it to disk and return its size in bytes."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with path.open("ab") as file:
        file.write(lines.encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
