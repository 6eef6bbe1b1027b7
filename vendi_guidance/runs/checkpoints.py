"""The state of a run: one small file for each finished batch, from which its window is rebuilt.

A file holds what entered the window with its batch, so its size is that of a batch, whatever the
size of the window. Files whose samples have all left the window are deleted. Once the complete file
exists, its batch counts as finished.
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
    """How far a run has come."""

    done: int  # finished images
    metadata_bytes: int  # length of `metadata.jsonl` at that point
    batch_size: int  # images that each process now makes at a time
    entered_before: int = 0  # samples that had entered the window before this batch
    entered: int = 0  # samples that had entered it after this batch
    side_by_side: int = 1  # prompts made side by side: the number of processes at the start
    skipped: int = 0  # guidance steps skipped so far, see `VendiGuidance.skipped`
    sigma_prompt: float | None = None  # the prompt bandwidth that guidance has settled on


@dataclass(frozen=True)
class Checkpoint:
    """A finished batch."""

    progress: Progress  # after it
    latents: Tensor | None = None  # (b, ...), what entered the window with it
    prompts: Tensor | None = None  # (b, m)


class RunWindow(SlidingWindow):
    """A `SlidingWindow` that can be rebuilt from the batches that entered it."""

    opening: Checkpoint | None = None  # of the run that is restored

    entered = 0
    """How many samples have entered so far, including those that have left since, of images of this
    run's size and of any other that it began with."""

    def append(self, features: Tensor, prompts: Tensor | None = None) -> None:
        super().append(features, prompts)
        self.entered += min(len(features), self.size)

    def sample(self, number: int) -> tuple[Tensor, Tensor | None]:
        """The features and the prompt embedding, (m,) or None, of the sample that entered after
        `number` others, of unit length.

        Raises:
            ValueError: it has not entered, or has left.
        """
        number -= self.entered - self._entered  # of another shape, at the beginning
        if not max(0, self._entered - self.size) <= number < self._entered:
            raise ValueError("The image has left the memory: generate again.")
        place, shape, prompts = number % self.size, self.latent_shape or (), self.prompts
        return self.features[place].view(shape), None if prompts is None else prompts[place]

    def enter_again(self, batch: Checkpoint, device: str) -> None:
        """Add the samples of a batch, from this device.

        The last `size` samples, in their batches and order, rebuild the window bit by bit: each
        sample returns to its slot, and is multiplied with as many rows at a time.

        Raises:
            ValueError: earlier batches are missing, or see `SlidingWindow.append`.
        """
        if batch.latents is None:
            return
        before = batch.progress.entered_before
        if self.entered not in (0, before):
            raise ValueError(f"{self.entered} samples have entered, not {before}")
        if self.entered == 0 and before:  # the first to have entered have left
            shape, opening = batch.latents.shape[1:], self.opening
            self._show(tuple(shape))
            self._entered += before
            if opening is not None and opening.latents is not None:
                # in a place of their own if they are of another shape
                self._entered -= len(opening.latents) * (opening.latents.shape[1:] != shape)
        self.entered = before
        prompts = None if batch.prompts is None else batch.prompts.to(device)
        self.append(batch.latents.to(device), prompts)

    def keep(self, batch: Checkpoint) -> None:
        """Remember the samples of a batch, if it has samples and there are none of their shape."""
        if batch.latents is not None:
            window = SlidingWindow(self.size, dtype=self.dtype, device=self.device)
            window.append(batch.latents, batch.prompts)
            self.adopt(window)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a folder, which need not exist yet.

    Attributes:
        folder: holds checkpoints and nothing else.
        window: size of the run's window.
    """

    folder: Path
    window: int

    def add(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then delete those no longer needed."""
        progress = checkpoint.progress
        self.folder.mkdir(exist_ok=True)
        save_tensors(
            self.folder / f"{progress.done:012d}-{progress.entered:012d}.safetensors",
            {"latents": checkpoint.latents, "prompts": checkpoint.prompts},
            {"format": FORMAT, "version": VERSION, **asdict(progress)},
        )
        sync_folder(self.folder)
        self._remove_useless()

    def last(self) -> Progress | None:
        """How far the run has come; None where it has not begun.

        Raises:
            ValueError: a damaged file, named in the message.
        """
        paths = self._paths()
        return _read(paths[-1]).progress if paths else None

    def restore(self, window: RunWindow, device: str) -> None:
        """Rebuild an empty window from the files, its samples coming from this device.

        Raises:
            ValueError: a damaged file, or one that is missing.
        """
        left = None  # how many samples entered before those that are kept
        for path in self._paths():
            batch = _read(path)
            left = batch.progress.entered_before if left is None else left
            try:
                window.enter_again(batch, device)
            except ValueError as error:
                raise ValueError(f"{path} does not fit those before it: {error}") from None
        if left and window.entered - left < window.size:
            raise ValueError(f"in {self.folder}, checkpoints are missing")

    @property
    def removed(self) -> Path:
        """The folder of checkpoints that `remove` has taken away, until `clean` deletes it."""
        return self.folder.with_name(f"{self.folder.name}-removed")

    def clean(self) -> None:
        """Delete what was removed, and what a killed process left: unfinished files and useless
        checkpoints."""
        shutil.rmtree(self.removed, ignore_errors=True)
        remove_unfinished(self.folder)
        self._remove_useless()

    def remove(self) -> None:
        """Take all checkpoints away at once: a crash leaves all or none of them."""
        if self.folder.exists():
            shutil.rmtree(self.removed, ignore_errors=True)
            self.folder.replace(self.removed)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*-[0-9]*.safetensors"))

    def _remove_useless(self) -> None:
        paths = self._paths()
        gone, before = _entered(paths[-1]) - self.window if paths else 0, 0
        for path in paths[:-1]:
            if _entered(path) <= max(gone, before):  # nothing entered, or all of it has left
                path.unlink()
            before = _entered(path)


def _entered(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


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
        raise ValueError(f"{path} is not a checkpoint this version can read")
    for tensor in tensors.values():
        if not (tensor.is_floating_point() and tensor.ndim > 1):
            raise ValueError(f"{path} holds {tensor.dtype} of shape {tuple(tensor.shape)}")
    progress = Progress(**{field.name: values[field.name] for field in fields(Progress)})
    return Checkpoint(progress, tensors.get("latents"), tensors.get("prompts"))
