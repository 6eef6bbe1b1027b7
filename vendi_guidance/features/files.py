"""Features of image files, decoded by worker processes and cached by the files' content.

The cache has a folder for each embedder. A folder contains chunks: safetensors files with features
and the SHA-256 of the image files they belong to. Chunks are written atomically, and several
processes may add chunks at the same time.
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

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.network import NetworkEmbedder
from vendi_guidance.kernels.precision import float32_by_default
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.images import BROKEN, open_image, read_bytes
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.tensors import load_tensors, save_tensors

logger = logging.getLogger(__name__)

CHUNK = 1024  # features per cache file; a killed run loses at most this many


class BadImage(NamedTuple):
    """A file that could not be used: its path as given, and the reason."""

    name: str
    reason: str


class FileFeatures(NamedTuple):
    """Features of the m files that could be read."""

    features: Tensor  # (m, d) float32
    kept: list[int]  # the position of each row's file in the paths given, ascending
    bad: list[BadImage]  # the other files
    broken: list[str]  # names of files with metadata that cannot be read


def file_features(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    *,
    cache: str | PathLike[str] | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> FileFeatures:
    """Compute the features of image files, in order; the settings are those of `ImageReader`.

    ValueError if no file can be used, or one cannot and on_bad_image is "fail", which is named;
    OSError if the cache cannot be read or written.
    """
    store = _Cache(cache, embedder)
    batch_size, transform = 64, None
    if isinstance(embedder, NetworkEmbedder):
        batch_size, transform = embedder.batch_size, embedder.transform
    # workers get the transform, because not every embedder can be pickled
    decode = partial(_decode, transform=transform, cached={*store.features})
    files: Any = list(enumerate(paths))
    rng = torch.Generator()  # in place of torch's own, so that evaluation leaves seeds as they are
    loader = DataLoader(files, batch_size, num_workers=workers, collate_fn=decode, generator=rng)
    found: dict[int, Tensor] = {}
    bad: list[BadImage] = []
    broken: list[str] = []
    with tqdm(total=len(paths), disable=None if progress else True) as bar:
        try:
            for batch in loader:
                found |= _features_of(batch, embedder, store)
                bad += [file for file in batch if isinstance(file, BadImage)]
                broken += [paths[it.position].name for it in batch if getattr(it, "broken", False)]
                if bad and on_bad_image == "fail":
                    raise ValueError(": ".join(bad[0]))
                bar.update(len(batch))
        finally:
            store.flush()
    if not found:
        first = f": {': '.join(bad[0])}" if bad else ""
        raise ValueError(f"none of {counted(len(bad), 'file')} is an image that can be used{first}")
    return FileFeatures(torch.stack(list(found.values())), list(found), bad, broken)


class _Cache:
    """Features by the digest of their image file, in a folder for the embedder if one is given."""

    def __init__(self, folder: str | PathLike[str] | None, embedder: ImageEmbedder) -> None:
        self.features: dict[bytes, Tensor] = {}
        self._new: list[tuple[bytes, Tensor]] = []
        self.folder: Path | None = None
        if folder is None:
            return
        about = json.dumps({"name": embedder.name, "settings": embedder.settings}, sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()[:16]
        self.folder = Path(folder, f"{embedder.name}-{key}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self.folder / "embedder.json") as temporary:
            temporary.write_text(about + "\n", encoding="utf-8")
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                stored = load_tensors(path, ["sha256", "features"])[1]  # memory-mapped
                digests = map(bytes, stored["sha256"].numpy())
                self.features |= zip(digests, stored["features"], strict=True)
            except (ValueError, OSError) as error:
                logger.warning("the features of a damaged cache file will be recomputed: %s", error)

    def add(self, digest: bytes, features: Tensor) -> None:
        """Add the (d,) features of an image. A full chunk is written to disk."""
        self.features[digest] = features
        self._new.append((digest, features))
        if len(self._new) == CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write the added features to disk; raises OSError if that fails."""
        if self.folder is not None and self._new:
            content = b"".join(digest for digest, _ in self._new)
            digests = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 32)
            features = torch.stack([features for _, features in self._new])
            # The name is a hash of the content, so processes cannot overwrite each other's chunks.
            path = self.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
            save_tensors(path, {"features": features, "sha256": digests}, {})
        self._new = []


class _DecodedFile(NamedTuple):
    position: int
    digest: bytes
    image: Any  # a PIL image, or an array if transformed; None if its features are cached
    broken: bool  # whether its metadata cannot be read


@float32_by_default()
def _decode(
    files: list[tuple[int, Path]], transform: Callable[..., Tensor] | None, cached: set[bytes]
) -> list[_DecodedFile | BadImage]:
    """Read a batch of (position, path) pairs, in a worker process."""
    batch: list[_DecodedFile | BadImage] = []
    for position, path in files:
        try:
            content = read_bytes(path)
            digest = hashlib.sha256(content).digest()
            image: Any = None if digest in cached else open_image(content)
            is_broken = image is not None and BROKEN in image.info
            if transform is not None and image is not None:
                # an array: tensors would use shared memory, which containers often lack
                image = transform(image).numpy()
            batch.append(_DecodedFile(position, digest, image, is_broken))
        except (ValueError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            batch.append(BadImage(str(path), reason))
    return batch


def _features_of(
    batch: list[_DecodedFile | BadImage], embedder: ImageEmbedder, store: _Cache
) -> dict[int, Tensor]:
    """The (d,) features of the usable files of a batch, by position, in order."""
    decoded = [file for file in batch if isinstance(file, _DecodedFile)]
    new = [file for file in decoded if file.image is not None]
    if new:
        images = [file.image for file in new]
        if isinstance(embedder, NetworkEmbedder):
            features = embedder.encode(torch.from_numpy(np.stack(images)))
        else:
            features = embedder.embed(images)
        for file, row in zip(new, features, strict=True):
            store.add(file.digest, row)
    return {file.position: store.features[file.digest] for file in decoded}
