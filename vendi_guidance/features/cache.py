"""Features kept on disk, by what was embedded and by what.

A folder holds one folder for each embedder, with chunks: safetensors files of the features of some
pictures and the SHA-256 of these pictures' bytes. Chunks are whole or not there, and several
processes may add to them at once.
"""

import hashlib
import json
import logging
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.storage.files import whole_file

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Features in a file, and so the most that a killed run embeds anew."""

DIGEST = "S32"
"""A SHA-256 in numpy, which drops zeros at the end: of two of one length, both or neither."""


class FeatureCache:
    """Features of pictures by one embedder; those that lay there when it was opened can be read.

    Args:
        folder: of all embedders; made if it is not there.
        embedder: whose name and settings say which features these are.

    Raises:
        OSError: the folder cannot be made or read.
    """

    def __init__(self, folder: Path, embedder: ImageEmbedder) -> None:
        about = json.dumps({"name": embedder.name, "settings": embedder.settings}, sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()[:16]
        self.folder = folder / f"{embedder.name}-{key}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self.folder / "embedder.json") as temporary:
            temporary.write_text(about + "\n", encoding="utf-8")
        self._chunks: list[Path] = []
        self._read_index()
        self._new: list[tuple[bytes, Tensor]] = []

    def _read_index(self) -> None:
        """Which pictures lie in which row of which chunk, in order of their digests."""
        digests = [np.empty(0, DIGEST)]
        places = [np.empty((0, 2), np.int64)]
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(path, "pt") as chunk:
                    rows = chunk.get_tensor("sha256").numpy()
            except (SafetensorError, OSError) as error:
                logger.warning("%s is damaged and is left out: %s", path, error)
                continue
            digests.append(np.ascontiguousarray(rows).view(DIGEST)[:, 0])
            numbers = np.full(len(rows), len(self._chunks))
            places.append(np.stack([numbers, np.arange(len(rows))], axis=1))
            self._chunks.append(path)
        order = np.argsort(joined := np.concatenate(digests))
        self.digests = joined[order]
        """(n,) of the pictures whose features can be read, in order."""
        self._places = np.concatenate(places)[order]

    def read(self, digest: bytes) -> Tensor:
        """(d,) features of one of the pictures in `digests`."""
        chunk, row = self._places[np.searchsorted(self.digests, np.array(digest, DIGEST))]
        return _load(self._chunks[chunk])[row]

    def add(self, digest: bytes, features: Tensor) -> None:
        """Keep the (d,) features of a picture; they are on disk after CHUNK others, or `flush`."""
        self._new.append((digest, features))
        if len(self._new) == CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what was added.

        Raises:
            OSError: it cannot be written.
        """
        if not self._new:
            return
        content = b"".join(digest for digest, _ in self._new)
        rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 32)
        features = torch.stack([features for _, features in self._new])
        # named by what it holds: other processes write others, or the same
        name = hashlib.sha256(content).hexdigest()[:32]
        with whole_file(self.folder / f"{name}.safetensors") as temporary:
            save_file({"features": features, "sha256": rows}, temporary)
        self._new = []


def has(digests: np.ndarray, digest: bytes) -> bool:
    """Whether one of sorted digests is this one."""
    wanted = np.array(digest, DIGEST)
    place = np.searchsorted(digests, wanted)
    return bool(place < len(digests) and digests[place] == wanted)


@lru_cache(maxsize=16)
def _load(path: Path) -> Tensor:
    return load_file(path)["features"]
