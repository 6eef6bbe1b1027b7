"""Kernels: Gaussian, cosine, products of two, and precomputed similarities."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import Blocks, Features, Kernel, SphereKernel, as_features
from vendi_guidance.kernels.rounding import exact_ones, rounding

MIN_EXPONENT = -40.0
"""Exponents are clamped to this: squares of smaller similarities would be subnormal numbers, which
add nothing to a sum but make it several times slower."""

ROUNDING = 1e-3
"""Tolerance for symmetry, the diagonal and the range: rounding errors of half precision."""


@dataclass(frozen=True)
class Gaussian(SphereKernel):
    """Gaussian (RBF) kernel, in (0, 1].

        k(a, b) = exp(-|a - b|^2 / (2 sigma^2))

    The error with float32 features, at any distance from the origin, is about 1e-6 if they spread
    over a few sigma and a few 1e-4 over a million. Beyond, close items may count as copies.

    Args:
        sigma: bandwidth; `median_distance` is a common choice.

    Raises:
        ValueError: sigma is not finite and positive; or, on use, features / sigma overflow.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian
        >>> Gaussian(1.0)(torch.zeros(1, 2), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        tensor([[1.0000, 0.3679]])
    """

    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ValueError(f"sigma must be finite and greater than 0, got {self.sigma}")
        if not isinstance(self.sigma, (int, float)):  # a tensor or a NumPy scalar
            object.__setattr__(self, "sigma", float(self.sigma))

    def blocks(self, x: Tensor) -> Blocks:
        # |a|^2 + |b|^2 - 2<a, b> cancels if norms are large beside distances: subtract the mean,
        # which distances do not depend on, and use float64 if the norms are still large.
        z = (x - x.mean(dim=0)).div_(self.sigma)
        half = z.square().sum(dim=1) / 2
        tolerance = rounding(z.dtype, z.shape[1])
        resolution = float(half.max()) * tolerance
        if z.dtype == torch.float32 and not resolution < 1e-4:
            precise = self.blocks(x.double())
            return lambda rows, columns: precise(rows, columns).float()
        if not math.isfinite(resolution):
            raise ValueError(f"features are too large for sigma {self.sigma}: scale them down")

        negative, closest = -half, half * (-2 * tolerance)

        def block(rows: slice, columns: slice) -> Tensor:
            exponent = torch.addmm(negative[columns], z[rows], z[columns].T)
            exponent.sub_(half[rows, None])  # -|a - b|^2 / 2
            same = exponent >= closest[rows, None]  # then both norms are nearly the same
            return exponent.masked_fill_(same, 0).clamp_(min=MIN_EXPONENT).exp_()

        return block

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        normal = torch.randn(d, count, generator=generator, dtype=torch.float32, device="cpu")
        return normal / self.sigma

    def on_sphere(self, distances: Tensor) -> Tensor:
        return (distances / -(self.sigma**2)).exp_()

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return values / -(self.sigma**2)


@dataclass(frozen=True)
class Cosine(SphereKernel):
    """Cosine kernel, in [-1, 1].

        k(a, b) = <a, b> / (|a| |b|)

    Raises:
        ValueError: on use, an item is the zero vector.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine
        >>> Cosine()(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0], [4.0, -3.0]]))
        tensor([[1., 0.]])
    """

    def unit(self, x: Tensor) -> Tensor:
        """The rows of x: (n, d), normalised to length 1."""
        largest = x.abs().amax(dim=1, keepdim=True)
        if (largest == 0).any():
            first = int((largest == 0).nonzero()[0, 0])
            raise ValueError(f"row {first} is a zero vector, which has no cosine: leave it out")
        # scaled by the largest entry first, so that no square overflows or underflows
        return torch.nn.functional.normalize(x / largest, dim=1)

    factor = unit

    def blocks(self, x: Tensor) -> Blocks:
        z = self.unit(x)
        return lambda rows, columns: exact_ones(z[rows] @ z[columns].T, z.shape[1])

    def rank(self, d: int) -> int | None:
        return d

    def on_sphere(self, distances: Tensor) -> Tensor:
        return 1 - distances

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return torch.full_like(values, -1)


@dataclass(frozen=True)
class Product(Kernel):
    """The product of a kernel of the first columns and a kernel of the others.

        k(a, b) = first(a[:split], b[:split]) * second(a[split:], b[split:])

    K is the elementwise product of both kernel matrices. Two Gaussian kernels are computed as one
    of scaled columns; the `factor` of two cosine kernels is the tensor product of unit vectors.
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
        # The second kernel first: its frequencies are then the same with and without the first, so
        # that in a conditional score the error of the prompt kernel cancels between both terms.
        second = self.second.frequencies(d - self.split, count, generator)
        first = self.first.frequencies(self.split, count, generator)
        return None if first is None or second is None else torch.cat([first, second])


class Precomputed(Kernel):
    """Precomputed similarities, k(i, j) = matrix[i, j]; items are row indices of the matrix.

    Scores are computed in the dtype of the matrix: `vendi(range(n), Precomputed(matrix))`. The
    matrix should be positive semi-definite, as kernel matrices are. If it is not, negative
    eigenvalues are set to 0, except that scores of order 2 include their squares.

    Args:
        matrix: (n, n) tensor or array, symmetric, with entries in [-1, 1] and a diagonal of 1, all
            to within 1e-3. A float32 or float64 tensor is not copied.

    Raises:
        ValueError: the matrix is not of this form; on use, items are not its row indices.

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

    def read(self, items: Any) -> Tensor:
        """The row indices as (n, 1), so that code that selects rows of features also works."""
        if isinstance(items, Tensor):
            items = (items.double() if items.is_floating_point() else items).detach().cpu()
        indices = np.asarray(items)
        if indices.ndim == 2 and indices.shape[1] == 1:
            indices = indices[:, 0]
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iuf":
            raise ValueError(
                f"items must be row indices, (n,) or (n, 1), got {indices.dtype} of {indices.shape}"
            )
        invalid = ~np.isin(indices, np.arange(len(self.matrix)))
        if invalid.any():
            last = len(self.matrix) - 1
            raise ValueError(f"row indices go from 0 to {last}, got {indices[invalid][0]}")
        return torch.from_numpy(indices.astype(np.int64))[:, None].to(self.matrix)

    def blocks(self, x: Tensor) -> Blocks:
        indices = x[:, 0].long().to(self.matrix.device)
        return lambda rows, columns: self.matrix[indices[rows, None], indices[columns]].to(x)
