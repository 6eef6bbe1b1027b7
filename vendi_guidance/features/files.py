"""Features of image files, decoded by worker processes and cached by the files' content."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from vendi_guidance.checks import counted
from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.cache import FeatureCache
from vendi_guidance.features.network import NetworkEmbedder
from vendi_guidance.storage.images import open_image, read_bytes


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
    cache: Path | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> FileFeatures:
    """Features of image files, in order.

    Args:
        paths: n files.
        embedder: computes the features.
        cache: a folder that keeps features by the image's content and the embedder's settings, from
            which a killed run resumes; None keeps nothing.
        workers: how many processes read and decode; 0 is this one.
        on_bad_image: leave out files that cannot be used, or fail at the first.
        progress: show a bar.

    Raises:
        ValueError: no file can be used, or under "fail", one cannot; the message names it.
        OSError: the cache cannot be read or written.
    """
    store = None if cache is None else FeatureCache(cache, embedder)
    # not the embedder itself, which cannot always be sent to other processes
    prepare = embedder.transform if isinstance(embedder, NetworkEmbedder) else None
    known = set() if store is None else set(store.places)
    files: Any = list(enumerate(paths))
    loader = DataLoader(
        files,
        batch_size=embedder.batch_size if isinstance(embedder, NetworkEmbedder) else 64,
        num_workers=workers,
        collate_fn=partial(_decode, prepare=prepare, known=known),
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
    batch: list[_DecodedFile | BadImage], embedder: ImageEmbedder, store: FeatureCache | None
) -> dict[int, Tensor]:
    """(d,) features by place, of the files that can be used, in order."""
    good = [read for read in batch if isinstance(read, _DecodedFile)]
    new = [read for read in good if read.image is not None]
    rows: dict[int, Tensor] = {}
    if new:
        images = [read.image for read in new]
        if isinstance(embedder, NetworkEmbedder):
            features = embedder.encode(torch.from_numpy(np.stack(images)))
        else:
            features = embedder.embed(images)
        rows = {read.place: row for read, row in zip(new, features, strict=True)}
    if store is not None:
        for read in new:
            store.add(read.digest, rows[read.place])
        rows |= {read.place: store.read(read.digest) for read in good if read.image is None}
    return {read.place: rows[read.place] for read in good}
