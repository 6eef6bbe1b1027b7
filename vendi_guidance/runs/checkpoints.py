"""Checkpoints of a run: one small file per finished batch, from which its window is rebuilt.

A file holds the samples that entered the window with its batch, so its size does not depend on the
window's. A batch counts as finished once its complete file exists. Files whose samples have all
left the window are deleted.
"""

import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from torch import Tensor

from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.storage.files import remove_unfinished, sync_folder
from vendi_guidance.storage.tensors import load_tensors, save_tensors

FORMAT = "vendi-guidance checkpoint"
VERSION = 1


@dataclass(frozen=True)
class Progress:
    """Progress of a run after a batch."""

    done: int  # number of finished images
    metadata_bytes: int  # length of `metadata.jsonl`
    batch_size: int  # images that each process generates at a time
    entered_before: int = 0  # samples that had entered the window before this batch
    entered: int = 0  # samples that had entered it after this batch
    side_by_side: int = 1  # prompts that take turns: the number of processes at the start
    skipped: int = 0  # guidance steps skipped so far, see `VendiGuidance.skipped`
    sigma_prompt: float | None = None  # the prompt bandwidth that guidance has chosen


@dataclass(frozen=True)
class Checkpoint:
    """A finished batch: the progress after it, and the samples that entered the window with it."""

    progress: Progress
    latents: Tensor | None = None  # (b, ...)
    prompts: Tensor | None = None  # (b, m) prompt embeddings


class RunWindow(SlidingWindow):
    """A `SlidingWindow` that can be rebuilt from the batches that entered it."""

    opening: Checkpoint | None = None  # the first checkpoint of the run that is restored

    entered = 0
    """Number of samples that have entered, including those that have left again and those of other
    image sizes that the run began with."""

    def append(self, features: Tensor, prompts: Tensor | None = None) -> None:
        super().append(features, prompts)
        self.entered += min(len(features), self.size)

    def sample(self, number: int) -> tuple[Tensor, Tensor | None]:
        """Features and unit-length prompt embedding ((m,) or None) of the sample that entered after
        `number` others.

        Raises:
            ValueError: it has not entered yet, or has left.
        """
        number -= self.entered - self._entered  # samples of another shape entered first
        if not max(0, self._entered - self.size) <= number < self._entered:
            raise ValueError("The image has left the memory: generate again.")
        slot, shape, prompts = number % self.size, self.latent_shape or (), self.prompts
        return self.features[slot].view(shape), None if prompts is None else prompts[slot]

    def enter_again(self, batch: Checkpoint, device: str) -> None:
        """Add the samples of a batch from a device when a run is restored.

        Adding the last `size` samples in their original batches and order rebuilds the window bit
        by bit: each sample returns to its slot, and matrix products have the same shapes.

        Raises:
            ValueError: earlier batches are missing, or see `SlidingWindow.append`.
        """
        if batch.latents is None:
            return
        before = batch.progress.entered_before
        if self.entered not in (0, before):
            raise ValueError(f"{self.entered} samples have entered, not {before}")
        if self.entered == 0 and before:  # checkpoints of samples that have left were deleted
            shape = batch.latents.shape[1:]
            self._show(tuple(shape))
            self._entered += before
            first = None if self.opening is None else self.opening.latents
            if first is not None and first.shape[1:] != shape:  # these have slots of their own
                self._entered -= len(first)
        self.entered = before
        prompts = None if batch.prompts is None else batch.prompts.to(device)
        self.append(batch.latents.to(device), prompts)

    def keep(self, batch: Checkpoint) -> None:
        """Adopt the samples of a batch unless there are samples of their shape already."""
        if batch.latents is not None:
            window = SlidingWindow(self.size, dtype=self.dtype, device=self.device)
            window.append(batch.latents, batch.prompts)
            self.adopt(window)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run."""

    folder: Path  # has only checkpoints; need not exist yet
    window: int  # size of the run's window

    def add(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then delete those that are no longer needed."""
        progress = checkpoint.progress
        self.folder.mkdir(exist_ok=True)
        save_tensors(
            self.folder / f"{progress.done:012d}-{progress.entered:012d}.safetensors",
            {"latents": checkpoint.latents, "prompts": checkpoint.prompts},
            {"format": FORMAT, "version": VERSION, **asdict(progress)},
        )
        sync_folder(self.folder)
        self._remove_unneeded()

    def last(self) -> Progress | None:
        """The progress of the run; None if it has not begun.

        Raises:
            ValueError: a file is damaged; the message names it.
        """
        paths = self._paths()
        return _read(paths[-1]).progress if paths else None

    def restore(self, window: RunWindow, device: str) -> None:
        """Rebuild an empty window from the files, adding their samples from a device.

        Raises:
            ValueError: a file is damaged or missing.
        """
        first = None  # number of samples that entered before those in the files
        for path in self._paths():
            batch = _read(path)
            first = batch.progress.entered_before if first is None else first
            try:
                window.enter_again(batch, device)
            except ValueError as error:
                raise ValueError(f"{path} does not fit those before it: {error}") from None
        if first and window.entered - first < window.size:
            raise ValueError(f"in {self.folder}, checkpoints are missing")

    @property
    def removed(self) -> Path:
        """Where `remove` moves the checkpoints, until `clean` deletes them."""
        return self.folder.with_name(f"{self.folder.name}-removed")

    def clean(self) -> None:
        """Delete removed checkpoints, and what a killed process left behind: unfinished files and
        checkpoints that are no longer needed."""
        shutil.rmtree(self.removed, ignore_errors=True)
        remove_unfinished(self.folder)
        self._remove_unneeded()

    def remove(self) -> None:
        """Remove all checkpoints in one step: a crash leaves either all of them or none."""
        if self.folder.exists():
            shutil.rmtree(self.removed, ignore_errors=True)
            self.folder.replace(self.removed)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*-[0-9]*.safetensors"))

    def _remove_unneeded(self) -> None:
        paths = self._paths()
        entered = [int(path.stem.rpartition("-")[2]) for path in paths]  # `Progress.entered`
        for path, before, after in zip(paths[:-1], [0, *entered], entered, strict=False):
            if after <= max(before, entered[-1] - self.window):  # no samples, or all have left
                path.unlink()


def _read(path: Path) -> Checkpoint:
    header, tensors = load_tensors(path)
    values = header if isinstance(header, dict) else {}
    counts = [values.get(field.name) for field in fields(Progress) if field.type is int]
    sigma = values.get("sigma_prompt", 0.0)
    if (
        (values.get("format"), values.get("version")) != (FORMAT, VERSION)
        or not all(type(count) is int and count >= 0 for count in counts)
        or 0 in (values["batch_size"], values["side_by_side"])
        or not (sigma is None or (isinstance(sigma, float) and sigma > 0))
    ):
        raise ValueError(f"{path} is not a checkpoint that this version can read")
    for tensor in tensors.values():
        if not (tensor.is_floating_point() and tensor.ndim > 1):
            raise ValueError(f"{path} has a {tensor.dtype} tensor of shape {tuple(tensor.shape)}")
    progress = Progress(**{field.name: values[field.name] for field in fields(Progress)})
    return Checkpoint(progress, tensors.get("latents"), tensors.get("prompts"))
