"""Where finished samples are kept between runs of a workflow."""

import hashlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.window import SlidingWindow

BATCH = "this batch"
KINDS = ("session", BATCH, "file")

SIZE = 300
"""Number of samples that a memory holds."""

PROMPTS = 100
"""Number of memories that a session keeps, those used last."""

logger = logging.getLogger(__name__)

_session: dict[str, Memory] = {}
"""Memories that last as long as the process, by name, kind of sample, model and prompt."""


@dataclass(frozen=True)
class MemoryStore:
    """Loads and saves the memories of one node, one for each kind of sample.

    Attributes:
        kind: "session" stores each model's images of a prompt until ComfyUI exits, "this batch"
            stores nothing, "file" stores all images of a kind on disk.
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
        return self.kind != BATCH

    def load(self, sample: str, of: str = "") -> Memory:
        """The memory for a kind of sample (model, latent shape, width of prompt embeddings), in a
        session for those `of` one model and prompt.

        Raises:
            ValueError: the file is damaged, or not a memory.
        """
        path = self._path(sample)
        match self.kind:
            case "session":
                key = f"{path.stem} {of}"
                _session[key] = _session.pop(key, Memory(_window()))
                for oldest in [*_session][:-PROMPTS]:
                    _session.pop(oldest, None)
                return _session[key]
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

    def forget(self) -> None:
        """Empty all memories of this kind and name. OSError if a file cannot be deleted."""
        if self.kind == "session":
            for key in [*_session]:
                if key.rsplit(" ", 4)[0] == self.name:
                    _session.pop(key, None)
        elif self.kind == "file":
            for path in self.folder.glob("*.safetensors"):
                if path.stem.rsplit(" ", 3)[0] == self.name:
                    path.unlink()

    def _path(self, sample: str) -> Path:
        return self.folder / f"{self.name} {sample}.safetensors"


def digest(model: Any, prompts: Tensor) -> str:
    """Identifies a model, by a bias that LoRAs leave as it is, and (b, m) prompt embeddings."""
    weights = getattr(model, "diffusion_model", nn.Module()).parameters()
    parts = [next((it for it in weights if it.ndim == 1), prompts.new_zeros(0)).float()]
    # whole numbers, and each prompt once: embeddings may differ by rounding between batches
    parts.append((100 * unit_rows(prompts.float())).round().unique(dim=0))
    numbers = torch.cat([part.detach().cpu().flatten() for part in parts])
    return hashlib.sha256(numbers.numpy().tobytes()).hexdigest()[:16]


def _window() -> SlidingWindow:
    # on the CPU, to leave GPU memory to ComfyUI; half precision is enough for similarities
    return SlidingWindow(SIZE, dtype=torch.float16, device="cpu")
