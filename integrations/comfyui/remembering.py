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
"""How many samples are remembered."""

logger = logging.getLogger(__name__)

_session: dict[str, Memory] = {}
"""The memories of this session of ComfyUI, by name and kind of sample."""


@dataclass(frozen=True)
class Remembering:
    """A memory for each kind of sample that one node meets.

    Attributes:
        kind: "this batch" remembers nothing, "session" until ComfyUI ends, "file" on disk.
        name: of the memory; nodes that name the same one share it.
        folder: of files.

    Raises:
        ValueError: an unknown kind, or a name that is used and cannot be a file's.
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
        """Whether samples are remembered beyond their batch."""
        return self.kind != "this batch"

    def open(self, sample: str) -> Memory:
        """The memory for a kind of sample: model, shape, width of prompts.

        Raises:
            ValueError: its file is damaged, or no memory.
        """
        path = self._path(sample)
        match self.kind:
            case "session":
                return _session.setdefault(path.stem, Memory(_window()))
            case "file" if path.exists():
                return Memory(SlidingWindow.load(path, device="cpu"))
        return Memory(_window())

    def keep(self, memory: Memory, sample: str) -> None:
        """After samples have entered: write the file, if it is one. Where that fails, the samples
        are finished all the same, so that it is only logged."""
        if self.kind != "file":
            return
        path = self._path(sample)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            memory.window.save(path)
        except OSError as error:
            logger.warning(
                "the new images are not remembered, as %s cannot be written: %s", path, error
            )

    def _path(self, sample: str) -> Path:
        return self.folder / f"{self.name} {sample}.safetensors"


def _window() -> SlidingWindow:
    # where ComfyUI needs no room for models; half precision is enough for similarities
    return SlidingWindow(SIZE, dtype=torch.float16, device="cpu")
