"""Features of image files, decoded by worker processes and cached by the files' content."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.cache import DIGEST, FeatureCache, has
from vendi_guidance.features.network import NetworkEmbedder
from vendi_guidance.storage.images import open_picture, read_bytes

BATCH = 64
"""Batch size of embedders that have none of their own."""


class BadImage(NamedTuple):
    """A file that could not be used.

    Attributes:
        name: the path as it was given.
        reason: what is wrong with it.
    """

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


def stream_features(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    *,
    cache: Path | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> Iterator[FileFeatures]:
    """Features of image files, batch by batch, in order.

    Args:
        paths: n files.
        embedder: computes the features.
        cache: a folder that keeps features by the image's content and the embedder's settings, from
            which a killed run resumes; None keeps nothing.
        workers: how many processes read and decode; 0 is this one.
        on_bad_image: leave out files that cannot be used, or fail at the first.
        progress: show a bar.

    Yields:
        The features of a batch; without any usable file, `features` is (0, 0).

    Raises:
        ValueError: under "fail", a file that cannot be used; the message names it.
        OSError: the cache cannot be read or written.
    """
    store = None if cache is None else FeatureCache(cache, embedder)
    known = np.empty(0, DIGEST) if store is None else store.digests
    loader: Any = DataLoader(
        _Files(paths, embedder, known),
        batch_size=embedder.batch_size if isinstance(embedder, NetworkEmbedder) else BATCH,
        num_workers=workers,
        collate_fn=list,
    )
    with tqdm(total=len(paths), disable=None if progress else True) as bar:
        try:
            for batch in loader:
                yield _features_of(batch, embedder, store, on_bad_image)
                bar.update(len(batch))
        finally:
            if store is not None:
                store.flush()


def collect_features(batches: Iterable[FileFeatures]) -> FileFeatures:
    """The batches of `stream_features` as one.

    Raises:
        ValueError: no file can be used.
    """
    parts = list(batches)
    kept = [place for part in parts for place in part.kept]
    bad = [image for part in parts for image in part.bad]
    if not kept:
        first = f": {bad[0].name}: {bad[0].reason}" if bad else ""
        raise ValueError(f"none of {len(bad)} files is an image that can be used{first}")
    return FileFeatures(torch.cat([part.features for part in parts if part.kept]), kept, bad)


class _Read(NamedTuple):
    """A file as a worker returns it: the image, prepared for a network; neither image nor problem
    if the cache has its features."""

    place: int
    name: str
    digest: bytes
    picture: Any
    problem: str | None


class _Files(Dataset):
    def __init__(self, paths: Sequence[Path], embedder: ImageEmbedder, known: np.ndarray) -> None:
        self.paths = paths
        # not the embedder itself, which cannot always be sent to other processes
        self.prepare = embedder.prepare if isinstance(embedder, NetworkEmbedder) else None
        self.known = known

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> _Read:
        path = self.paths[place]
        digest, problem = b"", None
        picture: Any = None
        try:
            content = read_bytes(path)
            digest = hashlib.sha256(content).digest()
            if not has(self.known, digest):
                image = open_picture(content)
                # an array: tensors would use shared memory, which containers often lack
                picture = image if self.prepare is None else self.prepare(image).numpy()
        except ValueError as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
        return _Read(place, str(path), digest, picture, problem)


def _features_of(
    batch: list[_Read],
    embedder: ImageEmbedder,
    store: FeatureCache | None,
    on_bad_image: Literal["skip", "fail"],
) -> FileFeatures:
    bad = [BadImage(read.name, read.problem) for read in batch if read.problem is not None]
    if bad and on_bad_image == "fail":
        raise ValueError(f"{bad[0].name}: {bad[0].reason}")
    good = [read for read in batch if read.problem is None]
    new = [read for read in good if read.picture is not None]
    rows = dict(zip([read.place for read in new], _embed(new, embedder), strict=True))
    if store is not None:
        for read in new:
            store.add(read.digest, rows[read.place])
        rows |= {read.place: store.read(read.digest) for read in good if read.picture is None}
    features = torch.stack([rows[read.place] for read in good]) if good else torch.empty(0, 0)
    return FileFeatures(features, [read.place for read in good], bad)


def _embed(new: list[_Read], embedder: ImageEmbedder) -> Tensor:
    pictures = [read.picture for read in new]
    if not pictures:
        return torch.empty(0, 0)
    if isinstance(embedder, NetworkEmbedder):
        return embedder.encode(torch.from_numpy(np.stack(pictures)))
    return embedder.embed(pictures)
