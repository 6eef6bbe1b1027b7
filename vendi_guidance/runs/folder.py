"""The folder of a run in progress, from which the run can be resumed at any moment.

A batch is written in this order: its images, their lines in `metadata.jsonl`, its checkpoint. It
counts once its checkpoint exists; whatever is beyond the last checkpoint is cut off or made again.
`run.json` holds the run's settings; the process that writes holds `.lock`.
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
    """A folder for one run.

    Args:
        path: created when something is to be written.
        window: size of the run's window.
    """

    def __init__(self, path: Path, window: int) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / CHECKPOINTS, window)
        self._safe = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; the lock is released with its process, however that ends.

        Raises:
            OSError: another run is being made there, or the folder cannot be written.
        """
        created = not self.path.exists()
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            # a server may begin and end a run in different threads
            lock = FileLock(self.path / LOCK, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                advice = "wait until it ends, or name another folder"
                raise BlockingIOError(f"another run is writing to {self.path}: {advice}") from None
        try:
            yield
        finally:
            with suppress(OSError):  # it stays in a folder that became unwritable
                os.unlink(self.path / LOCK)
            lock.release()
            if created:
                with suppress(OSError):  # not empty: a run has begun
                    self.path.rmdir()

    def is_empty(self) -> bool:
        """Whether it holds nothing, or only what a run left that was stopped before it began."""
        return not self.path.exists() or all(
            entry.name == LOCK or (entry.name.startswith(UNFINISHED[0]) and entry.is_file())
            for entry in self.path.iterdir()
        )

    def recover(self) -> Progress | None:
        """Cut off what is beyond the last checkpoint; returns its progress, or None where the run
        has to begin anew.

        Raises:
            ValueError: a damaged checkpoint, metadata that it does not fit, or images without one.
            OSError: the folder cannot be written.
        """
        progress = self.checkpoints.last()
        metadata, timings = self.path / METADATA, self.path / TIMINGS
        if progress is None:
            if metadata.is_file() and not self.checkpoints.removed.exists():
                raise ValueError(
                    f"{self.path} has images, but not the checkpoints in {CHECKPOINTS} from which "
                    "their run goes on: copy that hidden folder, too, or begin anew with "
                    "--overwrite, which deletes the images"
                )
            return None
        kept = 0
        if metadata.is_file():
            with metadata.open("rb") as lines:
                kept = sum(map(len, islice(lines, progress.done)))
        if kept != progress.metadata_bytes:
            raise ValueError(
                f"{metadata} has changed: its lines of {counted(progress.done, 'image')} have "
                f"{kept} bytes, and had {progress.metadata_bytes}; put the original back, or begin "
                "anew with --overwrite, which deletes the images"
            )
        with self._writing():
            self._clean()
            if metadata.is_file():
                os.truncate(metadata, progress.metadata_bytes)
            if timings.is_file():  # whose last line may be unfinished
                os.truncate(timings, timings.read_bytes().rfind(b"\n") + 1)
        self._safe = progress.done
        return progress

    def begin(self, manifest: Manifest, opening: Checkpoint) -> None:
        """Delete the run in it, if any, and begin this one."""
        with self._writing():
            # without checkpoints, `recover` sees no run in what is left of the old one
            self.checkpoints.remove()
            manifest.save(self.path)
            remove_images(self.path)
            self._clean()
            sync_folder(self.path)
            self.checkpoints.add(opening)

    def save_image(self, number: int, image: Image, about: Row | None) -> None:
        """Write an image, and into it what is said about it."""
        with self._writing():
            save_image(self.path / image_name(number), image, about)

    def finish_batch(self, rows: list[Row], timings: list[Row], batch: Checkpoint) -> None:
        """Write the lines and the checkpoint of a batch whose images are saved."""
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
        except BlockingIOError:
            raise
        except OSError as error:
            are = "is" if self._safe == 1 else "are"
            safe = f"; {counted(self._safe, 'image')} {are} safe there, --resume goes on"
            done = safe if self._safe else ""
            reason = error.strerror or str(error)
            raise OSError(f"cannot write to {self.path}: {reason}{done}") from error
