"""Where finished samples are kept between runs of a workflow.

Each run writes its samples to a file of their own, beside the images: `memory/DIGEST.safetensors`,
whose header names the file before it. So one digest stands for a whole memory, a sample is written
once, and an image's metadata say what it began with.
"""

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.window import Finished, SlidingWindow
from vendi_guidance.storage.files import memory_name, sha256_of, whole_file
from vendi_guidance.storage.tensors import load_tensors

BATCH = "this batch"
KINDS = ("session", BATCH, "file")

SIZE = 300
"""Number of samples that a memory holds."""

NOTHING = "nothing"
"""In place of a digest, that of an empty memory."""

logger = logging.getLogger(__name__)

_session = TemporaryDirectory(prefix="vendi-guidance-")
"""The folder of memories that last as long as the process."""


@dataclass(frozen=True)
class MemoryStore:
    """Loads and saves the memories of a node while one workflow runs, one for each kind of sample.

    Raises:
        ValueError: an unknown kind, a name that is needed and is not a valid file name, or no
            digests in `begin_with`.
    """

    # "session" remembers each model's images of a prompt until ComfyUI exits, "this batch" nothing,
    # "file" all images of a kind for good
    kind: str
    name: str  # nodes with the same name share a memory
    folder: Path  # has a file with the digest of each memory of the kind "file"
    images: Path = Path()  # where images are saved; `memory` there has the files
    # what `note` was called with: begin so again, and let no other workflow see what is remembered
    # from there. Empty to begin with what is remembered
    begin_with: str = ""
    note: Callable[[str], None] = lambda text: None  # told what samplings began with, in order
    _first: dict[Path, str] = field(default_factory=dict, init=False)  # digests
    _last: dict[Path, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"memory must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.is_lasting and not re.fullmatch(r"[\w-][\w .-]{0,99}", self.name):
            raise ValueError(
                "the name of a memory begins with a letter, a digit, - or _, and has only these, "
                f"spaces and dots, at most 100 in all; got {self.name!r}"
            )
        if not re.fullmatch(rf"(\s|{NOTHING}|\b[0-9a-f]{{64}}\b)*", self.begin_with):
            raise ValueError(
                f"begin_with is what saved images have there, or empty; got {self.begin_with!r}"
            )

    @property
    def is_lasting(self) -> bool:
        """Whether memories outlive their batch."""
        return self.kind != BATCH

    def load(self, sample: str, of: str = "") -> Memory:
        """The memory for a kind of sample (model, latent shape, width of prompt embeddings), in a
        session for those `of` one model and prompt.

        Raises:
            ValueError: a file is damaged, not a memory, or missing for `begin_with`.
        """
        if not self.is_lasting:
            return Memory(_window())
        memory = self._file(sample, of)
        digest = memory.read_text() if memory.exists() else NOTHING
        if self.begin_with:
            given = dict(enumerate(self.begin_with.split()))
            digest = self._last.get(memory, given.get(len(self._first), NOTHING))
        self._last[memory] = digest
        self._first.setdefault(memory, digest)
        self.note(" ".join(self._first.values()))
        return Memory(self._recall(digest, sample))

    def add(self, finished: list[Finished], sample: str, of: str = "") -> None:
        """Remember finished samples, after those of the memory that was loaded. A failure is only
        logged, because the samples are finished."""
        if not finished:
            return
        memory, new = self._file(sample, of), self.images / memory_name("new")
        window = _window(len(finished[0][0]))
        window.append(*finished[0])
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            window.save(new, {"before": self._last[memory], "sample": sample})
            digest = new.replace(self.images / memory_name(sha256_of(new))).stem
            self._last[memory] = digest
            if not self.begin_with:
                memory.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(memory) as temporary:
                    temporary.write_text(digest)
        except OSError as error:
            logger.warning("the new images are not remembered: %s", error)

    def forget(self) -> None:
        """Empty all memories of this kind and name. OSError if a file cannot be deleted."""
        for path in self._folder.glob("*.txt"):
            if self.is_lasting and path.stem.rsplit(" ", 4)[0] == self.name:
                path.unlink()

    @property
    def _folder(self) -> Path:
        return Path(_session.name) if self.kind == "session" else self.folder

    def _file(self, sample: str, of: str) -> Path:
        """The file with a memory's digest."""
        return self._folder / f"{self.name} {sample} {of if self.kind == 'session' else 'all'}.txt"

    def _recall(self, digest: str, sample: str) -> SlidingWindow:
        """The samples of the file with this digest and of those before it, added at once, so that a
        digest always gives the same window, bit for bit."""
        window, found = _window(), list[Finished]()
        while digest != NOTHING and sum(len(it) for it, _ in found) < SIZE:
            path = self.images / memory_name(digest)
            if not path.exists():
                if self.begin_with:
                    raise ValueError(f"begin_with needs {path}: put it back, or clear begin_with")
                logger.warning("%s is gone, and what was remembered up to it", path)
                break
            header, _ = load_tensors(path, ())
            if header["sample"] != sample:  # the workflow has changed
                break
            part = SlidingWindow.load(path, "cpu")
            found.insert(0, (part.features.unflatten(1, part.latent_shape), part.prompts))
            digest = header["before"]
        if found:
            window.append(*(torch.cat(each)[-SIZE:] for each in zip(*found, strict=True)))
        return window


def digest(model: Any, prompts: Tensor) -> str:
    """Identifies a model, by a bias that LoRAs leave as it is, and (b, m) prompt embeddings."""
    weights = getattr(model, "diffusion_model", nn.Module()).parameters()
    parts = [next((it for it in weights if it.ndim == 1), prompts.new_zeros(0)).float()]
    # whole numbers, and each prompt once: embeddings may differ by rounding between batches
    parts.append((100 * unit_rows(prompts.float())).round().unique(dim=0))
    numbers = torch.cat([part.detach().cpu().flatten() for part in parts])
    return hashlib.sha256(numbers.numpy().tobytes()).hexdigest()[:16]


def _window(size: int = SIZE) -> SlidingWindow:
    # on the CPU, to leave GPU memory to ComfyUI; half precision is enough for similarities
    return SlidingWindow(size, dtype=torch.float16, device="cpu")
