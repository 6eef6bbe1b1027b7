"""What a run needs to go on: one small file for each finished batch, and a window made of them.

A file holds what entered the window with its batch. So a batch costs a write of its own size,
whatever the size of the window; files whose samples have all left the window are deleted. The
appearance of a file, whole, is the moment from which its batch counts as finished.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.storage.files import remove_unfinished, sync_folder, whole_file

FORMAT = "vendi-guidance checkpoint"
VERSION = 1


class RunWindow(SlidingWindow):
    """A `SlidingWindow` whose samples can enter later, and again.

    Attributes:
        entered: how many samples have entered so far, those that left again included.
    """

    _held: list[tuple[Tensor, Tensor | None]] | None = None

    @property
    def entered(self) -> int:
        return self._entered

    def append(self, latents: Tensor, prompts: Tensor | None = None) -> None:
        if self._held is None:
            super().append(latents, prompts)
        else:
            self.check(latents, prompts)
            self._held.append((latents, prompts))

    @contextmanager
    def holding(self) -> Iterator[list[tuple[Tensor, Tensor | None]]]:
        """Meanwhile what would enter goes to the list that is given instead."""
        held: list[tuple[Tensor, Tensor | None]] = []
        self._held = held
        try:
            yield held
        finally:
            self._held = None

    def enter_again(self, latents: Tensor, prompts: Tensor | None, entered: int) -> None:
        """Let a batch enter as it once did, when `entered` samples had entered before it.

        The last `size` samples entered again, in the batches and the order in which they once
        came, make the window that it was, bit by bit: each comes to lie where it lay, and is
        multiplied with as many rows at a time.

        Raises:
            ValueError: batches before it are missing.
        """
        if self._entered not in (0, entered):
            raise ValueError(f"{self._entered} samples have entered, not {entered}")
        self._entered = entered
        self.append(latents, prompts)


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        done: how many pictures are finished.
        metadata_bytes: how long `metadata.jsonl` is then.
        batch_size: how many pictures a process makes at a time by now.
        entered_before, entered: how many samples had entered the window before this batch, and
            with it.
        side_by_side: how many prompts are made side by side: one for each process that began.
        skipped: guidance steps left out so far, see `VendiGuidance.skipped`.
        sigma_prompt: the prompt bandwidth that guidance has settled on, or None.
    """

    done: int
    metadata_bytes: int
    batch_size: int
    entered_before: int = 0
    entered: int = 0
    side_by_side: int = 1
    skipped: int = 0
    sigma_prompt: float | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A finished batch.

    Attributes:
        progress: the state after it.
        latents, prompts: (b, ...) and (b, m), what entered the window with it, or None.
    """

    progress: Progress
    latents: Tensor | None = None
    prompts: Tensor | None = None

    def enter(self, window: RunWindow, device: str) -> None:
        """Let its samples enter, from this device."""
        if self.latents is not None:
            prompts = None if self.prompts is None else self.prompts.to(device)
            window.enter_again(self.latents.to(device), prompts, self.progress.entered_before)


class Checkpoints:
    """The checkpoints in a folder, which need not exist yet.

    Args:
        folder: where they lie, and nothing else.
        window: size of the window that they serve.
    """

    def __init__(self, folder: Path, window: int) -> None:
        self.folder = folder
        self.window = window

    def add(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then delete those that are of no use any more."""
        tensors = {"latents": checkpoint.latents, "prompts": checkpoint.prompts}
        progress = checkpoint.progress
        header = {"format": FORMAT, "version": VERSION, **asdict(progress)}
        self.folder.mkdir(exist_ok=True)
        name = f"{progress.done:012d}-{progress.entered:012d}.safetensors"
        with whole_file(self.folder / name) as temporary:
            # not by save_file, whose errors do not say what the system said
            temporary.write_bytes(
                save(
                    {
                        name: value.detach().contiguous().cpu()
                        for name, value in tensors.items()
                        if value is not None
                    },
                    {"header": json.dumps(header)},
                )
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
        """Let everything that is kept enter an empty window, from this device.

        Raises:
            ValueError: a damaged file, or one that is missing.
        """
        left = None  # how many samples had entered before those that are kept
        for path in self._paths():
            checkpoint = _read(path)
            left = checkpoint.progress.entered_before if left is None else left
            try:
                checkpoint.enter(window, device)
            except ValueError as error:
                raise ValueError(f"{path} does not fit those before it: {error}") from None
        if left and window.entered - left < window.size:
            raise ValueError(f"in {self.folder}, checkpoints are missing")

    def clean(self) -> None:
        """Delete what a killed process left of a file it was writing, or did not come to delete."""
        remove_unfinished(self.folder)
        self._remove_useless()

    def remove(self) -> None:
        """Delete all checkpoints: at no moment is there a part of them."""
        if self.folder.exists():
            removed = self.folder.with_name(f"{self.folder.name}-removed")
            shutil.rmtree(removed, ignore_errors=True)
            self.folder.replace(removed)
            shutil.rmtree(removed)

    def _paths(self) -> list[Path]:
        """All files, the oldest first."""
        return sorted(self.folder.glob("[0-9]*-[0-9]*.safetensors"))

    def _remove_useless(self) -> None:
        paths = self._paths()
        gone, before = _entered(paths[-1]) - self.window if paths else 0, 0
        for path in paths[:-1]:
            if _entered(path) <= max(gone, before):  # nothing entered, or all has left
                path.unlink()
            before = _entered(path)


def _entered(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _read(path: Path) -> Checkpoint:
    try:
        with safe_open(path, "pt") as stored:
            header = json.loads((stored.metadata() or {}).get("header", "{}"))
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    if not isinstance(header, dict) or not _is_progress(header):
        raise ValueError(f"{path} is not a checkpoint this version can read")
    progress = Progress(**{field.name: header[field.name] for field in fields(Progress)})
    latents, prompts = tensors.get("latents"), tensors.get("prompts")
    for tensor in (latents, prompts):
        if tensor is not None and not (tensor.is_floating_point() and tensor.ndim > 1):
            raise ValueError(f"{path} holds {tensor.dtype} of shape {tuple(tensor.shape)}")
    return Checkpoint(progress, latents, prompts)


def _is_progress(header: dict[str, Any]) -> bool:
    sigma = header.get("sigma_prompt")
    counts = [header.get(field.name) for field in fields(Progress) if field.type is int]
    return (
        (header.get("format"), header.get("version")) == (FORMAT, VERSION)
        and all(type(count) is int and count >= 0 for count in counts)
        and header["batch_size"] > 0
        and header["side_by_side"] > 0
        and "sigma_prompt" in header
        and (sigma is None or (isinstance(sigma, float) and sigma > 0))
    )
