"""The sliding window: the most recent finished samples and their prompts, for each shape."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import Samples
from vendi_guidance.kernels.base import check_count
from vendi_guidance.storage.files import DAMAGED, check_format, headed
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


class SlidingWindow:
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
        features: (N, D) unit-length features, in the storage dtype.
        prompts: (N, m) unit-length prompt embeddings, or None where there are none.
        distances: (N, N) cosine distances of the features.
        latent_shape: shape of one sample's features; None while the window is empty.

    Raises:
        ValueError: size < 1, or a dtype that is not of floating-point numbers.

    Example:
        >>> import torch
        >>> from vendi_guidance import SlidingWindow
        >>> window = SlidingWindow(3)
        >>> window.append(torch.randn(5, 4, 8, 8))
        >>> len(window), tuple(window.features.shape)
        (3, (3, 256))
    """

    features = property(lambda self: self._last.features)
    prompts = property(lambda self: self._last.prompts)
    distances = property(lambda self: self._last.distances)
    latent_shape = property(lambda self: self._last.latent_shape)

    def __init__(
        self,
        size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        check_count("window", size)
        if not dtype.is_floating_point:
            raise ValueError(f"a window's dtype is one of floating-point numbers, got {dtype}")
        self.size = size
        self.dtype = dtype
        self.device = device
        self.clear()

    def clear(self) -> None:
        """Forget every sample, of every shape."""
        self._of: dict[tuple[int, ...], Samples] = {}  # the shape that entered last comes first

    def __len__(self) -> int:
        return len(self._last)

    def __repr__(self) -> str:
        count = len(self.shapes) - 1
        others = f", and {count} other shapes" if count > 0 else ""
        return f"SlidingWindow({self.size}), {len(self)} of them filled{others}"

    @property
    def _last(self) -> Samples:
        return next(iter(self._of.values()), self._empty())

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the samples, that of the last sample first."""
        return [shape for shape, samples in self._of.items() if len(samples)]

    def of_shape(self, shape: Sequence[int]) -> Samples:
        """The samples of one shape, of which there may be none."""
        return self._of.setdefault(tuple(shape), self._empty())

    def _empty(self) -> Samples:
        return Samples(self.size, self.dtype, self.device)

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
        shape = tuple(features.shape[1:])
        samples = self.of_shape(shape)
        samples.check(features, prompts)
        if not features.isfinite().all() or not (prompts is None or prompts.isfinite().all()):
            raise ValueError("latents and prompts that enter the window must be finite numbers")
        samples.enter(features, prompts)
        self._of = {shape: samples} | self._of

    def resize(self, size: int) -> None:
        """Set the number of samples to remember; the oldest leave if there is no room. ValueError
        if size < 1."""
        check_count("window", size)
        if size != self.size:
            self.size = size
            self._of = {shape: samples.resized(size) for shape, samples in self._of.items()}

    @contextmanager
    def resized(self, size: int) -> Iterator[None]:
        """`resize` as a context, undone if the block raises; ValueError if size < 1."""
        before = self.size, self._of  # `resize` copies the samples, so these stay as they are
        self.resize(size)
        try:
            yield
        except BaseException:
            if before[0] != size:
                self.size, self._of = before
            raise

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write a safetensors file: samples, the oldest first, and a JSON header with format,
        version, size, dtype and shapes. A failed write leaves an older file as it was.

        Args:
            about: further values for the header, which `load` ignores.

        Raises:
            OSError: the file cannot be written.
        """
        content = {
            "size": self.size,
            "dtype": str(self.dtype).removeprefix("torch."),
            "shapes": self.shapes,
            **(about or {}),
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
        try:
            check_format(header, FORMAT)
            size, shapes, dtype = header["size"], header["shapes"], getattr(torch, header["dtype"])
            if largest is not None and size * max(1, len(shapes)) > largest:
                raise ValueError(f"its size, {size} of each shape, is beyond {largest}")
            if not all(it.is_floating_point() for it in tensors.values()):
                raise ValueError("its samples are no floating-point numbers")
            window = cls(size, dtype=dtype, device=device)
            for place, shape in reversed([*enumerate(shapes)]):
                features = tensors[f"latents_{place}"].unflatten(1, shape).to(device)
                window.append(features, tensors.get(f"prompts_{place}"))
        except (*DAMAGED, ArithmeticError, IndexError, RuntimeError) as error:
            raise ValueError(
                f"{path} is not a window this version can read: {error or type(error).__name__}"
            ) from None
        return window
