"""The output folder of a run, from which the run can be resumed after a crash at any moment.

A batch is written in this order: its images, their lines in `metadata.jsonl`, its checkpoint. It
counts as finished once its checkpoint exists; what follows the last checkpoint is truncated or
generated again. `run.json` has the run's settings; the process that writes holds `.lock`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from PIL.Image import Image

from vendi_guidance.checks import counted
from vendi_guidance.runs.checkpoints import Checkpoint, Checkpoints, Progress
from vendi_guidance.runs.manifest import Manifest
from vendi_guidance.storage.files import UNFINISHED, append_rows, remove_unfinished, sync_folder
from vendi_guidance.storage.imagefolder import (
    METADATA,
    TIMINGS,
    image_name,
    remove_images,
    save_image,
)

LOCK = ".lock"
CHECKPOINTS = ".checkpoints"

Row = dict[str, Any]


class RunFolder:
    """The folder of one run.

    Args:
        path: the folder; it is created when something is written.
        window: size of the run's window.
    """

    def __init__(self, path: Path, window: int) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / CHECKPOINTS, window)
        self._safe = 0  # number of finished images, for messages

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other runs; the lock ends with its process, even if killed.

        Raises:
            OSError: another run is writing there, or the folder cannot be written.
        """
        created = not self.path.exists()
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            # not per thread: a server may begin and end a run in different threads
            lock = FileLock(self.path / LOCK, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                advice = "wait until it ends, or name another folder"
                raise BlockingIOError(f"another run is writing to {self.path}: {advice}") from None
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may have become unwritable
                os.unlink(self.path / LOCK)
            lock.release()
            if created:
                with suppress(OSError):  # fails if a run has begun, as the folder is not empty
                    self.path.rmdir()

    def is_empty(self) -> bool:
        """Whether the folder has no files, or only those of a run stopped before it began."""
        return not self.path.exists() or all(
            entry.name == LOCK or (entry.name.startswith(UNFINISHED[0]) and entry.is_file())
            for entry in self.path.iterdir()
        )

    def recover(self) -> Progress | None:
        """Truncate what follows the last checkpoint; returns its progress, or None if the run has
        to start from the beginning.

        Raises:
            ValueError: a checkpoint is damaged or missing, or does not match the metadata.
            OSError: the folder cannot be written.
        """
        progress = self.checkpoints.last()
        metadata, timings = self.path / METADATA, self.path / TIMINGS
        if progress is None:
            if metadata.is_file() and not self.checkpoints.removed.exists():
                raise ValueError(
                    f"{self.path} has images, but not the checkpoints in {CHECKPOINTS} that are "
                    "needed to resume their run: copy that hidden folder, too, or start over with "
                    "--overwrite, which deletes the images"
                )
            return None
        size = 0
        if metadata.is_file():
            with metadata.open("rb") as lines:
                size = sum(map(len, islice(lines, progress.done)))
        if size != progress.metadata_bytes:
            raise ValueError(
                f"{metadata} has changed: its lines for {counted(progress.done, 'image')} have "
                f"{size} bytes, and had {progress.metadata_bytes}; restore the original, or start "
                "over with --overwrite, which deletes the images"
            )
        with self._writing():
            self._clean()
            if metadata.is_file():
                os.truncate(metadata, progress.metadata_bytes)
            if timings.is_file():  # cut an unfinished last line
                os.truncate(timings, timings.read_bytes().rfind(b"\n") + 1)
        self._safe = progress.done
        return progress

    def begin(self, manifest: Manifest, opening: Checkpoint) -> None:
        """Delete the run in the folder, if any, and begin this one."""
        with self._writing():
            # first: if this is interrupted, `recover` finds no run in the rest of the old one
            self.checkpoints.remove()
            manifest.save(self.path)
            remove_images(self.path)
            self._clean()
            sync_folder(self.path)
            self.checkpoints.add(opening)

    def save_image(self, number: int, image: Image, about: Row | None) -> None:
        """Write an image, with these values in its text chunks."""
        with self._writing():
            save_image(self.path / image_name(number), image, about)

    def finish_batch(self, rows: list[Row], timings: list[Row], batch: Checkpoint) -> None:
        """Write the metadata and the checkpoint of a batch whose images are saved."""
        with self._writing():
            append_rows(self.path / TIMINGS, timings)
            length = append_rows(self.path / METADATA, rows)
            sync_folder(self.path)
            progress = replace(batch.progress, metadata_bytes=length)
            self.checkpoints.add(replace(batch, progress=progress))
        self._safe = progress.done

    def _clean(self) -> None:
        remove_unfinished(self.path)
        self.checkpoints.clean()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Add the folder and the remedy to an error of the operating system."""
        try:
            yield
        except BlockingIOError:  # the folder is locked
            raise
        except OSError as error:
            message = f"cannot write to {self.path}: {error.strerror or error}"
            if self._safe:
                saved = counted(self._safe, "image")
                message += f"; {saved} saved so far, and --resume continues the run"
            raise OSError(message) from error
