"""Base classes of kernels: similarities k(a, b) of two items, normalised so that k(a, a) = 1.

The kernel matrix K of n items then has trace n, and the eigenvalues of K/n are a probability
distribution. Kernels compute K in blocks, so that only callers that need all of K store it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.precision import isolated

Features: TypeAlias = Tensor | np.ndarray

Blocks: TypeAlias = Callable[[slice, slice], Tensor]
"""`blocks(rows, columns)` returns K[rows, columns], which the caller may overwrite."""

CHUNK = 4096  # rows that are processed at a time


def as_features(x: Features) -> Tensor:
    """Validates features and returns them as a float32 or float64 tensor without a graph.

    Args:
        x: (n, d) tensor or array, n >= 1, d >= 1. float16 and bfloat16 become float32, integers
            float64. A float32 or float64 tensor is not copied.

    Raises:
        ValueError: x is not numeric, not 2-D, empty, complex, NaN or infinite.
    """
    features = x.detach() if isinstance(x, Tensor) else _from_numpy(x)
    shape = tuple(features.shape)
    if len(shape) != 2:
        raise ValueError(f"features must have shape (n, d), got {shape}: one row for each item")
    if not features.numel():
        raise ValueError(f"features of shape {shape} are empty: give at least one item")
    if features.is_complex():
        raise ValueError(f"features must be real, got {features.dtype}: stack real and imaginary")
    if not features.is_floating_point():
        features = features.double()
    if features.dtype not in (torch.float32, torch.float64):
        features = features.float()
    invalid = (~features.isfinite().all(dim=1)).nonzero()
    if len(invalid):
        row = int(invalid[0])
        raise ValueError(f"features contain NaN or infinity, first in row {row}: drop such rows")
    return features


def _from_numpy(x: np.ndarray) -> Tensor:
    """A copy of an array of any layout, byte order and numeric dtype."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiubc":
        raise ValueError(
            f"features must be numbers, got {array.dtype} from a {type(x).__name__}: give one "
            "(n, d) tensor or array; metrics such as VendiScore take chunks of it"
        )
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind != "c" and dtype not in (np.half, np.single):
        dtype = np.dtype(np.double)
    return torch.tensor(array.astype(dtype, order="C"), device="cpu")


def concat_columns(x: Tensor, t: Tensor) -> Tensor:
    """[x, t]: (n, d + m), for x: (n, d) and t: (n, m); ValueError if they differ in n or device."""
    if len(x) != len(t):
        raise ValueError(f"x and t must describe the same items, got n = {len(x)} and n = {len(t)}")
    if x.device != t.device:
        raise ValueError(f"x is on {x.device} but t on {t.device}: move them to one device")
    return torch.cat([x, t], dim=1)


class Kernel(ABC):
    """A normalised kernel. Subclasses must define `blocks`; the defaults of the other methods suit
    items that are rows of features."""

    @abstractmethod
    def blocks(self, x: Tensor) -> Blocks:
        """A function that returns blocks of K for x: (n, d); work shared by blocks is done once."""

    def read(self, items: Any) -> Tensor:
        """The items as an (n, d) tensor, or a ValueError if this kernel does not compare them."""
        return as_features(items)

    def rank(self, d: int) -> int | None:
        """Number of columns of `factor` for features of width d; None if there is no factor."""
        return None

    def factor(self, x: Tensor) -> Tensor:
        """(n, rank) matrix Z with K = Z Z^T; each row of Z depends on one row of x only."""
        raise TypeError(f"{self} has no factor")

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        """(d, count) samples from the Fourier transform of k, a probability density by Bochner's
        theorem; None if k is not a function of a - b."""
        return None

    @isolated()
    def __call__(self, a: Features, b: Features) -> Tensor:
        """(n, m) similarities of the items of a: (n, d) and b: (m, d); ValueError if `as_features`
        rejects a or b, or they differ in d."""
        a, b = self.read(a), self.read(b)
        if a.shape[1] != b.shape[1]:
            raise ValueError(f"a and b must agree in d, got {a.shape[1]} and {b.shape[1]}")
        return self.blocks(torch.cat([a, b]))(slice(len(a)), slice(len(a), None))

    @isolated()
    def gram(self, items: Any) -> Tensor:
        """The (n, n) kernel matrix K of n items: exactly symmetric, with ones on the diagonal."""
        x = self.read(items)
        blocks, gram = self.blocks(x), x.new_empty(len(x), len(x))
        for rows, columns in upper_triangle(x):
            values = tile(blocks, rows, columns)
            gram[rows, columns] = values
            gram[columns, rows] = values.T
        return gram


class SphereKernel(Kernel):
    """A kernel that is a function of the cosine distance, 1 - <a, b> for items of unit length."""

    @abstractmethod
    def on_sphere(self, distances: Tensor) -> Tensor:
        """k as a function of cosine distances of any shape, between 0 and 2."""

    @abstractmethod
    def slope_on_sphere(self, values: Tensor) -> Tensor:
        """The derivative of k in the cosine distance, as a function of the values of k."""


def as_kernel(kernel: Any) -> Kernel:
    """The kernel itself; ValueError if it is not an instance of `Kernel`."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"need a kernel such as Cosine() or Precomputed(matrix), got {kernel}")
    return kernel


def upper_triangle(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Square tiles that cover the upper triangle and diagonal of the (n, n) matrix of x: (n, d)."""
    # A tile should fit into a CPU's cache, and on a GPU take longer than launching its kernels.
    side = 512 if x.device.type == "cpu" else 4096
    strips = [slice(start, min(start + side, len(x))) for start in range(0, len(x), side)]
    for i, rows in enumerate(strips):
        for columns in strips[i:]:
            yield rows, columns


def tile(blocks: Blocks, rows: slice, columns: slice) -> Tensor:
    """K[rows, columns]; tiles on the diagonal are exactly symmetric with ones on their diagonal."""
    values = blocks(rows, columns)
    if rows == columns:
        values = (values + values.T).div_(2).fill_diagonal_(1)  # removes rounding errors
    return values


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless `value` is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
