"""Where finished samples are kept between runs of a workflow."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.window import SlidingWindow

KINDS = ("this batch", "session", "file")

SIZE = 300
"""Number of samples that a memory holds."""

logger = logging.getLogger(__name__)

_session: dict[str, Memory] = {}
"""Memories that last as long as the process, by name and kind of sample."""


@dataclass(frozen=True)
class MemoryStore:
    """Loads and saves the memories of one node, one for each kind of sample.

    Attributes:
        kind: "this batch" stores nothing, "session" stores until ComfyUI exits, "file" on disk.
        name: name of the memory; nodes with the same name share it.
        folder: where files are written.

    Raises:
        ValueError: an unknown kind, or a name that is needed and is not a valid file name.
    """

    kind: str
    name: str
    folder: Path

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"memory must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.is_lasting and not re.fullmatch(r"[\w-][\w .-]{0,99}", self.name):
            raise ValueError(
                "the name of a memory begins with a letter, a digit, - or _, and has only these, "
                f"spaces and dots, at most 100 in all; got {self.name!r}"
            )

    @property
    def is_lasting(self) -> bool:
        """Whether memories outlive their batch."""
        return self.kind != "this batch"

    def load(self, sample: str) -> Memory:
        """The memory for a kind of sample (model, latent shape, width of prompt embeddings).

        Raises:
            ValueError: the file is damaged, or not a memory.
        """
        path = self._path(sample)
        match self.kind:
            case "session":
                return _session.setdefault(path.stem, Memory(_window()))
            case "file" if path.exists():
                return Memory(SlidingWindow.load(path, device="cpu"))
        return Memory(_window())

    def save(self, memory: Memory, sample: str) -> None:
        """Write the memory's file if `kind` is "file". A failure is only logged, because the
        samples are already finished."""
        if self.kind != "file":
            return
        path = self._path(sample)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            memory.window.save(path)
        except OSError as error:
            logger.warning(
                "the new images are not remembered: %s cannot be written: %s", path, error
            )

    def _path(self, sample: str) -> Path:
        return self.folder / f"{self.name} {sample}.safetensors"


def _window() -> SlidingWindow:
    # on the CPU, to leave GPU memory to ComfyUI; half precision is enough for similarities
    return SlidingWindow(SIZE, dtype=torch.float16, device="cpu")
