"""Crash-safe writing of files, and JSON Lines."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

UNFINISHED = (".writing-", ".part")  # prefix and suffix of the names of temporary files

MEMORY = "memory"
"""Folder, beside images, of copies of the memories that they began with."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary file, which is renamed to `path` if nothing is raised.

    It is synced to disk first, so a crash leaves either the old file or the new one. OSError if the
    folder does not exist or cannot be written, or `path` is not a regular file.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not a regular file and cannot be replaced")
    with _temporary(path, path.parent) as temporary:
        # applies the umask; mkstemp would deny access to other users
        temporary.touch(exist_ok=False)
        yield temporary
        sync(temporary)
        temporary.replace(path)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, whose files are moved to `path` if nothing is raised.

    A new folder is created by one rename. In an existing one, files are replaced after all have
    been written and synced to disk; its other files stay. OSError if the folder cannot be written,
    or has a folder with the name of a file.
    """
    parent = path if path.is_dir() else path.parent
    parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path, parent) as temporary:
        temporary.mkdir()
        yield temporary
        files = sorted(temporary.iterdir())
        for file in files:
            sync(file)
        if path.is_dir():
            for file in files:
                if (path / file.name).is_dir():
                    raise IsADirectoryError(f"{path / file.name} is a folder, not a file")
            for file in files:
                file.replace(path / file.name)
        else:
            temporary.rename(path)


@contextmanager
def _temporary(path: Path, parent: Path) -> Iterator[Path]:
    """Yields a new path in `parent`, which is removed in the end. An operating system's error that
    names it, or nothing, as when the disk is full, names `path` instead."""
    temporary = parent / token_hex(8).join(UNFINISHED)
    try:
        yield temporary
    except OSError as error:
        if error.errno is not None and str(error.filename or temporary).startswith(str(temporary)):
            error.filename = str(path)
        raise
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists():
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Delete the temporary files and folders that killed processes left behind."""
    for path in folder.glob("*".join(UNFINISHED)):
        _remove(path)


def sync(path: Path) -> None:
    """Sync a file, or a folder's file names, to disk; does nothing on Windows, where what is only
    read cannot be synced."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Append objects to a JSON Lines file, sync it to disk and return its size in bytes."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with path.open("ab") as file:
        file.write(lines.encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is none, or it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def memory_name(sha256: str) -> str:
    """The file, beside images, of the memory with this digest."""
    return f"{MEMORY}/{sha256}.safetensors"


def keep_memory(folder: Path, memory: Path) -> Path:
    """Copy a memory's file to where the metadata of images in a folder name it; nothing is written
    if it is there."""
    copy = folder / memory_name(sha256_of(memory))
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.exists():
        with whole_file(copy) as temporary:
            shutil.copyfile(memory, temporary)
    return copy


VERSION = 3  # the version of the layout of our JSON files and headers
DAMAGED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of reading a JSON file whose content is not what we wrote."""


def headed(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """Content, preceded by the name of its format and the version of the layout."""
    return {"format": name, "version": VERSION, **content}


def check_format(found: Any, name: str) -> dict[str, Any]:
    """What `headed` returned, read again; ValueError if it is something else, or of another
    version, which the message names."""
    content: dict[str, Any] = found if isinstance(found, dict) else {}
    if content.get("format") != name:
        raise ValueError(f"its format is {content.get('format')}, not {name}")
    if content.get("version") != VERSION:
        raise ValueError(
            f"it has version {content.get('version')} of its layout, and this vendi-guidance reads "
            f"version {VERSION}"
        )
    return content
