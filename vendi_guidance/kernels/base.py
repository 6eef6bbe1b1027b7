"""What a kernel is: a similarity k(a, b) of two items, normalised so that k(a, a) = 1.

The Gram matrix K of n items then has trace n, and the eigenvalues of K/n are a probability
distribution. A kernel computes K in blocks, so that only callers that need all of K store it.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.tiles import Blocks, tile, upper_triangle

Features: TypeAlias = Tensor | np.ndarray


def as_features(x: Features) -> Tensor:
    """`x` as a 2-D floating tensor of at least single precision.

    Args:
        x: (n, d) tensor or array, n >= 1, d >= 1. Integers become float64; float16 and bfloat16
            become float32; float32 and float64 stay as they are.

    Raises:
        ValueError: x is not numeric, not 2-D, empty or complex, or has NaN or infinity.
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
    wrong = (~features.isfinite().all(dim=1)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"features hold NaN or infinity, first in row {row}: drop such rows")
    return features


def _from_numpy(x: np.ndarray) -> Tensor:
    """A copy of an array, of whatever layout, byte order and kind of number."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiubc":
        raise ValueError(f"features must be numbers, got {array.dtype}")
    known = array.dtype.kind == "c" or array.dtype.newbyteorder("=") in (np.half, np.single)
    kept = array.dtype.newbyteorder("=") if known else np.dtype(np.double)
    return torch.tensor(array.astype(kept, order="C"), device="cpu")


class Kernel(ABC):
    """A normalised kernel. A new one inherits from this class and defines `blocks`; the defaults of
    the other methods are for items that are rows of features."""

    @abstractmethod
    def blocks(self, x: Tensor) -> Blocks:
        """The Gram matrix of x: (n, d) in blocks; what they have in common is computed once."""

    def read(self, items: Any) -> Tensor:
        """The items as an (n, d) tensor, or a ValueError if this kernel does not compare them."""
        return as_features(items)

    def rank(self, d: int) -> int | None:
        """How many columns `factor` has for features of width d; None where there is no factor."""
        return None

    def factor(self, x: Tensor) -> Tensor:
        """(n, rank) matrix Z with K = Z Z^T; each row of Z depends on one row of x only."""
        raise TypeError(f"{self} has no factor")

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        """(d, count) draws from the Fourier transform of k(a - b), a probability density by
        Bochner's theorem; None where k is not a function of a - b."""
        return None

    def __call__(self, a: Features, b: Features) -> Tensor:
        """k of every item of a: (n, d) with every item of b: (m, d), as (n, m).

        Raises:
            ValueError: bad features (see `as_features`), or a and b differ in d.
        """
        a, b = self.read(a), self.read(b)
        if a.shape[1] != b.shape[1]:
            raise ValueError(f"a and b must agree in d, got {a.shape[1]} and {b.shape[1]}")
        return self.blocks(torch.cat([a, b]))(slice(len(a)), slice(len(a), None))

    def gram(self, items: Any) -> Tensor:
        """K: (n, n) of n items that the kernel compares, symmetric, its diagonal exactly 1."""
        x = self.read(items)
        blocks, gram = self.blocks(x), x.new_empty(len(x), len(x))
        for rows, columns in upper_triangle(x):
            values = tile(blocks, rows, columns)
            gram[rows, columns] = values
            gram[columns, rows] = values.T
        return gram


class SphereKernel(Kernel):
    """A kernel that is a function of the inner product where items have unit length."""

    @abstractmethod
    def on_sphere(self, inner: Tensor) -> Tensor:
        """k of unit-length items, of any shape, from their inner products."""

    @abstractmethod
    def slope_on_sphere(self, values: Tensor) -> Tensor:
        """dk / d<a, b> of unit-length items, from the values of k."""


def as_kernel(kernel: Any) -> Kernel:
    """The kernel itself, or a ValueError for what is none, such as a kernel's class."""
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"need a kernel such as Cosine(), or Precomputed(similarities), got {kernel}"
        )
    return kernel
