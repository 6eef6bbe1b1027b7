"""Kernels: how alike two items are, as a number.

Every kernel here is normalised, k(a, a) = 1, so that the Gram matrix K of n items has trace n and
the eigenvalues of K/n are a probability distribution. A kernel is a small immutable value; it gives
K block by block, so that only those who need all of K store it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

Features: TypeAlias = Tensor | np.ndarray

Blocks: TypeAlias = Callable[[slice, slice], Tensor]
"""`blocks(rows, columns)` is that part of K, as a new tensor which the caller may overwrite."""

EVERY_ROW = slice(None)

NOTHING_IN_COMMON = -40.0
"""The logarithm of the least similarity: squares of smaller ones are subnormal numbers, which sum
to nothing either but slow a processor down several times."""


def as_features(x: Features) -> Tensor:
    """`x` as a 2-D floating tensor of at least single precision.

    Args:
        x: (n, d) tensor or array, n >= 1, d >= 1. Integers become float64; float16 and bfloat16
            become float32; float32 and float64 stay as they are.

    Raises:
        ValueError: x does not hold numbers, is not 2-D, is empty, is complex, or holds NaN or
            infinity.
    """
    features = x.detach() if isinstance(x, Tensor) else _from_numpy(x)
    if features.ndim != 2:
        raise ValueError(
            f"features must have shape (n, d), got {tuple(features.shape)}: one row for each item"
        )
    if features.numel() == 0:
        raise ValueError(
            f"features of shape {tuple(features.shape)} are empty: give at least one item"
        )
    if features.is_complex():
        raise ValueError(f"features must be real, got {features.dtype}: stack real and imaginary")
    if not features.is_floating_point():
        features = features.double()
    if features.dtype not in (torch.float32, torch.float64):
        features = features.float()
    finite = features.isfinite().all(dim=1)
    if not finite.all():
        first = int(finite.logical_not().nonzero()[0])
        raise ValueError(f"features hold NaN or infinity, first in row {first}: drop such rows")
    return features


def upper_triangle(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Square tiles of the (n, n) matrix of x: (n, d) that cover its diagonal and what is above."""
    # On a CPU a tile should stay in cache between operations, on a GPU outlast their launches.
    side = 512 if x.device.type == "cpu" else 4096
    strips = [slice(start, min(start + side, len(x))) for start in range(0, len(x), side)]
    for i, rows in enumerate(strips):
        for columns in strips[i:]:
            yield rows, columns


def tile(blocks: Blocks, rows: slice, columns: slice) -> Tensor:
    """That part of K; on the diagonal of K symmetric, its own diagonal exactly 1."""
    values = blocks(rows, columns)
    if rows == columns:
        values = (values + values.T).div_(2).fill_diagonal_(1)  # rounding is not symmetric
    return values


