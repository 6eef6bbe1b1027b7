"""Finished batches from folders, arrays, tensors, datasets or images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.storage.captions import TABLES, find_captions
from vendi_guidance.storage.imagefolder import METADATA, read_metadata
from vendi_guidance.storage.images import list_files, named_endings, open_image, to_rgb
from vendi_guidance.storage.messages import counted, first_few
from vendi_guidance.storage.tables import TEXT_COLUMNS, text_in

Images: TypeAlias = Any
"""A folder, PIL images, paths, an array, a tensor, or a `datasets.Dataset` (see `as_batch`)."""


@dataclass(frozen=True, eq=False)
class LazyImages(Sequence[Image.Image]):
    """RGB images that are read on access."""

    read: Callable[[int], Any]  # the path, PIL image, array or tensor of a row number
    rows: Sequence[int]  # the row number of each image

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [_as_image(self.read(row)) for row in self.rows[index]]
        return _as_image(self.read(self.rows[index]))

    def take(self, rows: Sequence[int]) -> "LazyImages":
        """A subset of the images, by position."""
        return LazyImages(self.read, [self.rows[row] for row in rows])

    def paths(self) -> list[Path] | None:
        """The images' files; None if some images are not files."""
        if not all(isinstance(self.read(row), (str, PathLike)) for row in self.rows):
            return None
        return [Path(self.read(row)) for row in self.rows]


@dataclass(frozen=True)
class Batch:
    """n images with their prompts."""

    images: LazyImages
    prompts: list[str] | None
    name: str = ""
    rows: list[dict[str, Any]] | None = None  # of the folder's `metadata.jsonl`
    note: str = ""  # the source of a folder's prompts, and how many images were left out for it

    def take(self, rows: Sequence[int]) -> "Batch":
        """The batch of some of the images, given by positions and in their order."""
        taken: dict[str, Any] = {"images": self.images.take(rows)}
        for name in ("prompts", "rows"):
            if (column := getattr(self, name)) is not None:
                taken[name] = [column[i] for i in rows]
        return replace(self, **taken)

    def column(self, name: str) -> Tensor:
        """The (n,) float64 finite numbers in a column of `metadata.jsonl`; ValueError without."""
        if self.rows is None:
            raise ValueError(f"column {name!r} is needed, but there is no metadata.jsonl")
        for row in self.rows:
            if not _is_number(row.get(name)):
                numeric = ", ".join(key for key, value in row.items() if _is_number(value))
                raise ValueError(
                    f"column {name!r} of {row['file_name']} is {row.get(name)!r}, not a finite "
                    f"number; its numeric columns are {numeric or 'none'}"
                )
        numbers = [float(row[name]) for row in self.rows]
        return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def as_batch(
    images: Images, prompts: Sequence[str] | None = None, *, read_prompts: bool = True
) -> Batch:
    """Make a batch of images from any source.

    Args:
        images: a `Batch`; the path of a Hugging Face imagefolder with `metadata.jsonl`, from which
            prompts and seconds are read too, or of any folder of images, with prompts found as
            by `find_captions`; a `datasets.Dataset` with a column of images and optionally one
            of prompts; an array (n, h, w) or (n, h, w, 1 to 4) or a tensor (n, 1 to 4, h, w), of
            bytes or of floats in [0, 1]; or a sequence of PIL images, paths, arrays (h, w, c) or
            tensors (c, h, w).
        prompts: n prompts; None uses those of the folder or dataset, if any. Images of a folder
            without a prompt are left out if others have one.
        read_prompts: whether to look for prompts in a folder. False keeps all of its images.

    Raises:
        ValueError: no images, an unsupported kind of images, or the wrong number of prompts.
        FileNotFoundError: the folder does not exist.

    Example:
        >>> batch = as_batch(torch.zeros(4, 3, 8, 8), ["a cat", "a dog"] * 2)
        >>> batch.take([1, 2]).prompts
        ['a dog', 'a cat']
    """
    if isinstance(images, Batch):
        batch = images
    elif isinstance(images, (str, PathLike)):
        batch = _from_folder(Path(images), read_prompts and prompts is None)
    elif hasattr(images, "column_names"):
        batch = _from_dataset(images)
    else:
        batch = Batch(_from_sequence(images), None)
    n = len(batch.images)
    if not n:
        raise ValueError("there are no images to evaluate")
    if isinstance(prompts, str):
        raise ValueError(f"prompts must be one for each image, got {prompts!r}: give it in a list")
    prompts = batch.prompts if prompts is None else list(prompts)
    if prompts is not None and len(prompts) != n:
        both = f"{counted(n, 'image')} and {counted(len(prompts), 'prompt')}"
        raise ValueError(f"got {both}: give one prompt for each image")
    for prompt in prompts or []:
        if not isinstance(prompt, str):
            raise ValueError(f"prompts must be text, got {prompt!r}")
    return replace(batch, prompts=prompts)


