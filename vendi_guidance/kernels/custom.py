"""Kernels of one's own: a matrix at hand, any function of pairs, sums of kernels.

Kernels of other things than rows of numbers keep the things and compare row numbers: `bind` returns
those as (n, 1) features, so that whatever picks out rows of features picks out things too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.standard import Blocks, Features, Kernel, as_features

Similarity: TypeAlias = "Kernel | Callable[[Any, Any], float]"

ROUNDING = 1e-3
"""So far off may a similarity be and still be meant: half precision is."""


def as_kernel(similarity: Similarity) -> Kernel:
    """A kernel as it is, any other function of two items as a `Pairwise` one.

    Raises:
        ValueError: neither a kernel nor a function.
    """
    kind = similarity if isinstance(similarity, type) else type(similarity)
    if Kernel not in kind.__mro__ and callable(similarity):
        return Pairwise(cast(Callable, similarity))
    if Kernel not in kind.__mro__ or kind is similarity:
        raise ValueError(
            f"need a kernel such as Cosine(), or a function f(a, b) of two items, got {similarity}"
        )
    return cast(Kernel, similarity)


def reads_features(kernel: Kernel) -> bool:
    """Whether it compares rows of numbers as they come, rather than things that it must keep."""
    if isinstance(kernel, Sum):
        return reads_features(kernel.kernels[0])
    return type(kernel).bind is Kernel.bind


@dataclass(frozen=True, init=False, eq=False)
class Precomputed(Kernel):
    """A matrix of similarities, k(i, j) = matrix[i, j]; items are its row numbers, from 0.

    `vendi(range(n), Precomputed(matrix))`, in the matrix's precision. Negative similarities are
    fine, but the matrix ought to be positive semi-definite, as those of kernels are. Of one that is
    not, entropies of eigenvalues leave the negative ones out, while order 2 counts their squares.

    Args:
        matrix: (n, n), symmetric, entries in [-1, 1] and 1 on the diagonal, all to within 1e-3.

    Raises:
        ValueError: the matrix is no such; on use, items that are not its row numbers.
    """

    matrix: Tensor = field(repr=False)

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
        object.__setattr__(self, "matrix", k)

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        return row_numbers(items, len(self.matrix))[:, None].to(self.matrix), self

    def blocks(self, x: Tensor) -> Blocks:
        numbers = row_numbers(x, len(self.matrix)).to(self.matrix.device)
        return lambda rows, columns: self.matrix[numbers[rows, None], numbers[columns]].to(x)


class OfThings(Kernel):
    """A kernel that `bind` makes another of, which keeps the things."""

    def blocks(self, x: Tensor) -> Blocks:
        raise ValueError(f"{self} needs all items at once, and not as features: give a list")


@dataclass(frozen=True)
class Pairwise(OfThings):
    """Any function of two items, called once for each pair: O(n^2) calls and memory.

    Args:
        f: (a, b) -> similarity in [-1, 1], with f(a, a) = 1, and f(b, a) taken to be f(a, b).
        progress: goes through the numbers of the items that are compared with all later ones;
            `tqdm.tqdm` shows how far it is.

    Raises:
        ValueError: on use, there are no items, or f returns what is no such similarity.
    """

    f: Callable[[Any, Any], float]
    progress: Callable[[range], Iterable[int]] = field(default=iter, repr=False)

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        things = list(items)
        if not things:
            raise ValueError("there are no items: give at least one")
        upper = torch.zeros(len(things), len(things), dtype=torch.float64)
        for i in self.progress(range(len(things))):
            row = [self._value(things[i], other) for other in things[i:]]
            upper[i, i:] = torch.tensor(row, dtype=torch.float64)
        return Precomputed(upper + upper.triu(1).T).bind(range(len(things)))

    def _value(self, a: Any, b: Any) -> float:
        value = self.f(a, b)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not isfinite(number):
            raise ValueError(f"{self.f} must return finite numbers, got {value!r}")
        return number


@dataclass(frozen=True, init=False)
class Sum(Kernel):
    """sum_k w_k k(a, b), a kernel again: as alike as several kernels find two items on average.

    Args:
        kernels: kernels, or functions of pairs (see `as_kernel`), at least one, that all read the
            same sort of items in the same way: features, or things.
        weights: the w_k > 0, one for each, that sum to 1; None is equal ones.

    Raises:
        ValueError: no kernels, no such weights, kernels of features beside kernels of things; on
            use, kernels that do not read the items in the same way.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...]

    def __init__(
        self, kernels: Sequence[Similarity], weights: Sequence[float] | None = None
    ) -> None:
        parts = tuple(as_kernel(kernel) for kernel in kernels)
        if not parts:
            raise ValueError("a sum needs at least one kernel, got none")
        w = [1 / len(parts)] * len(parts) if weights is None else [float(w) for w in weights]
        if len(w) != len(parts) or not min(w) > 0 or not abs(sum(w) - 1) < 1e-6:
            raise ValueError(
                f"weights must be {len(parts)} positive numbers that sum to 1, got {weights}"
            )
        if len({reads_features(part) for part in parts}) > 1:
            raise ValueError(f"some kernels read features, some other things: {parts}")
        object.__setattr__(self, "kernels", parts)
        object.__setattr__(self, "weights", tuple(w))

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        if reads_features(self):
            return super().bind(items)
        things = items if hasattr(items, "__len__") else list(items)
        rows, parts = zip(*(part.bind(things) for part in self.kernels), strict=True)
        widest = max(rows, key=Tensor.element_size)
        if not all(torch.equal(x.to(widest), widest) for x in rows):
            raise ValueError(f"the kernels of a sum must read items in the same way: {parts}")
        return widest, Sum(parts, self.weights)

    def blocks(self, x: Tensor) -> Blocks:
        parts = [part.blocks(x) for part in self.kernels]

        def block(rows: slice, columns: slice) -> Tensor:
            total = parts[0](rows, columns).mul_(self.weights[0])
            for part, weight in zip(parts[1:], self.weights[1:], strict=True):
                total.add_(part(rows, columns), alpha=weight)
            return total

        return block

    def rank(self, d: int) -> int | None:
        ranks = [part.rank(d) for part in self.kernels]
        known = [rank for rank in ranks if rank is not None]
        return sum(known) if len(known) == len(ranks) else None

    def factor(self, x: Tensor) -> Tensor:
        parts = zip(self.kernels, self.weights, strict=True)
        return torch.cat([part.factor(x) * weight**0.5 for part, weight in parts], dim=1)

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        """Each of a kernel drawn with its weight for probability."""
        draws = [part.frequencies(d, count, generator) for part in self.kernels]
        known = [draw for draw in draws if draw is not None]
        if len(known) < len(draws):
            return None
        shares = torch.tensor(self.weights)
        drawn = torch.multinomial(shares, count, replacement=True, generator=generator)
        return torch.stack(known)[drawn, :, torch.arange(count)].T


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
