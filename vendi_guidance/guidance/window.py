"""The sliding window: the most recent finished samples and their prompts, for each shape."""

import copy
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import Samples
from vendi_guidance.kernels.base import check_count
from vendi_guidance.storage.files import check_format, headed
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.tensors import load_tensors, save_tensors

WINDOW = 300
"""The default size of the window."""

FORMAT = "vendi-guidance window"
"""Of files. `latents_N` and `prompts_N` there are the samples of the header's shape at place N."""

Finished = tuple[Tensor, Tensor | None]
"""(b, ...) features and (b, m) prompt embeddings of finished samples."""


def counts_of(samples: Sequence[Finished]) -> Counter[str]:
    """The number of samples of each shape."""
    counts: Counter[str] = Counter()
    for latents, _ in samples:
        counts["x".join(map(str, latents.shape[1:]))] += len(latents)
    return counts


def named(samples: Sequence[Finished]) -> dict[str, Tensor | None]:
    """Samples as tensors with names, which can be stored and sent."""
    found: dict[str, Tensor | None] = {}
    for place, (latents, prompts) in enumerate(samples):
        found |= {f"latents_{place}": latents, f"prompts_{place}": prompts}
    return found


def unnamed(tensors: Mapping[str, Tensor]) -> list[Finished]:
    """The samples that `named` named."""
    count = sum(name.startswith("latents_") for name in tensors)
    return [(tensors[f"latents_{i}"], tensors.get(f"prompts_{i}")) for i in range(count)]