def _from_numpy(x: "np.ndarray") -> Tensor:
    """A copy of an array, of whatever layout, byte order and kind of number."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiubc":
        raise ValueError(f"features must be numbers, got {array.dtype}")
    known = array.dtype.kind == "c" or array.dtype.newbyteorder("=") in (np.half, np.single)
    kept = array.dtype.newbyteorder("=") if known else np.dtype(np.double)
    return torch.tensor(array.astype(kept, order="C"))


class Kernel(Protocol):
    """A normalised kernel. To write a new one, inherit from this class and define `blocks`.

    The other methods have defaults: items are rows of numbers, and K has no other form than itself.
    """

    def blocks(self, x: Tensor) -> Blocks:
        """The Gram matrix of x: (n, d), block by block; what they share is computed here, once."""
        ...

    def bind(self, items: Any) -> "tuple[Tensor, Kernel]":
        """The items as a (n, d) tensor, and the kernel that reads them from there.

        Kernels of other things than rows of numbers keep the things and read row numbers.

        Raises:
            ValueError: items that this kernel does not compare.
        """
        return as_features(items), self

    def rank(self, d: int) -> int | None:
        """How many columns `factor` has for features of width d; None where there is no factor."""
        return None

    def factor(self, x: Tensor) -> Tensor:
        """(n, rank) matrix Z with K = Z Z^T, each row of which depends on one row of x only."""
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
        a, b = as_features(a), as_features(b)
        if a.shape[1] != b.shape[1]:
            raise ValueError(f"a and b must agree in d, got {a.shape[1]} and {b.shape[1]}")
        return self.blocks(torch.cat([a, b]))(slice(len(a)), slice(len(a), None))

    def gram(self, items: Any) -> Tensor:
        """K: (n, n) of n items, features (n, d) or what the kernel compares, symmetric, its
        diagonal exactly 1."""
        x, kernel = self.bind(items)
        blocks, gram = kernel.blocks(x), x.new_empty(len(x), len(x))
        for rows, columns in upper_triangle(x):
            values = tile(blocks, rows, columns)
            gram[rows, columns] = values
            gram[columns, rows] = values.T
        return gram


class SphereKernel(Kernel, Protocol):
    """A kernel that, on unit-length items, is a function of their inner product."""

    def on_sphere(self, inner: Tensor) -> Tensor:
        """k of unit-length items, of any shape, from their inner products."""
        ...

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        """dk / d<a, b> of unit-length items, from the values of k."""
        ...


@dataclass(frozen=True)
class Gaussian(SphereKernel):
    """k(a, b) = exp(-|a - b|^2 / (2 sigma^2)), in (0, 1].

    From float32 features it is right to about 1e-6 where they spread over a few sigma, and to a few
    1e-4 at worst, however far from the origin and from one another they lie.

    Raises:
        ValueError: sigma is not finite and positive; or, on use, features / sigma overflow.
    """

    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ValueError(f"sigma must be finite and greater than 0, got {self.sigma}")

    def blocks(self, x: Tensor) -> Blocks:
        # Distances do not see the mean but rounding does: |a|^2 + |b|^2 - 2<a, b> cancels if norms
        # are large. Where they still are with the mean gone, the exponent needs float64.
        z = (x - x.mean(dim=0)) / self.sigma
        half = z.square().sum(dim=1) / 2
        resolution = float(half.max()) * torch.finfo(z.dtype).eps
        if z.dtype == torch.float32 and not resolution < 1e-4:
            precise = self.blocks(x.double())
            return lambda rows, columns: precise(rows, columns).float()
        if not math.isfinite(resolution):
            raise ValueError(f"features are too large beside sigma {self.sigma}: scale them down")

        def block(rows: slice, columns: slice) -> Tensor:
            exponent = torch.addmm(-half[columns], z[rows], z[columns].T)
            return exponent.sub_(half[rows, None]).clamp_(NOTHING_IN_COMMON, 0).exp_()

        return block

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        return torch.randn(d, count, generator=generator) / self.sigma

    def on_sphere(self, inner: Tensor) -> Tensor:
        return ((inner - 1) / self.sigma**2).clamp_(max=0).exp_()

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return values / self.sigma**2


class InnerProduct(Kernel, Protocol):
    """k(a, b) = <unit(a), unit(b)>: K has the non-zero eigenvalues of a (d, d) matrix."""

    def unit(self, x: Tensor) -> Tensor:
        """(n, d) rows of length 1 whose matrix of inner products is K."""
        ...

    def blocks(self, x: Tensor) -> Blocks:
        z = self.unit(x)
        return lambda rows, columns: z[rows] @ z[columns].T

    def rank(self, d: int) -> int | None:
        return d

    def factor(self, x: Tensor) -> Tensor:
        return self.unit(x)


@dataclass(frozen=True)
class Cosine(InnerProduct, SphereKernel):
    """k(a, b) = <a, b> / (|a| |b|), in [-1, 1].

    Raises:
        ValueError: on use, an item is the zero vector.
    """

    def unit(self, x: Tensor) -> Tensor:
        """The rows of x: (n, d) at length 1."""
        largest = x.abs().amax(dim=1, keepdim=True)
        if (largest == 0).any():
            first = int((largest == 0).nonzero()[0, 0])
            raise ValueError(f"row {first} is a zero vector, which has no cosine: leave it out")
        # Divided twice, so that squares neither overflow nor vanish.
        return torch.nn.functional.normalize(x / largest, dim=1)

    def on_sphere(self, inner: Tensor) -> Tensor:
        return inner

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return torch.ones_like(values)


@dataclass(frozen=True)
class ProbabilityProduct(InnerProduct):
    """k(p, q) = sum_y sqrt(p_y q_y), in [0, 1], of the probabilities that a classifier gives.

    Jebara, Kondor & Howard (2004); the similarity with which Friedman & Dieng (2023) find dropped
    modes. Items are rows p(y | x), softmaxed.

    Raises:
        ValueError: on use, a row is negative somewhere, or does not sum to 1 to within 1e-2.
    """

    def unit(self, x: Tensor) -> Tensor:
        """The square roots of the rows of x: (n, classes), at length 1."""
        wrong = ((x < 0).any(dim=1) | ~((x.sum(dim=1) - 1).abs() <= 1e-2)).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise ValueError(
                f"row {row} holds no probabilities: it sums to {float(x[row].sum())}, its least is "
                f"{float(x[row].min())}; take the softmax of logits"
            )
        return torch.nn.functional.normalize(x.sqrt(), dim=1)


@dataclass(frozen=True)
class Product(Kernel):
    """first(a[:split], b[:split]) * second(a[split:], b[split:]).

    Its Gram matrix is the elementwise product of two. Two Gaussians are computed as the one that
    their product is, on the scaled concatenation; two inner products have the tensor product of
    their units as factor.
    """

    first: Kernel
    second: Kernel
    split: int

    def blocks(self, x: Tensor) -> Blocks:
        a, b = x[:, : self.split], x[:, self.split :]
        if isinstance(self.first, Gaussian) and isinstance(self.second, Gaussian):
            scaled = torch.cat([a / self.first.sigma, b / self.second.sigma], dim=1)
            return Gaussian(1.0).blocks(scaled)
        first, second = self.first.blocks(a), self.second.blocks(b)
        return lambda rows, columns: first(rows, columns).mul_(second(rows, columns))

    def rank(self, d: int) -> int | None:
        first, second = self.first.rank(self.split), self.second.rank(d - self.split)
        return None if first is None or second is None else first * second

    def factor(self, x: Tensor) -> Tensor:
        first = self.first.factor(x[:, : self.split])
        second = self.second.factor(x[:, self.split :])
        return (first[:, :, None] * second[:, None, :]).flatten(1)

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        # The second first: from one seed it draws in a product what it draws alone, and what
        # prompts contribute to both terms of a conditional score cancels.
        second = self.second.frequencies(d - self.split, count, generator)
        first = self.first.frequencies(self.split, count, generator)
        return None if first is None or second is None else torch.cat([first, second])
