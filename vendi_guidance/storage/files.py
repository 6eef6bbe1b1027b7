"""Files of which a crash leaves what was whole: all or nothing, or line by line."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

UNFINISHED = (".writing-", ".part")
"""How the name of a file begins and ends while it is written."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what was written to it becomes `path` if nothing is raised.

    The content is on disk before the name is: a crash at any moment leaves the old file or the
    new one.

    Raises:
        OSError: the folder does not exist or cannot be written, or `path` is no ordinary file.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not a file that could be replaced")
    prefix, suffix = UNFINISHED
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp keeps strangers out; a result is as readable as its folder allows
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Delete what processes that were killed left of files they were writing."""
    for file in folder.glob("*".join(UNFINISHED)):
        file.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on disk, where the system can say so."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_rows(
    path: Path, *, skip: int = 0, torn_end: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON Lines file, each with its place in words; blank lines do not count.

    Args:
        skip: how many lines to leave out at the start, unread.
        torn_end: leave out a last line that was not written to its end, as a crash leaves it.

    Raises:
        ValueError: a line that is not an object, or not text; the message names file and line.
    """
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                if skip > 0:
                    skip -= 1
                    continue
                place = f"{path}, line {number}"
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
    """Add lines to a JSON Lines file; when this returns they are on disk.

    Returns:
        How long the file is now, in bytes.
    """
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with path.open("ab") as file:
        file.write(lines.encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**16):
            digest.update(block)
    return digest.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