class SlidingWindow(Samples):
    """The last `size` finished samples, with their prompt embeddings.

    Only samples of the same shape, such as latents of images of one size, are compared, and each
    shape has room for `size` samples. The window's attributes are those of the shape that entered
    last; `of_shape` gives the others.

    Memory per shape: size x (feature elements + prompt width) numbers in `dtype`, plus size^2 in
    float32.

    Args:
        size: number of samples of each shape to remember.
        dtype: of the stored features; kernels are computed in float32 or float64.
        device: where features are stored; None is the device of the first ones.

    Attributes:
        latent_shape: shape of one sample's features; None while the window is empty.
        cache: values derived from the samples; emptied when a sample enters.

    Raises:
        ValueError: size < 1.

    Example:
        >>> import torch
        >>> from vendi_guidance import SlidingWindow
        >>> window = SlidingWindow(3)
        >>> window.append(torch.randn(5, 4, 8, 8))
        >>> len(window), tuple(window.features.shape)
        (3, (3, 256))
    """

    def clear(self) -> None:
        """Forget every sample, of every shape."""
        self._others: dict[tuple[int, ...], SlidingWindow] = {}
        self._cache_of_none: dict[Hashable, Any] = {}
        super().clear()

    def __repr__(self) -> str:
        others = f", and {len(self._others)} other shapes" if self._others else ""
        return f"SlidingWindow({self.size}), {len(self)} of them filled{others}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the samples, that of the last sample first."""
        return [*([] if self.latent_shape is None else [self.latent_shape]), *self._others]

    def of_shape(self, shape: Sequence[int]) -> "SlidingWindow":
        """The samples of one shape as a window, which may be empty."""
        shape = tuple(shape)
        if self.latent_shape == shape:
            return self
        empty = SlidingWindow(self.size, dtype=self.dtype, device=self.device)
        empty.cache = self._cache_of_none
        return self._others.get(shape, empty)

    def _show(self, shape: tuple[int, ...]) -> None:
        """Make this shape the current one."""
        if shape == self.latent_shape or (self.latent_shape is None and shape not in self._others):
            return
        known, others = self.of_shape(shape), self._others
        if shape not in others:
            known.cache = {}  # no longer that of all shapes without samples
        if self.latent_shape is not None:
            alone = copy.copy(self)
            alone._others = {}
            others = {self.latent_shape: alone, **others}
        self._others = {at: it for at, it in others.items() if at != shape}
        for name in ("latent_shape", "_features", "_prompts", "_entered", "cache"):
            setattr(self, name, getattr(known, name))

    def append(self, features: Tensor, prompts: Tensor | None = None) -> None:
        """Add finished samples; the oldest leave if there is no room.

        O(b N D) for b samples and a window of N.

        Args:
            features: (b, ...) of any length, such as the sampler's last latents.
            prompts: (b, m) embeddings, or None in a window without prompts.

        Raises:
            ValueError: prompts of another width than before, prompts given only sometimes, or NaN
                or infinity. The window stays as it was.
        """
        self.of_shape(features.shape[1:]).check(features, prompts)
        if not features.isfinite().all() or not (prompts is None or prompts.isfinite().all()):
            raise ValueError("latents and prompts that enter the window must be finite numbers")
        self._show(tuple(features.shape[1:]))
        self.enter(features, prompts)

    def resize(self, size: int) -> None:
        """Set the number of samples to remember; the oldest leave if there is no room. ValueError
        if size < 1."""
        check_count("window", size)
        if size == self.size:
            return
        features, prompts, shape = *self.oldest_first(), self.latent_shape
        others = {at: copy.copy(other) for at, other in self._others.items()}
        for other in others.values():
            other.resize(size)
        self.size = size
        self.clear()
        self._others = others
        if shape is not None:
            self.append(features.unflatten(1, shape), prompts)

    @contextmanager
    def resized(self, size: int) -> Iterator[None]:
        """`resize` as a context, undone if the block raises; ValueError if size < 1."""
        before = dict(vars(self))  # `resize` copies the samples, so these stay as they are
        self.resize(size)
        try:
            yield
        except BaseException:
            if before["size"] != size:
                vars(self).update(before)
            raise

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: samples, the oldest first, and a JSON header with format,
        version, size, dtype and shapes. A failed write leaves an older file as it was.

        Raises:
            OSError: the file cannot be written.
        """
        content = {
            "size": self.size,
            "dtype": str(self.dtype).removeprefix("torch."),
            "shapes": self.shapes,
        }
        samples = [self.of_shape(shape).oldest_first() for shape in self.shapes]
        save_tensors(Path(path), named(samples), headed(FORMAT, content))

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: torch.device | str | None = None,
        *,
        largest: int | None = None,
    ) -> Self:
        """Read what `save` wrote.

        Args:
            largest: the most samples accepted, of all shapes together: a limit for files of unknown
                origin.

        Raises:
            ValueError: the file is damaged, not a window, or of another version.
            FileNotFoundError: there is no such file.
        """
        header, tensors = load_tensors(Path(path))
        if reason := _misfit(header, tensors):
            raise ValueError(f"{path} is not a window this version can read: {reason}")
        size, shapes = header["size"], header["shapes"]
        total = size * max(1, len(shapes))
        if largest is not None and total > largest:
            raise ValueError(f"{path} is a window of size {total}, beyond {largest}")
        window = cls(size, dtype=getattr(torch, header["dtype"]), device=device)
        try:
            for place, shape in reversed([*enumerate(shapes)]):
                features = tensors[f"latents_{place}"].unflatten(1, shape).to(device)
                window.append(features, tensors.get(f"prompts_{place}"))
        except RuntimeError:
            raise ValueError(
                f"there is no memory for {path}, a window of {counted(size, 'sample')}"
            ) from None
        return window


def _misfit(header: Any, tensors: dict[str, Tensor]) -> str | None:
    """Why a file's content is not a window, or None."""
    try:
        check_format(header, FORMAT)
    except ValueError as error:
        return str(error)
    if not _is_count(header.get("size")):
        return f"its size is {header.get('size')}"
    if header.get("dtype") not in ("float16", "bfloat16", "float32", "float64"):
        return f"its dtype is {header.get('dtype')}"
    if not isinstance(header.get("shapes"), list):
        return f"its shapes are {header.get('shapes')}"
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.ndim != 2 or tensor.shape[1] == 0:
            return f"its {name} are {tensor.dtype} of shape {tuple(tensor.shape)}"
    for place, shape in enumerate(header["shapes"]):
        latents, prompts = tensors.get(f"latents_{place}"), tensors.get(f"prompts_{place}")
        if not isinstance(shape, list) or not all(map(_is_count, shape)):
            return f"its latents have shape {shape}"
        if latents is None or latents.shape[1] != prod(shape) or len(latents) > header["size"]:
            return f"its latents of shape {shape} do not fit its header {header}"
        if prompts is not None and len(prompts) != len(latents):
            return f"prompts of shape {tuple(prompts.shape)} do not fit {len(latents)} latents"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63