def _from_sequence(images: Any) -> LazyImages:
    if isinstance(images, LazyImages):
        return images
    if isinstance(images, (Tensor, np.ndarray)):
        if images.ndim not in ((4,) if isinstance(images, Tensor) else (3, 4)):
            raise ValueError(
                f"a batch of images has 4 dimensions, got shape {tuple(images.shape)}: give "
                "arrays (n, h, w, c) or tensors (n, c, h, w)"
            )
    elif not isinstance(images, Sequence):
        raise ValueError(
            "images must be a folder, images, an array, a tensor or a dataset, got "
            f"{type(images).__name__}"
        )
    return LazyImages(images.__getitem__, range(len(images)))


def _from_folder(folder: Path, read_prompts: bool) -> Batch:
    """The images in `metadata.jsonl`, or all without one; if some have prompts, only those."""
    if not folder.is_dir() and not (folder.is_file() and folder.suffix.lower() == ".tar"):
        raise FileNotFoundError(f"there is no folder or .tar file {folder}")
    (files, left_out), name = list_files(folder), folder.resolve().name
    rows: list[dict[str, Any]] | None = None
    prompts: list[Any] = []
    paths, source, lost = files, METADATA, ""
    if (folder / METADATA).is_file():
        listed = read_metadata(folder)
        paths, rows = [one.path for one in listed], [one.row for one in listed]
        prompts = [text_in(one.row, one.place) for one in listed] if read_prompts else []
    elif files and read_prompts:
        source, of, lost = find_captions(folder, files)
        prompts = [of.get(file) for file in files]
    elif not files:
        what = f" ({named_endings(left_out)})" if left_out else ""
        raise ValueError(f"{folder} contains neither {METADATA} nor images{what}")
    kept, note = [*range(len(paths))], ""
    if has_prompts := any(prompt is not None for prompt in prompts):
        kept = [i for i in kept if prompts[i] is not None]
        note = f"Prompts are from {source}"
        chosen = {paths[i] for i in kept}
        if without := [file for file in dict.fromkeys([*paths, *files]) if file not in chosen]:
            have = "has none and is" if len(without) == 1 else "have none and are"
            count = counted(len(chosen) + len(without), "image")
            names = first_few([file.relative_to(folder).as_posix() for file in without])
            note += f"; {len(without):,} of {count} {have} left out: {names}"
    elif read_prompts:
        everywhere = f"{', '.join(TABLES)}, beside or in the images, or in names of subfolders"
        note = f"No prompts found in {everywhere if rows is None else METADATA}"
    if note:
        note += f"; {lost}." if lost else "."
    if left_out:
        note += f" {named_endings(left_out)}."
    batch = Batch(_from_sequence(paths), prompts if has_prompts else None, name, rows, note)
    return batch.take(kept)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _from_dataset(dataset: Any) -> Batch:
    """A batch from the first columns of images and of prompts in a `datasets.Dataset`."""
    if not (hasattr(dataset, "features") and hasattr(dataset, "__len__")):
        raise ValueError("a dataset needs numbered rows: take a split, loaded without streaming")
    kinds = {name: type(kind).__name__ for name, kind in dataset.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    if not images:
        raise ValueError(f"the dataset has no column of images, only {[*kinds]}")
    texts = [name for name in TEXT_COLUMNS if name in kinds]
    prompts = list(dataset[texts[0]]) if texts else None
    return Batch(LazyImages(lambda row: dataset[row][images[0]], range(len(dataset))), prompts)


def _as_image(source: Any) -> Image.Image:
    if isinstance(source, (str, PathLike)):
        try:
            return open_image(source)
        except ValueError as error:
            raise ValueError(f"the image {source} cannot be used: {error}") from None
    if isinstance(source, Image.Image):
        return to_rgb(source)
    if isinstance(source, Tensor):
        pixels = source.detach().cpu()
        array = (pixels.movedim(0, -1) if pixels.ndim == 3 else pixels).float().numpy()
        array = array.astype(np.uint8) if source.dtype == torch.uint8 else array
    elif isinstance(source, np.ndarray):
        array = source
    else:
        kind = type(source).__name__
        raise ValueError(f"an image must be a PIL image, a path, an array or a tensor, got {kind}")
    if not (array.ndim == 2 or (array.ndim == 3 and 1 <= array.shape[2] <= 4)) or not array.size:
        raise ValueError(
            "an image must have shape (h, w) or (h, w, 1 to 4) as an array, (1 to 4, h, w) as a "
            f"tensor, got {array.shape}"
        )
    if array.dtype != np.uint8:
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"images of {array.dtype} must lie in [0, 1], got {low:.3g} to {high:.3g}: scale "
                "them, or give bytes"
            )
        array = np.round(array * 255).astype(np.uint8)
    is_grey = array.ndim == 3 and array.shape[2] == 1
    return to_rgb(Image.fromarray(array[..., 0] if is_grey else array))
