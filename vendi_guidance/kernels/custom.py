"""Custom kernels: a given similarity matrix, and any function of two items.

The `bind` of a kernel of other items than features returns row numbers as (n, 1) features, so that
code that selects rows of features selects items too.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel, as_features
from vendi_guidance.kernels.tiles import Blocks

Similarity: TypeAlias = "Kernel | Callable[[Any, Any], float]"

ROUNDING = 1e-3
"""Similarities may be off by this much, as they are in half precision."""


def as_kernel(similarity: Similarity) -> Kernel:
    """A kernel as it is, any other function of two items as a `Pairwise` one.

    Raises:
        ValueError: neither a kernel nor a function.
    """
    if isinstance(similarity, Kernel):
        return similarity
    is_kernel_class = isinstance(similarity, type) and issubclass(similarity, Kernel)
    if is_kernel_class or not callable(similarity):
        raise ValueError(
            f"need a kernel such as Cosine(), or a function f(a, b) of two items, got {similarity}"
        )
    return Pairwise(similarity)


def reads_features(kernel: Kernel) -> bool:
    """Whether it compares rows of features, rather than items that it must keep."""
    return type(kernel).bind is Kernel.bind


class Precomputed(Kernel):
    """A matrix of similarities, k(i, j) = matrix[i, j]; items are its row numbers, from 0.

    `vendi(range(n), Precomputed(matrix))`, in the matrix's precision. Negative similarities are
    fine, but the matrix should be positive semi-definite, as those of kernels are. If it is not,
    entropies of eigenvalues drop the negative ones, while order 2 counts them, squared.

    Args:
        matrix: (n, n), symmetric, entries in [-1, 1] and 1 on the diagonal, all to within 1e-3.

    Raises:
        ValueError: the matrix is not of that kind; on use, items that are not its row numbers.

    Example:
        >>> import torch
        >>> from vendi_guidance import Precomputed, rke
        >>> round(float(rke(range(2), Precomputed(torch.tensor([[1.0, 0.5], [0.5, 1.0]])))), 3)
        1.6
    """

    def __init__(self, matrix: Features) -> None:
        try:
            k = as_features(matrix)
        except ValueError as error:
            raise ValueError(f"in the similarity matrix: {error}") from None
        if len(k) != k.shape[1]:
            raise ValueError(f"a similarity matrix must be square, got shape {tuple(k.shape)}")
        worst = k.diagonal()[(k.diagonal() - 1).abs().argmax()]
        if not abs(worst - 1) <= ROUNDING:
            raise ValueError(f"an item's similarity to itself must be 1, got {float(worst)}")
        skew = float((k - k.T).abs_().max())
        if not skew <= ROUNDING:
            raise ValueError(f"similarities must be symmetric, got some that differ by {skew}")
        largest = max(k.max(), k.min(), key=abs)
        if not abs(largest) <= 1 + ROUNDING:
            raise ValueError(f"similarities must lie in [-1, 1], got {float(largest)}")
        self.matrix = k

    def __repr__(self) -> str:
        return "Precomputed()"

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        return row_numbers(items, len(self.matrix))[:, None].to(self.matrix), self

    def blocks(self, x: Tensor) -> Blocks:
        numbers = row_numbers(x, len(self.matrix)).to(self.matrix.device)
        return lambda rows, columns: self.matrix[numbers[rows, None], numbers[columns]].to(x)


class ItemKernel(Kernel):
    """A kernel of items that are not features; `bind` returns another kernel, which keeps them."""

    def blocks(self, x: Tensor) -> Blocks:
        raise ValueError(f"{self} needs all items at once, and not as features: give a list")


@dataclass(frozen=True)
class Pairwise(ItemKernel):
    """Any function of two items, called once for each pair: O(n^2) calls and memory.

    Args:
        f: (a, b) -> similarity in [-1, 1], with f(a, a) = 1, and f(b, a) taken to be f(a, b).
        progress: wraps the loop over the items; `tqdm.tqdm` shows a progress bar.

    Raises:
        ValueError: on use, there are no items, or f does not return such similarities.

    Example:
        >>> from vendi_guidance import Pairwise, vendi
        >>> same_length = Pairwise(lambda a, b: float(len(a) == len(b)))
        >>> round(float(vendi(["cat", "dog", "horse", "mouse"], same_length)), 3)
        2.0
    """

    f: Callable[[Any, Any], float]
    progress: Callable[[range], Iterable[int]] = field(default=iter, repr=False)

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        kept = list(items)
        if not kept:
            raise ValueError("there are no items: give at least one")
        upper = torch.zeros(len(kept), len(kept), dtype=torch.float64)
        for i in self.progress(range(len(kept))):
            row = [self._value(kept[i], other) for other in kept[i:]]
            upper[i, i:] = torch.tensor(row, dtype=torch.float64)
        return Precomputed(upper + upper.triu(1).T).bind(range(len(kept)))

    def _value(self, a: Any, b: Any) -> float:
        value = self.f(a, b)
        with suppress(TypeError, ValueError):
            if isfinite(number := float(value)):
                return number
        raise ValueError(f"{self.f} must return finite numbers, got {value!r}")


def row_numbers(items: Any, size: int) -> Tensor:
    """Row numbers, as (n,) or (n, 1) of any kind, as (n,) integers.

    Raises:
        ValueError: something else, or not from 0 up to `size`.
    """
    if isinstance(items, Tensor):
        items = (items.double() if items.is_floating_point() else items).detach().cpu()
    numbers = np.asarray(items)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iuf":
        raise ValueError(
            f"items must be row numbers, (n,) or (n, 1), got {numbers.dtype} of {numbers.shape}"
        )
    wrong = ~((numbers >= 0) & (numbers < size) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise ValueError(f"row numbers go from 0 to {size - 1}, got {numbers[wrong][0]}")
    return torch.from_numpy(numbers.astype(np.int64))
