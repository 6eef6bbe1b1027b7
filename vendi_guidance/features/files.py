"""Features of image files, decoded by worker processes and cached on disk.

The cache has a folder for each embedder, of safetensors files with features and the keys of the
image files that they belong to (see `key_of`). They are written atomically, and several processes
may write at the same time, each the features of its share of the images.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.network import NetworkEmbedder
from vendi_guidance.kernels.precision import float32_by_default
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.images import key_of, open_image
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.tensors import load_tensors, save_tensors

logger = logging.getLogger(__name__)

CHUNK = 1024  # features per cache file; a killed run loses at most this many
BATCH = 64  # images at a time, unless the embedder says how many


class BadImage(NamedTuple):
    """A file that could not be used: its path as given, and the reason."""

    name: str
    reason: str


class FileFeatures(NamedTuple):
    """Features of the m files that could be read."""

    features: Tensor  # (m, d) float32
    kept: list[int]  # the position of each row's file in the paths given, ascending
    bad: list[BadImage]  # the other files


def file_features(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    *,
    cache: str | PathLike[str] | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
    share: tuple[int, int] | None = None,
) -> FileFeatures:
    """Compute the features of image files, in order; the settings are those of `ImageReader`.

    ValueError if no file can be used, or one cannot and on_bad_image is "fail", which is named;
    OSError if the cache cannot be read or written. `share` (i, n) adds the i-th of n shares of the
    files to the cache and returns none of their features; files that cannot be used are left out.
    """
    size, transform, embed = BATCH, None, embedder.embed
    if isinstance(embedder, NetworkEmbedder):
        size, transform, embed = embedder.batch_size, embedder.transform, embedder.encode
    if share is not None:  # of whole batches, so that features are those of one process
        place, count = share
        batches = -(-len(paths) // size)
        paths = paths[size * (batches * place // count) : size * (batches * (place + 1) // count)]
    store, keys = _Cache(cache, embedder), [key_of(path) for path in paths]
    new: Any = [(i, paths[i]) for i, key in enumerate(keys) if key not in store.features]
    # workers get the transform, because not every embedder can be pickled
    decode = partial(_decode, transform=transform)
    rng = torch.Generator()  # in place of torch's own, so that evaluation leaves seeds as they are
    loader = DataLoader(new, size, num_workers=workers, collate_fn=decode, generator=rng)
    bad: list[BadImage] = []
    total, start = len(paths), len(paths) - len(new)
    with tqdm(total=total, initial=start, disable=None if progress else True) as bar:
        try:
            for batch in loader:
                found = [file for file in batch if not isinstance(file, BadImage)]
                bad += [file for file in batch if isinstance(file, BadImage)]
                if bad and on_bad_image == "fail":
                    raise ValueError(": ".join(bad[0]))
                if found:
                    places, images = zip(*found, strict=True)
                    store.add([keys[i] for i in places], embed([*images]))
                bar.update(len(batch))
        finally:
            store.flush()
    kept = [i for i, key in enumerate(keys) if key in store.features] if share is None else []
    if not kept and share is None:
        first = f": {': '.join(bad[0])}" if bad else ""
        raise ValueError(f"none of {counted(len(bad), 'file')} is an image that can be used{first}")
    features = [store.features[keys[i]] for i in kept]
    return FileFeatures(torch.stack(features) if features else torch.empty(0, 0), kept, bad)


class _Cache:
    """Features by the key of their image file, in a folder for the embedder if one is given."""

    def __init__(self, folder: str | PathLike[str] | None, embedder: ImageEmbedder) -> None:
        self.features: dict[bytes, Tensor] = {}
        self._new: list[bytes] = []
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
                stored = load_tensors(path, ["key", "features"])[1]  # memory-mapped
                self.features |= zip(
                    map(bytes, stored["key"].numpy()), stored["features"], strict=True
                )
            except (ValueError, OSError) as error:
                logger.warning("the features of a damaged cache file will be recomputed: %s", error)

    def add(self, keys: Sequence[bytes], features: Tensor) -> None:
        """Add (b, d) features of images. A full chunk is written to disk."""
        for key, row in zip(keys, features, strict=True):
            self.features[key] = row
            self._new.append(key)
            if len(self._new) == CHUNK:
                self.flush()

    def flush(self) -> None:
        """Write the added features to disk; raises OSError if that fails."""
        if self.folder is not None and self._new:
            content = b"".join(self._new)
            keys = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 32)
            features = torch.stack([self.features[key] for key in self._new])
            # The name is a hash of the content, so processes cannot overwrite each other's chunks.
            path = self.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
            save_tensors(path, {"features": features, "key": keys}, {})
        self._new = []


@float32_by_default()
def _decode(
    files: list[tuple[int, Path]], transform: Callable[..., Tensor] | None
) -> list[tuple[int, Any] | BadImage]:
    """Read a batch of (position, path) pairs, in a worker process: PIL images, or arrays if
    transformed."""
    batch: list[tuple[int, Any] | BadImage] = []
    for position, path in files:
        try:
            image: Any = open_image(path)
            # an array: tensors would use shared memory, which containers often lack
            batch.append((position, image if transform is None else transform(image).numpy()))
        except (ValueError, OSError) as error:
            batch.append(BadImage(str(path), getattr(error, "strerror", None) or str(error)))
    return batch
