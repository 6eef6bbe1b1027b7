"""The output folder of a run, from which the run can be resumed after a crash at any moment.

A batch is written in this order: its images, their lines in `metadata.jsonl`, its checkpoint. It
counts as finished once its checkpoint exists; what follows the last checkpoint is truncated or
generated again. `run.json` has the run's settings; the process that writes holds `.lock`.

A checkpoint has the samples that entered the window with its batch, so its size does not depend on
the window's. Checkpoints whose samples have all left the window are deleted.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from PIL.Image import Image

from vendi_guidance.guidance.window import Finished, SlidingWindow, counts_of, named, unnamed
from vendi_guidance.runs.plan import Manifest
from vendi_guidance.storage.files import (
    DAMAGED,
    MEMORY,
    UNFINISHED,
    append_rows,
    check_format,
    headed,
    keep_memory,
    memory_name,
    remove_unfinished,
    sync,
)
from vendi_guidance.storage.imagefolder import (
    METADATA,
    TIMINGS,
    image_name,
    remove_images,
    save_image,
)
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.tensors import load_tensors, save_tensors

LOCK = ".lock"
CHECKPOINTS = ".checkpoints"
FORMAT = "vendi-guidance checkpoint"

Row = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """Progress of a run after a batch."""

    done: int  # number of finished images
    metadata_bytes: int  # length of `metadata.jsonl`
    batch_size: int  # images that each process generates at a time
    entered: dict[str, int] = field(default_factory=dict)  # samples in the window so far, by shape
    side_by_side: int = 1  # prompts that take turns: the number of processes at the start
    skipped: int = 0  # guidance steps skipped so far, see `VendiGuidance.skipped`
    sigma_prompt: float | None = None  # the prompt bandwidth that guidance has chosen


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run."""

    folder: Path  # has only checkpoints; need not exist yet
    window: int  # size of the run's window
    _entered: dict[Path, dict[str, int]] = field(default_factory=dict, init=False)  # of each file

    def add(self, progress: Progress, samples: Sequence[Finished]) -> None:
        """Write the checkpoint of a batch, then delete those that are no longer needed."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{progress.done:012d}.safetensors"
        save_tensors(path, named(samples), headed(FORMAT, asdict(progress)))
        self._entered[path] = progress.entered
        sync(self.folder)
        self.remove_unneeded()

    def last(self) -> Progress | None:
        """The progress of the run; None if it has not begun. ValueError that names the file if one
        is damaged or of another version."""
        paths = self._paths()
        return _read(paths[-1])[0] if paths else None

    def restore(self, window: SlidingWindow, device: str) -> Progress | None:
        """Bring a window from before the run to its state after the last batch, adding samples from
        a device; returns what `last` does. ValueError if a file is damaged or missing.

        The last `size` samples are added in their original batches and return to their slots. This
        rebuilds the window bit by bit, as matrix products have the same shapes.
        """
        entered: Counter[str] = Counter()  # samples so far, by shape
        left: Counter[str] = Counter()  # those up to the last whose checkpoint has been deleted
        last: Progress | None = None
        for path in self._paths():
            last, batch = _read(path, device)
            before = Counter(last.entered) - counts_of(batch)
            try:
                for samples in batch:
                    [shape] = counts_of([samples])
                    if entered[shape] < before[shape]:
                        _fill(window, before[shape] - entered[shape], samples)
                        left[shape] = entered[shape] = before[shape]
                    window.append(*samples)
                    entered[shape] += len(samples[0])
            except ValueError as error:
                raise ValueError(f"{path} does not fit those before it: {error}") from None
        is_whole = all(entered[it] - n >= window.size for it, n in left.items())
        if not is_whole or (last and entered != last.entered):
            raise ValueError(f"in {self.folder}, checkpoints are missing")
        return last

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.safetensors"))

    def remove_unneeded(self) -> None:
        """Delete checkpoints whose samples have all left the window."""
        paths = self._paths()
        for path in set(paths) - self._entered.keys():
            self._entered[path] = _read(path, names=())[0].entered
        counts = [self._entered[path] for path in paths]
        for path, before, after in zip(paths[:-1], [{}, *counts], counts, strict=False):
            gone = {it: max(before.get(it, 0), n - self.window) for it, n in counts[-1].items()}
            if all(n <= gone[it] for it, n in after.items()):  # no samples, or all have left
                path.unlink()


def _fill(window: SlidingWindow, count: int, like: Finished) -> None:
    """Add `count` samples that will leave, in their slots, before samples like these."""
    whole, rest = divmod(count, window.size)
    for size in [rest] * (rest > 0) + [window.size] * (whole > 0):
        latents, *prompts = (x.new_zeros(size, *x.shape[1:]) for x in like if x is not None)
        window.append(latents, *prompts)


def _read(
    path: Path, device: str = "cpu", names: Sequence[str] | None = None
) -> tuple[Progress, list[Finished]]:
    header, tensors = load_tensors(path, names)
    try:
        content = check_format(header, FORMAT)
        progress = Progress(**{field.name: content[field.name] for field in fields(Progress)})
        counts = [*progress.entered.values(), progress.done, progress.metadata_bytes]
        counts += [progress.batch_size, progress.side_by_side, progress.skipped]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"it counts {counts}")
        batch = unnamed(tensors)
    except DAMAGED as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from None
    for tensor in tensors.values():
        if not (tensor.is_floating_point() and tensor.ndim > 1):
            raise ValueError(f"{path} has a {tensor.dtype} tensor of shape {tuple(tensor.shape)}")
    return progress, [(x.to(device), t if t is None else t.to(device)) for x, t in batch]


class RunFolder:
    """The folder of a run whose window has this size, and began as in the file `memory`; created
    when something is written."""

    def __init__(self, path: Path, window: int, memory: Path | None = None) -> None:
        self.path = path
        self.memory = memory
        self.checkpoints = Checkpoints(path / CHECKPOINTS, window)
        self._removed = path / f"{CHECKPOINTS}-removed"  # those of a replaced run
        self._safe = 0  # number of finished images, for messages

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other runs; the lock ends with its process, even if killed.
        OSError if another run is writing there, or the folder cannot be written."""
        created = not self.path.exists()
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            # not per thread: a server may begin and end a run in different threads
            lock = FileLock(self.path / LOCK, thread_local=False)
            with suppress(Timeout):
                lock.acquire(timeout=0)
        if not lock.is_locked:
            advice = "wait until it ends, or name another folder"
            raise BlockingIOError(f"another run is writing to {self.path}: {advice}")
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
        to start from the beginning. ValueError if a checkpoint is damaged or missing, or does not
        match the metadata; OSError if the folder cannot be written."""
        progress = self.checkpoints.last()
        metadata, timings = self.path / METADATA, self.path / TIMINGS
        if progress is None:
            if metadata.is_file() and not self._removed.exists():
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
            if self.memory is not None:
                keep_memory(self.path, self.memory)
            self._clean()
            if metadata.is_file():
                os.truncate(metadata, progress.metadata_bytes)
            if timings.is_file():  # cut an unfinished last line
                os.truncate(timings, timings.read_bytes().rfind(b"\n") + 1)
        self._safe = progress.done
        return progress

    def begin(self, manifest: Manifest, opening: Progress) -> None:
        """Delete the run in the folder, if any, and begin this one."""
        with self._writing():
            # first, in one step: if this is interrupted, `recover` finds the old run whole, or none
            if self.checkpoints.folder.exists():
                shutil.rmtree(self._removed, ignore_errors=True)
                self.checkpoints.folder.replace(self._removed)
            kept = self.memory and keep_memory(self.path, self.memory)
            manifest.save(self.path)
            remove_images(self.path)
            for copy in self.path.glob(memory_name("[0-9a-f]" * 64)):
                if copy != kept:
                    copy.unlink()
            self._clean()
            sync(self.path)
            self.checkpoints.add(opening, [])

    def save_image(self, number: int, image: Image, about: Row | None) -> None:
        with self._writing():
            save_image(self.path / image_name(number), image, about)

    def finish_batch(
        self, rows: list[Row], timings: list[Row], progress: Progress, samples: Sequence[Finished]
    ) -> None:
        with self._writing():
            append_rows(self.path / TIMINGS, timings)
            length = append_rows(self.path / METADATA, rows)
            sync(self.path)
            self.checkpoints.add(replace(progress, metadata_bytes=length), samples)
        self._safe = progress.done

    def _clean(self) -> None:
        """Delete a replaced run's checkpoints, and what a killed process left behind."""
        shutil.rmtree(self._removed, ignore_errors=True)
        for folder in (self.path, self.path / MEMORY, self.checkpoints.folder):
            remove_unfinished(folder)
        self.checkpoints.remove_unneeded()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Add the folder and the remedy to an error of the operating system."""
        try:
            yield
        except OSError as error:
            message = f"cannot write to {self.path}: {error.strerror or error}"
            if self._safe:
                saved = counted(self._safe, "image")
                message += f"; {saved} saved so far, and --resume continues the run"
            raise OSError(message) from error
