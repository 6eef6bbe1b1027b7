"""The sliding window: the most recent finished samples and their prompts, for each shape."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from vendi_guidance.checks import check_count, counted
from vendi_guidance.guidance.samples import Samples
from vendi_guidance.guidance.window_files import read_window, write_window

WINDOW = 300
"""The default size of the window."""


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
        return self._others.get(shape, empty)

    def adopt(self, other: "SlidingWindow") -> None:
        """Add another window's samples of the shapes that this one does not have."""
        for shape in other.shapes:
            if shape not in self.shapes:
                self._others[shape] = other.of_shape(shape)._alone()

    def _alone(self) -> "SlidingWindow":
        """The window without the samples of other shapes."""
        alone = copy.copy(self)
        alone._others = {}
        return alone

    def _show(self, shape: tuple[int, ...]) -> None:
        """Make this shape the current one."""
        if shape == self.latent_shape or (self.latent_shape is None and shape not in self._others):
            return
        known, others = self.of_shape(shape), self._others
        if self.latent_shape is not None:
            others = {self.latent_shape: self._alone(), **others}
        self._others = {at: it for at, it in others.items() if at != shape}
        self.show(known)

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
        """Set the number of samples to remember; the oldest leave if there is no room.

        Raises:
            ValueError: size < 1.
        """
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
        """`resize` as a context, undone if the block raises.

        Raises:
            ValueError: size < 1.
        """
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
        samples = [(shape, *self.of_shape(shape).oldest_first()) for shape in self.shapes]
        write_window(Path(path), self.size, self.dtype, samples)

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: torch.device | str | None = None,
        *,
        largest: int | None = None,
    ) -> "SlidingWindow":
        """Read what `save` wrote.

        Args:
            largest: the most samples accepted, of all shapes together: a limit for files of unknown
                origin.

        Raises:
            ValueError: the file is damaged, not a window, or of another version.
            FileNotFoundError: there is no such file.
        """
        size, dtype, samples = read_window(Path(path), largest)
        window = cls(size, dtype=dtype, device=device)
        try:
            for shape, features, prompts in reversed(samples):
                window.append(features.unflatten(1, shape).to(device), prompts)
        except RuntimeError:
            raise ValueError(
                f"there is no memory for {path}, a window of {counted(size, 'sample')}"
            ) from None
        return window
