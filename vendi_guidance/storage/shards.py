"""Members of `.tar` files, as WebDataset writes them, read in place.

A member has the path of a file in a folder: `shard.tar/key.jpg`. Nothing is unpacked, so names of
members never become files.
"""

import tarfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class Span(NamedTuple):
    """Where a member's content is in its file, in bytes."""

    start: int
    size: int


def shard_of(path: Path) -> Path | None:
    """The `.tar` file that a path goes through; None if there is none."""
    tars = (parent for parent in path.parents if parent.suffix.lower() == ".tar")
    return next((tar for tar in tars if tar.is_file()), None)


def members(shard: Path) -> dict[str, Span]:
    """The regular files in an uncompressed `.tar` file, by name, as far as it can be read; without
    names that are absolute or contain `..`."""
    status = shard.stat()
    return _members(shard, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _members(shard: Path, changed: int, size: int) -> dict[str, Span]:
    found = {}
    with suppress(tarfile.TarError, OSError, ValueError), tarfile.open(shard, "r:") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if member.isreg() and not (
                member.issparse() or name.is_absolute() or ".." in name.parts
            ):
                found[str(name)] = Span(member.offset_data, member.size)
    return found
