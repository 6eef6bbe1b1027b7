"""Features of image files, decoded by worker processes and cached by the files' content.

In the cache each embedder has a folder of chunks: safetensors files with the features of some
images and the SHA-256 of their bytes. Chunks are written completely or not at all, and several
processes may add chunks at once.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from vendi_guidance.checks import counted
from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.network import NetworkEmbedder
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.images import open_image, read_bytes
from vendi_guidance.storage.tensors import load_tensors, save_tensors

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Features in a file of the cache, and so the most that a killed run loses."""


class BadImage(NamedTuple):
    """A file that could not be used: its path as it was given, and what is wrong with it."""

    name: str
    reason: str


class FileFeatures(NamedTuple):
    """Features of the files that could be read.

    Attributes:
        features: (m, d) float32.
        kept: for each row, the position of its file among the n given, in order.
        bad: the other files.
    """

    features: Tensor
    kept: list[int]
    bad: list[BadImage]


def file_features(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    *,
    cache: str | PathLike[str] | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> FileFeatures:
    """Features of image files, in order.

    Args:
        cache: a folder that keeps features, from which a killed run resumes; None keeps nothing.
        workers: how many processes read and decode; 0 is this one.
        on_bad_image: leave out files that cannot be used, or fail at the first.
        progress: show a bar.

    Raises:
        ValueError: no file can be used, or under "fail", one cannot; the message names it.
        OSError: the cache cannot be read or written.
    """
    store = None if cache is None else _Cache(cache, embedder)
    of_network = embedder if isinstance(embedder, NetworkEmbedder) else None
    files: Any = list(enumerate(paths))
    loader = DataLoader(
        files,
        batch_size=64 if of_network is None else of_network.batch_size,
        num_workers=workers,
        # not the embedder itself, which cannot always be sent to other processes
        collate_fn=partial(
            _decode,
            prepare=None if of_network is None else of_network.transform,
            known=set() if store is None else {*store.known},
        ),
    )
    rows: list[Tensor] = []
    kept: list[int] = []
    bad: list[BadImage] = []
    with tqdm(total=len(paths), disable=None if progress else True) as bar:
        try:
            for batch in loader:
                found = _features_of(batch, embedder, store)
                rows += found.values()
                kept += found
                bad += [read for read in batch if isinstance(read, BadImage)]
                if bad and on_bad_image == "fail":
                    raise ValueError(": ".join(bad[0]))
                bar.update(len(batch))
        finally:
            if store is not None:
                store.flush()
    if not kept:
        first = f": {': '.join(bad[0])}" if bad else ""
        raise ValueError(f"none of {counted(len(bad), 'file')} is an image that can be used{first}")
    return FileFeatures(torch.stack(rows), kept, bad)


class _Cache:
    """Features of images by one embedder, whose name and settings are the key of its folder.

    Attributes:
        known: by the digest of the image, its (d,) features, as of when this was opened.
    """

    def __init__(self, folder: str | PathLike[str], embedder: ImageEmbedder) -> None:
        about = json.dumps({"name": embedder.name, "settings": embedder.settings}, sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()[:16]
        self.folder = Path(folder, f"{embedder.name}-{key}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self.folder / "embedder.json") as temporary:
            temporary.write_text(about + "\n", encoding="utf-8")
        self._new: list[tuple[bytes, Tensor]] = []
        self.known: dict[bytes, Tensor] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                stored = load_tensors(path, ["sha256", "features"])[1]  # mapped, not yet read
                digests = map(bytes, stored["sha256"].numpy())
                self.known |= zip(digests, stored["features"], strict=True)
            except (ValueError, OSError) as error:
                logger.warning("features that are damaged are computed again: %s", error)

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


class _DecodedFile(NamedTuple):
    """A file as a worker returns it: the image, prepared for a network, or None if the cache has
    its features."""

    place: int
    digest: bytes
    image: Any


def _decode(
    files: list[tuple[int, Path]], prepare: Callable[..., Tensor] | None, known: set[bytes]
) -> list[_DecodedFile | BadImage]:
    """A batch of files, by their places; in a worker process, if there are any."""
    batch: list[_DecodedFile | BadImage] = []
    for place, path in files:
        try:
            content = read_bytes(path)
            digest = hashlib.sha256(content).digest()
            image: Any = None if digest in known else open_image(content)
            if prepare is not None and image is not None:
                # an array: tensors would use shared memory, which containers often lack
                image = prepare(image).numpy()
            batch.append(_DecodedFile(place, digest, image))
        except (ValueError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            batch.append(BadImage(str(path), reason))
    return batch


def _features_of(
    batch: list[_DecodedFile | BadImage], embedder: ImageEmbedder, store: _Cache | None
) -> dict[int, Tensor]:
    """(d,) features by place, of the files that can be used, in order."""
    good = [read for read in batch if isinstance(read, _DecodedFile)]
    new = [read for read in good if read.image is not None]
    images = [read.image for read in new]
    if new and isinstance(embedder, NetworkEmbedder):
        features = embedder.encode(torch.from_numpy(np.stack(images)))
    else:
        features = embedder.embed(images) if new else torch.empty(0, device="cpu")
    rows = {read.place: row for read, row in zip(new, features, strict=True)}
    if store is not None:
        for read in new:
            store.add(read.digest, rows[read.place])
        rows |= {read.place: store.known[read.digest] for read in good if read.image is None}
    return {read.place: rows[read.place] for read in good}
