"""Kernels of feature vectors: Gaussian, cosine, and products of two."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Kernel, SphereKernel
from vendi_guidance.kernels.rounding import exact_ones, rounding
from vendi_guidance.kernels.tiles import Blocks

LEAST_EXPONENT = -40.0
"""Exponents are clamped to it: smaller similarities, squared, would be subnormal numbers,
which add nothing to a sum but slow a processor down several times."""


@dataclass(frozen=True)
class Gaussian(SphereKernel):
    """k(a, b) = exp(-|a - b|^2 / (2 sigma^2)), in (0, 1].

    The error on float32 features, however far from the origin, is about 1e-6 where they spread over
    a few sigma, and a few 1e-4 over a million. Beyond, near ones may count as copies.

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
        if not isinstance(self.sigma, (int, float)):  # a median of float32 features, for one
            object.__setattr__(self, "sigma", float(self.sigma))

    def blocks(self, x: Tensor) -> Blocks:
        # Distances do not depend on the mean but rounding does: |a|^2 + |b|^2 - 2<a, b> cancels if
        # norms are large. Where they still are with the mean removed, the exponent needs float64.
        z = (x - x.mean(dim=0)) / self.sigma
        half = z.square().sum(dim=1) / 2
        share = rounding(z.dtype, z.shape[1])
        resolution = float(half.max()) * share
        if z.dtype == torch.float32 and not resolution < 1e-4:
            precise = self.blocks(x.double())
            return lambda rows, columns: precise(rows, columns).float()
        if not math.isfinite(resolution):
            raise ValueError(f"features are too large beside sigma {self.sigma}: scale them down")

        def block(rows: slice, columns: slice) -> Tensor:
            exponent = torch.addmm(-half[columns], z[rows], z[columns].T)
            same = exponent.sub_(half[rows, None]) >= (half[rows, None] + half[columns]) * -share
            return exponent.masked_fill_(same, 0).clamp_(LEAST_EXPONENT, 0).exp_()

        return block

    def frequencies(self, d: int, count: int, generator: torch.Generator) -> Tensor | None:
        return (
            torch.randn(d, count, generator=generator, dtype=torch.float32, device="cpu")
            / self.sigma
        )

    def on_sphere(self, inner: Tensor) -> Tensor:
        return ((inner - 1) / self.sigma**2).clamp_(max=0).exp_()

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return values / self.sigma**2


@dataclass(frozen=True)
class Cosine(SphereKernel):
    """k(a, b) = <a, b> / (|a| |b|), in [-1, 1].

    Raises:
        ValueError: on use, an item is the zero vector.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine
        >>> Cosine()(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0], [4.0, -3.0]]))
        tensor([[1., 0.]])
    """

    def unit(self, x: Tensor) -> Tensor:
        """The rows of x: (n, d) at length 1."""
        largest = x.abs().amax(dim=1, keepdim=True)
        if (largest == 0).any():
            first = int((largest == 0).nonzero()[0, 0])
            raise ValueError(f"row {first} is a zero vector, which has no cosine: leave it out")
        # Divided twice, so that no square overflows or vanishes.
        return torch.nn.functional.normalize(x / largest, dim=1)

    factor = unit

    def blocks(self, x: Tensor) -> Blocks:
        z = self.unit(x)
        return lambda rows, columns: exact_ones(z[rows] @ z[columns].T, z.shape[1])

    def rank(self, d: int) -> int | None:
        return d

    def on_sphere(self, inner: Tensor) -> Tensor:
        return inner

    def slope_on_sphere(self, values: Tensor) -> Tensor:
        return torch.ones_like(values)


@dataclass(frozen=True)
class Product(Kernel):
    """first(a[:split], b[:split]) * second(a[split:], b[split:]).

    Its Gram matrix is the elementwise product of two. Two Gaussians are computed as one Gaussian of
    the scaled concatenation; the factor of two cosines is the tensor product of their units.
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
        # The second first: its draws are then the same alone and in a product, so what prompts
        # contribute to both terms of a conditional score cancels.
        second = self.second.frequencies(d - self.split, count, generator)
        first = self.first.frequencies(self.split, count, generator)
        return None if first is None or second is None else torch.cat([first, second])
