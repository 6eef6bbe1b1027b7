"""Features on disk, by the embedder and the image's content.

Each embedder has a folder of chunks: safetensors files with the features of some images and the
SHA-256 of their bytes. Chunks are written completely or not at all, and several processes may add
chunks at once.
"""

import hashlib
import json
import logging
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.tensors import load_tensors, save_tensors

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Features in a file, and so the most that a killed run loses."""


class FeatureCache:
    """Features of images by one embedder; what was there when it was opened can be read.

    Args:
        folder: of all embedders; created if need be.
        embedder: its name and settings are the key of its own folder.

    Raises:
        OSError: the folder cannot be created or read.
    """

    def __init__(self, folder: Path, embedder: ImageEmbedder) -> None:
        about = json.dumps({"name": embedder.name, "settings": embedder.settings}, sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()[:16]
        self.folder = folder / f"{embedder.name}-{key}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self.folder / "embedder.json") as temporary:
            temporary.write_text(about + "\n", encoding="utf-8")
        self._new: list[tuple[bytes, Tensor]] = []
        self.places: dict[bytes, tuple[Path, int]] = {}
        """The chunk and the row of the features that can be read, by the images' digests."""
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                digests = load_tensors(path, ["sha256"])[1]["sha256"].numpy()
            except (ValueError, OSError) as error:
                logger.warning("features that are damaged are computed again: %s", error)
            else:
                self.places |= {row.tobytes(): (path, i) for i, row in enumerate(digests)}

    def read(self, digest: bytes) -> Tensor:
        """(d,) features of one of the images in `places`."""
        path, row = self.places[digest]
        return _load(path)[row]

    def add(self, digest: bytes, features: Tensor) -> None:
        """Store the (d,) features of an image, on disk with the next full chunk or `flush`."""
        self._new.append((digest, features))
        if len(self._new) == CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what was added to disk, or raise an OSError."""
        if not self._new:
            return
        content = b"".join(digest for digest, _ in self._new)
        rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 32)
        features = torch.stack([features for _, features in self._new])
        # named by content: other processes write other files, or the same
        path = self.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        save_tensors(path, {"features": features, "sha256": rows}, {})
        self._new = []


@lru_cache(maxsize=16)
def _load(path: Path) -> Tensor:
    return load_tensors(path, ["features"])[1]["features"]
