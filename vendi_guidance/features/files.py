"""Features of picture files: decoded by worker processes, kept on disk.

Pictures are known by their content, whatever their files are called.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.cache import DIGEST, FeatureCache, has
from vendi_guidance.features.network import NetworkEmbedder
from vendi_guidance.storage.images import open_picture, read_bytes

BATCH = 64
"""Pictures at once for embedders that do not say."""


class BadImage(NamedTuple):
    """A file that could not be used.

    Attributes:
        name: the path as it was given.
        reason: what is wrong with it, in words.
    """

    name: str
    reason: str


class FileFeatures(NamedTuple):
    """Features of those files that could be read.

    Attributes:
        features: (m, d) float32.
        kept: for each row, the place of its file among those asked for, in order.
        bad: the other files.
    """

    features: Tensor
    kept: list[int]
    bad: list[BadImage]


def embed_files(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    *,
    cache: Path | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> FileFeatures:
    """Features of n picture files at once; the arguments are those of `stream_features`.

    Raises:
        ValueError: a file cannot be used, under "fail", or none can; the message names it.
        OSError: the cache cannot be read or written.
    """
    parts = list(
        stream_features(
            paths,
            embedder,
            cache=cache,
            workers=workers,
            on_bad_image=on_bad_image,
            progress=progress,
        )
    )
    kept = [place for part in parts for place in part.kept]
    bad = [image for part in parts for image in part.bad]
    if not kept:
        first = f": {bad[0].name}: {bad[0].reason}" if bad else ""
        raise ValueError(f"of {len(paths)} files there is no picture that can be used{first}")
    return FileFeatures(torch.cat([part.features for part in parts if part.kept]), kept, bad)


def stream_features(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    *,
    cache: Path | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> Iterator[FileFeatures]:
    """Features of picture files batch by batch, in order.

    Args:
        paths: n files.
        embedder: what gives features.
        cache: a folder where features are kept, by the picture's content and the embedder's
            settings; a run that was killed goes on from there. None keeps nothing.
        workers: how many processes read and decode; 0 is this one.
        on_bad_image: leave out files that cannot be used, or fail at the first.
        progress: show a bar.

    Yields:
        A batch's features; of a batch without any, `features` has no columns.

    Raises:
        ValueError: a file cannot be used, under "fail"; the message names it.
        OSError: the cache cannot be read or written.
    """
    store = None if cache is None else FeatureCache(cache, embedder)
    known = np.empty(0, DIGEST) if store is None else store.digests
    loader: Any = DataLoader(
        _Files(paths, embedder, known),
        batch_size=embedder.batch_size if isinstance(embedder, NetworkEmbedder) else BATCH,
        num_workers=workers,
        collate_fn=_as_they_are,
    )
    with tqdm(total=len(paths), disable=None if progress else True) as bar:
        try:
            for batch in loader:
                yield _features_of(batch, embedder, store, on_bad_image)
                bar.update(len(batch))
        finally:
            if store is not None:
                store.flush()


class _Read(NamedTuple):
    """What a worker has of a file: a picture as its embedder wants it, nothing if its features are
    known, or what is wrong with it."""

    place: int
    name: str
    digest: bytes
    picture: Any
    problem: str | None


class _Files(Dataset):
    def __init__(self, paths: Sequence[Path], embedder: ImageEmbedder, known: np.ndarray) -> None:
        self.paths = paths
        # not the embedder itself, which may not be sent to other processes
        self.prepare = embedder.prepare if isinstance(embedder, NetworkEmbedder) else None
        self.known = known

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> _Read:
        path = self.paths[place]
        digest, picture, problem = b"", None, None
        try:
            content = read_bytes(path)
            digest = hashlib.sha256(content).digest()
            if not has(self.known, digest):
                picture = self._prepared(open_picture(content))
        except ValueError as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
        return _Read(place, str(path), digest, picture, problem)

    def _prepared(self, picture: Image.Image) -> Any:
        # an array: tensors would go through shared memory, of which containers often have little
        return picture if self.prepare is None else self.prepare(picture).numpy()


def _as_they_are(batch: list[_Read]) -> list[_Read]:
    return batch


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
    features = [rows[read.place] for read in good]
    return FileFeatures(
        torch.stack(features) if features else torch.empty(0, 0),
        [read.place for read in good],
        bad,
    )


def _embed(new: list[_Read], embedder: ImageEmbedder) -> Tensor:
    if not new:
        return torch.empty(0, 0)
    if isinstance(embedder, NetworkEmbedder):
        return embedder.encode(torch.from_numpy(np.stack([read.picture for read in new])))
    return embedder.embed([read.picture for read in new])
