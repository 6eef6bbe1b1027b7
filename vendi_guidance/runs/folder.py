"""The folder of a run while it is made: at every moment a run can go on from what lies there.

A batch is written in this order: its pictures, their lines in `metadata.jsonl`, its checkpoint. It
counts from the moment its checkpoint is there; what lies beyond the last checkpoint is cut off or
made again. `run.json` says what the run is made with, `.lock` is held by the process that writes.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from PIL.Image import Image

from vendi_guidance.runs.checkpoints import Checkpoint, Checkpoints, Progress
from vendi_guidance.runs.manifest import MANIFEST, Manifest
from vendi_guidance.storage.files import UNFINISHED, append_rows, remove_unfinished, sync_folder
from vendi_guidance.storage.imagefolder import (
    METADATA,
    TIMINGS,
    picture_name,
    remove_pictures,
    save_picture,
)

LOCK = ".lock"
CHECKPOINTS = ".checkpoints"

BLOCK = 4096


class RunFolder:
    """A folder for one run.

    Args:
        path: where; it is created when something is to be written.
        window: size of the run's window.
    """

    def __init__(self, path: Path, window: int) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / CHECKPOINTS, window)
        self._safe = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; the lock ends with its process, however that ends.

        Raises:
            OSError: another run is being made there, or the folder cannot be written.
        """
        created = not self.path.exists()
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise BlockingIOError(
                    f"another run is being made in {self.path}: wait for its end, or name another "
                    "folder"
                ) from None
        try:
            yield
        finally:
            with suppress(OSError):  # a folder that became unwritable keeps it
                os.unlink(self.path / LOCK)
            lock.release()
            if created:
                with suppress(OSError):  # it is not empty: a run has begun
                    self.path.rmdir()

    def is_empty(self) -> bool:
        """Whether nothing lies there but what a run leaves that was stopped before it began."""
        if not self.path.exists():
            return True
        return all(
            entry.name == LOCK or (entry.name.startswith(UNFINISHED[0]) and entry.is_file())
            for entry in self.path.iterdir()
        )

    def find(self) -> Manifest | None:
        """What the run that lies there is made with; None where none has begun.

        Raises:
            ValueError: that cannot be read.
        """
        return Manifest.load(self.path) if (self.path / MANIFEST).is_file() else None

    def recover(self) -> Progress | None:
        """How far the run that lies there has come, what is beyond cut off; None where it has to
        begin anew.

        Raises:
            ValueError: a damaged checkpoint, or metadata that ends before it.
            OSError: the folder cannot be written.
        """
        progress = self.checkpoints.last()
        metadata = self.path / METADATA
        if progress is None:
            return None
        length = metadata.stat().st_size if metadata.is_file() else 0
        if length < progress.metadata_bytes:
            raise ValueError(
                f"{metadata} has lost lines: it has {length} bytes, and had "
                f"{progress.metadata_bytes} after {progress.done} pictures; begin anew with "
                "--overwrite"
            )
        with self._writing():
            self._clean()
            if length > progress.metadata_bytes:
                os.truncate(metadata, progress.metadata_bytes)
            _cut_torn_line(self.path / TIMINGS)
        self._safe = progress.done
        return progress

    def begin(self, manifest: Manifest, opening: Checkpoint) -> None:
        """Delete the run that lies there, if any, and begin this one."""
        with self._writing():
            # without checkpoints, `recover` sees no run in what is left of the old one
            self.checkpoints.remove()
            manifest.save(self.path)
            remove_pictures(self.path)
            self._clean()
            sync_folder(self.path)
            self.checkpoints.add(opening)

    def save_picture(self, number: int, image: Image, about: dict[str, Any] | None) -> str:
        """Write a picture; returns the name of its file."""
        name = picture_name(number)
        with self._writing():
            save_picture(self.path / name, image, about)
        return name

    def add_rows(self, rows: Iterable[dict[str, Any]], timings: Iterable[dict[str, Any]]) -> int:
        """Write the lines about pictures that are saved; returns the length of the metadata."""
        with self._writing():
            append_rows(self.path / TIMINGS, timings)
            length = append_rows(self.path / METADATA, rows)
            sync_folder(self.path)
        return length

    def finish_batch(self, checkpoint: Checkpoint) -> None:
        """Let the pictures of a batch count, whose lines are written."""
        with self._writing():
            self.checkpoints.add(checkpoint)
        self._safe = checkpoint.progress.done

    def _clean(self) -> None:
        remove_unfinished(self.path)
        self.checkpoints.clean()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what the system says into a sentence."""
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            done = f"; {self._safe} pictures are safe there, --resume goes on" if self._safe else ""
            reason = error.strerror or str(error)
            raise OSError(f"cannot write to {self.path}: {reason}{done}") from error


def _cut_torn_line(path: Path) -> None:
    """Cut off what a crash has left of a last line, far shorter than a block."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - BLOCK)
        file.seek(start)
        file.truncate(start + file.read().rfind(b"\n") + 1)
