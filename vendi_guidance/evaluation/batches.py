"""Finished batches, whatever they come as."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.storage.imagefolder import METADATA, read_metadata
from vendi_guidance.storage.images import SUFFIXES, open_picture, to_rgb

Images: TypeAlias = Any
"""A folder, PIL images, paths, an array, a tensor, or a `datasets.Dataset` (see `as_batch`)."""

PROMPT_COLUMNS = ("prompt", "text", "caption")


class Pictures(Sequence[Image.Image]):
    """Pictures as RGB, read when they are asked for.

    Args:
        sources: a path, a PIL image, an array or a tensor each.
    """

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = sources

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> "list[Image.Image]": ...
    def __getitem__(self, index: int | slice) -> "Image.Image | list[Image.Image]":
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return _as_picture(self.sources[index])

    def take(self, rows: Sequence[int]) -> "Pictures":
        """Some of them."""
        return Pictures(_Rows(self.sources, rows))

    def paths(self) -> list[Path] | None:
        """Where they lie, if all are files."""
        if not all(isinstance(source, (str, PathLike)) for source in self.sources):
            return None
        return [Path(source) for source in self.sources]


class _Rows(Sequence[Any]):
    """Some rows of something, not read before they are asked for."""

    def __init__(self, whole: Any, rows: Sequence[int]) -> None:
        self.whole, self.rows = whole, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.whole[self.rows[index]]


class _Column(Sequence[Any]):
    """A column of a `datasets.Dataset`, of which only one row is decoded at a time."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.name = dataset, name

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index][self.name]


@dataclass(frozen=True)
class Batch:
    """n pictures and what is known of them.

    Attributes:
        images: the pictures.
        prompts: one for each, or None.
        seconds: what each took, or None.
        name: of the batch, "" if it has none.
    """

    images: Pictures
    prompts: list[str] | None
    seconds: list[float] | None = None
    name: str = ""

    def take(self, rows: Sequence[int]) -> "Batch":
        """Some of the pictures and what is known of them."""
        if len(rows) == len(self.images):
            return self
        return Batch(
            self.images.take(rows),
            None if self.prompts is None else [self.prompts[i] for i in rows],
            None if self.seconds is None else [self.seconds[i] for i in rows],
            self.name,
        )


def as_batch(images: Images, prompts: Sequence[str] | None = None) -> Batch:
    """A batch from whatever it comes as.

    Args:
        images: the path of a folder: a Hugging Face imagefolder with `metadata.jsonl`, whose
            prompts and seconds are read too, or any folder of pictures; a `datasets.Dataset` with a
            column of pictures and perhaps one of prompts; an array (n, h, w), (n, h, w, 1 to 4) or
            a tensor (n, 1 to 4, h, w), of bytes, or of floats in [0, 1]; or a sequence of PIL
            images, paths, single arrays (h, w, c) or tensors (c, h, w).
        prompts: n prompts; None takes those that come with the images, if any do.

    Raises:
        ValueError: no images, something else than images, or not one prompt for each.
        FileNotFoundError: there is no such folder.
    """
    if isinstance(images, (str, PathLike)):
        batch = _from_folder(Path(images))
    elif hasattr(images, "column_names"):
        batch = _from_dataset(images)
    elif isinstance(images, Pictures):
        batch = Batch(images, None)
    elif isinstance(images, (Tensor, np.ndarray)):
        if not (images.ndim == 4 or (images.ndim == 3 and isinstance(images, np.ndarray))):
            raise ValueError(
                f"a batch of images has 4 dimensions, got shape {tuple(images.shape)}: give arrays "
                "(n, h, w, c) or tensors (n, c, h, w)"
            )
        batch = Batch(Pictures(images), None)  # type: ignore[arg-type]
    elif isinstance(images, Sequence):
        batch = Batch(Pictures(images), None)
    else:
        raise ValueError(
            f"images must be a folder, images, an array, a tensor or a dataset, got "
            f"{type(images).__name__}"
        )
    n = len(batch.images)
    if not n:
        raise ValueError("there are no images to evaluate")
    given = batch.prompts if prompts is None else list(prompts)
    if given is not None and len(given) != n:
        raise ValueError(
            f"got {n} images and {len(given)} prompts: give one prompt for each image, such as "
            "[prompt for prompt in prompts for _ in range(images_per_prompt)]"
        )
    for prompt in given or []:
        if not isinstance(prompt, str):
            raise ValueError(f"prompts must be text, got {prompt!r}")
    return Batch(batch.images, given, batch.seconds, batch.name)


def _from_folder(folder: Path) -> Batch:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    name = folder.resolve().name
    if not (folder / METADATA).is_file():
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        if not files:
            raise ValueError(f"{folder} holds neither {METADATA} nor pictures")
        return Batch(Pictures(files), None, name=name)
    pictures = read_metadata(folder)
    prompts: list[Any] = [
        next((row[key] for key in PROMPT_COLUMNS if key in row), None) for _, _, row in pictures
    ]
    for prompt, (place, _, _) in zip(prompts, pictures, strict=True):
        if (prompt is None) != (prompts[0] is None):
            raise ValueError(f"{place}: some pictures have a prompt and some have none")
    seconds: list[Any] = [row.get("seconds") for _, _, row in pictures]
    return Batch(
        Pictures([path for _, path, _ in pictures]),
        None if prompts[0] is None else prompts,
        seconds if all(isinstance(value, int | float) for value in seconds) else None,
        name,
    )


def _from_dataset(dataset: Any) -> Batch:
    kinds = getattr(dataset, "features", None) or {}
    images = [
        name
        for name in dataset.column_names
        if type(kinds.get(name)).__name__ == "Image" or (not kinds and name in ("image", "img"))
    ]
    if not images:
        raise ValueError(f"the dataset has no column of images, only {dataset.column_names}")
    texts = [name for name in PROMPT_COLUMNS if name in dataset.column_names]
    prompts = list(dataset[texts[0]]) if texts else None
    return Batch(Pictures(_Column(dataset, images[0])), prompts)


def _as_picture(source: Any) -> Image.Image:
    if isinstance(source, (str, PathLike)):
        try:
            return open_picture(source)
        except ValueError as error:
            raise ValueError(f"the picture {source} cannot be used: {error}") from None
    if isinstance(source, Image.Image):
        return to_rgb(source)
    if isinstance(source, Tensor):
        pixels = source.detach().cpu()
        array = (pixels.movedim(0, -1) if pixels.ndim == 3 else pixels).float().numpy()
        array = array.astype(np.uint8) if source.dtype == torch.uint8 else array
    elif isinstance(source, np.ndarray):
        array = source
    else:
        raise ValueError(
            f"an image must be a PIL image, a path, an array or a tensor, got "
            f"{type(source).__name__}"
        )
    return to_rgb(_from_array(array))


def _from_array(array: "np.ndarray") -> Image.Image:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)):
        raise ValueError(
            f"an image has shape (h, w) or (h, w, 1 to 4) as an array, (1 to 4, h, w) as a tensor; "
            f"got {array.shape}"
        )
    if array.dtype != np.uint8:
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"images of {array.dtype} must lie in [0, 1], got {low:.3g} to {high:.3g}: scale "
                "them, or give bytes"
            )
        array = np.round(array * 255).astype(np.uint8)
    return Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)
