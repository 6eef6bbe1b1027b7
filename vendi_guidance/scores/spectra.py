"""Ways to compute the entropy of K/n, whose exponential is a diversity score.

`Exact` decomposes the matrix, `Nystrom` and `RandomFourier` a smaller one, from a low-rank
approximation of K, and `Lanczos` needs only products with K. None has a special case for K_X∘K_T:
that is the Gram matrix of one kernel, `kernels.Product`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isinf
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.kernels.base import Features, Kernel
from vendi_guidance.kernels.parts import Part, squared_norms
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.kernels.streams import CHUNK, Rows, gather, width
from vendi_guidance.scores.entropy import Entropy, fill_up, renyi_entropy
from vendi_guidance.scores.linalg import (
    FLOAT64_UP_TO,
    LEADING_BELOW,
    SPARE,
    Map,
    eigenvalues,
    gauss_quadrature,
    leading_eigenpairs,
    matrix_entropy,
    precise,
    second_moments,
    tridiagonalise,
)

DENSE_UP_TO = 20_000  # rows: up to here `Lanczos` stores K, beyond it computes K for every product


class Spectrum(ABC):
    """A way to compute the entropy of K/n, or with weights p of diag(sqrt p) K diag(sqrt p)."""

    @abstractmethod
    def entropies(
        self, rows: Rows, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        """The entropy of each part's K, or its approximation, in nats: 0-d float64 tensors.

        Args:
            rows: (n, d) features, as the kernels' `read` returns them, or a stream, read once.
            parts: kernels, and the columns they read.
            entropy: its order and truncation.
            weights: (n,) probabilities p of the items; None is 1/n each.
        """

    def entropy(
        self, x: Tensor, kernel: Kernel, entropy: Entropy, weights: Tensor | None = None
    ) -> Tensor:
        """`entropies` of one kernel of x: (n, d)."""
        return self.entropies(x, [Part(kernel)], entropy, weights)[0]


@dataclass(frozen=True)
class Exact(Spectrum):
    """All eigenvalues, by a dense decomposition: O(n^3) time, O(n^2) memory.

    Three cases cost less. Order 2 without weights needs no eigenvalues: O(n^2 d) time, O(n d)
    memory. If K = Z Z^T with w < n columns (cosine kernels: w = d; two of them, joint: w = d m),
    the (w, w) matrix Z^T Z has the same eigenvalues: O(n w^2) time, O(w^2) memory beside x, which
    may be a stream. Truncated to t far below n, only the t leading eigenvalues are computed:
    O(n^2 t), with a relative error of the score of about 1e-5.

    Example:
        >>> import torch
        >>> from vendi_guidance import Exact, Gaussian
        >>> Exact().eigenvalues(torch.tensor([[0.0], [0.0], [9.0]]), Gaussian(1.0))[:2]
        tensor([0.6667, 0.3333], dtype=torch.float64)
    """

    def eigenvalues(self, x: Features, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
        """(min(n, w),) float64, largest first, non-negative, summing to 1."""
        return eigenvalues(_matrix(kernel.read(x), kernel, weights))

    def entropies(
        self, rows: Rows, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        if not isinstance(rows, Tensor):
            widths = [part.kernel.rank(part.width(rows.width)) for part in parts]
            if all(w is not None and w <= FLOAT64_UP_TO for w in widths):
                maps = [(part, part.kernel.factor) for part in parts]
                return [matrix_entropy(m, entropy) for m in second_moments(rows, maps)]
            rows = gather(rows)
        by_tiles = entropy.is_collision and weights is None
        if by_tiles and not all(_has_small_factor(part.kernel, part.of(rows)) for part in parts):
            return [-norm.log() for norm in squared_norms(rows, parts)]
        matrices = (_matrix(part.of(rows), part.kernel, weights) for part in parts)
        return [matrix_entropy(matrix, entropy) for matrix in matrices]


@dataclass(frozen=True)
class Nystrom(Spectrum):
    """K ~ K_nm K_mm^+ K_mn with m items drawn at random as landmarks (Williams & Seeger, 2000).

    O(n m (d + m) + m^3) time, O(m^2) memory beside x. The mass that the landmarks do not explain is
    spread over the m eigenvalues as in truncation, so the result also approximates the truncated
    score (Ospanov & Farnia, 2025, Theorem 3).

    Args:
        rank: number of landmarks, drawn with the seed; n and above is all items, and exact.

    Raises:
        ValueError: rank < 1.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, Nystrom, vendi
        >>> round(float(vendi(torch.zeros(50, 3), Gaussian(1.0), spectrum=Nystrom(1))), 3)
        1.0
    """

    rank: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("rank", self.rank)

    def eigenvalues(self, x: Features, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
        """(min(n, rank),) float64, largest first, non-negative, summing to 1."""
        x = kernel.read(x)
        if self.rank >= len(x):
            return Exact().eigenvalues(x, kernel, weights)
        m, generator = self.rank, torch.Generator().manual_seed(self.seed)
        drawn = torch.randperm(len(x), generator=generator, device="cpu")[:m].sort().values
        landmarks = x[drawn.to(x.device)]
        values, vectors = torch.linalg.eigh(precise(kernel.gram(landmarks)))
        sound = values > m * torch.finfo(x.dtype).eps * values[-1]
        root = (vectors[:, sound] * values[sound].rsqrt()).to(x)

        def features(chunk: Tensor) -> Tensor:
            blocks = kernel.blocks(torch.cat([landmarks, chunk]))
            return blocks(slice(m, None), slice(m)) @ root

        [found] = second_moments(x, [(Part(kernel), features)], weights)
        explained = torch.linalg.eigvalsh(precise(found)).double().flip(0).clamp_(min=0)
        explained = torch.nn.functional.pad(explained, (0, m - len(explained)))
        total = explained.sum()
        is_all = total >= 1 - rounding(x.dtype, len(x))
        return fill_up(explained / total.where(is_all, 1))

    def entropies(
        self, rows: Rows, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        x = gather(rows)
        spectra = (self.eigenvalues(part.of(x), part.kernel, weights) for part in parts)
        return [entropy.of(spectrum) for spectrum in spectra]


@dataclass(frozen=True)
class RandomFourier(Spectrum):
    """K ~ Z Z^T with z(x) = [cos(w^T x), sin(w^T x)] / sqrt(r) for random w_1..r: FKEA.

    For Gaussian kernels and their products (Rahimi & Recht, 2007; Ospanov et al., NeurIPS 2024,
    Algorithm 1). O(n r (d + r) + r^3) time, O(r^2) memory beside x, which may be a stream. The
    matrices of parts of the data add up to that of the whole, on any machines.

    Args:
        features: 2r, the number of columns of Z; the seed is that of the frequencies.

    Raises:
        ValueError: features not even or < 2; on use, a kernel that is not a function of a - b.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, RandomFourier, vendi
        >>> round(float(vendi(torch.zeros(5, 3), Gaussian(1.0), spectrum=RandomFourier(64))), 3)
        1.0
    """

    features: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("features", self.features)
        if self.features % 2:
            raise ValueError(f"features must be even, a sine for each cosine, got {self.features}")

    def map(self, kernel: Kernel, d: int) -> Map:
        """z: (b, d) features -> (b, 2r), for this kernel; every row has length 1."""
        count, generator = self.features // 2, torch.Generator().manual_seed(self.seed)
        frequencies = kernel.frequencies(d, count, generator)
        if frequencies is None:
            raise ValueError(
                f"random Fourier features need a Gaussian kernel, or a product of such, got "
                f"{kernel}: use Exact(), or for scores Nystrom({self.features})"
            )

        def features(x: Tensor) -> Tensor:
            phases = x @ frequencies.to(x)
            if phases.dtype == torch.float32 and not float(phases.abs().max()) < 1e3:
                phases = x.double() @ frequencies.to(x.device, torch.float64)
            return torch.cat([phases.cos(), phases.sin()], dim=1).div_(count**0.5)

        return features

    def eigenvalues(self, x: Features, kernel: Kernel, weights: Tensor | None = None) -> Tensor:
        """(2r,) float64, largest first, non-negative, summing to 1."""
        return eigenvalues(self.moments(kernel.read(x), [Part(kernel)], weights)[0])

    def entropies(
        self, rows: Rows, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        return [matrix_entropy(moment, entropy) for moment in self.moments(rows, parts, weights)]

    def maps(self, parts: Sequence[Part], d: int) -> list[tuple[Part, Map]]:
        """Parts of features of width d, each with its `map`."""
        return [(part, self.map(part.kernel, part.width(d))) for part in parts]

    def moments(
        self, rows: Rows, parts: Sequence[Part], weights: Tensor | None = None
    ) -> list[Tensor]:
        """C = sum_i p_i z(x_i) z(x_i)^T: (2r, 2r) of each part, from one pass."""
        return second_moments(rows, self.maps(parts, width(rows)), weights)


class Estimate(NamedTuple):
    """An entropy in nats, and the standard error of the estimation; 0-d float64 tensors."""

    entropy: Tensor
    standard_error: Tensor


@dataclass(frozen=True)
class Lanczos(Spectrum):
    """tr f(K/n) from products with K and random vectors: for more items than `Exact` can take.

    Stochastic Lanczos quadrature (Ubaru, Chen & Saad, 2017) of f(l) = -l log l, or l^order. The
    leading eigenpairs are computed first and deflated. Of f, the part a l + b l^2 is exact, from
    tr A = 1 and tr A^2 = |K/n|_F^2, and only the remainder is estimated. Truncated scores are
    computed as by `Exact`. O(n^2 (deflated + probes)) time for each step. Memory is that of K, n^2,
    up to 20,000 items; beyond, each product computes K again, in O(n (deflated + probes) steps).

    Args:
        steps: nodes of the quadrature of each probe.
        probes: number of random vectors, drawn with the seed.
        deflated: how many leading eigenpairs are computed.

    Raises:
        ValueError: deflated < 1; steps < 3 or probes < 2, which have no error bar.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, Lanczos, vendi
        >>> round(float(vendi(torch.eye(8).repeat(4, 1), Cosine(), spectrum=Lanczos())), 3)
        8.0
    """

    steps: int = 24
    probes: int = 16
    seed: int = 0
    deflated: int = 50

    def __post_init__(self) -> None:
        for name, least in (("steps", 3), ("probes", 2), ("deflated", 1)):
            check_count(name, getattr(self, name), least)

    def entropies(
        self, rows: Rows, parts: Sequence[Part], entropy: Entropy, weights: Tensor | None = None
    ) -> list[Tensor]:
        x = gather(rows)
        return [self.estimate(part.of(x), part.kernel, entropy, weights).entropy for part in parts]

    def estimate(
        self, x: Features, kernel: Kernel, entropy: Entropy, weights: Tensor | None = None
    ) -> Estimate:
        """The entropy and its standard error, of `entropy`'s arguments.

        The error adds up that over the probes, the change in the last third of the steps, and
        rounding. It is 0 where no products were needed.
        """
        x = kernel.read(x)
        n, block = len(x), (entropy.truncation or self.deflated) + SPARE
        if entropy.is_collision or LEADING_BELOW * block > n or _has_small_factor(kernel, x):
            [exact] = Exact().entropies(x, [Part(kernel)], entropy, weights)
            return Estimate(exact, exact.new_zeros(()))
        strips = _strips(x, kernel, weights)
        generator = torch.Generator().manual_seed(self.seed)

        def multiply(v: Tensor) -> Tensor:
            return torch.cat([strip @ v for strip in strips()])

        def deflate(v: Tensor) -> Tensor:
            return v - vectors @ (vectors.T @ v)

        start = torch.randn(n, block, generator=generator, dtype=torch.float32, device="cpu").to(x)
        top, vectors = leading_eigenpairs(multiply, start, block - SPARE)
        top, zero, order = top.clamp_(min=0), top.new_zeros(()), entropy.order
        if entropy.truncation is not None:
            return Estimate(renyi_entropy(fill_up(top), order), zero)
        if isinf(order):
            return Estimate(-top[0].log(), zero)
        trace, error = _summand(top, order).sum(), zero
        rest, eps = 1 - top.sum(), torch.finfo(x.dtype).eps
        if rest > n * eps:
            norm = sum(torch.linalg.vector_norm(s, dim=1).double().square().sum() for s in strips())
            moments = torch.stack([rest, (norm - top.square().sum()).clamp(min=0)])
            signs = torch.randint(2, (n, self.probes), generator=generator, device="cpu").to(x)
            probes = deflate(signs.mul_(2).sub_(1))
            lanczos = tridiagonalise(lambda v: deflate(multiply(v)), probes, self.steps)
            lengths = probes.square().sum(dim=0).double()
            remainder, error = _remainder(lanczos, lengths, moments, order)
            trace = trace + remainder
        # the second term: n eigenvalues of 0, as products in this precision return them
        error = torch.hypot(error, n * _summand(eps * top[0], order) + 8 * eps * trace)
        if order == 1:
            return Estimate(trace.clamp(min=0), error)
        return Estimate(trace.log() / (1 - order), error / (trace * abs(1 - order)))


def _remainder(lanczos: Tensor, lengths: Tensor, moments: Tensor, order: float) -> Estimate:
    """tr f of a matrix of these tr A and tr A^2, from T and the squared lengths of the probes."""

    def traces(tridiagonal: Tensor) -> Tensor:
        nodes, shares = gauss_quadrature(tridiagonal)
        nodes, mass = nodes.clamp_(min=0), shares * lengths[:, None]
        controls = torch.stack([nodes, nodes.square()], dim=-1)
        f, root = _summand(nodes, order), mass.sqrt()
        design, values = controls * root[..., None], f * root
        solved = torch.linalg.lstsq(design.flatten(0, 1), values.flatten()[:, None])
        fitted = solved.solution[:, 0]
        return fitted @ moments + (mass * (f - controls @ fitted)).sum(dim=1)

    probed = traces(lanczos)
    fewer = ceil(2 * lanczos.shape[1] / 3)
    unconverged = probed.mean() - traces(lanczos[:, :fewer, :fewer]).mean()
    return Estimate(probed.mean(), torch.hypot(probed.std() / len(probed) ** 0.5, unconverged))


def _matrix(x: Tensor, kernel: Kernel, weights: Tensor | None) -> Tensor:
    """A symmetric matrix of trace 1 with the eigenvalues of K/n, but for zeros."""
    if _has_small_factor(kernel, x):
        return second_moments(x, [(Part(kernel), kernel.factor)], weights)[0]
    root = _roots(x, weights)
    return kernel.gram(x).mul_(root).mul_(root.T)


def _strips(x: Tensor, kernel: Kernel, weights: Tensor | None) -> Callable[[], Iterator[Tensor]]:
    """K/n in strips of rows; each call iterates over all of them."""
    if len(x) <= DENSE_UP_TO:
        whole = _matrix(x, kernel, weights)
        return lambda: iter([whole])
    root, blocks = _roots(x, weights), kernel.blocks(x)

    def strips() -> Iterator[Tensor]:
        for start in range(0, len(x), CHUNK):
            rows = slice(start, min(start + CHUNK, len(x)))
            strip = blocks(rows, slice(None))
            strip[:, rows].fill_diagonal_(1)
            yield strip.mul_(root[rows]).mul_(root.T)

    return strips


def _summand(p: Tensor, order: float) -> Tensor:
    """What an eigenvalue adds to the entropy of order 1, else to the sum of powers."""
    return torch.special.entr(p) if order == 1 else p**order


def _has_small_factor(kernel: Kernel, x: Tensor) -> bool:
    return (kernel.rank(x.shape[1]) or len(x)) < len(x)


def _roots(x: Tensor, weights: Tensor | None) -> Tensor:
    """(n, 1) square roots of the items' probabilities."""
    p = x.new_full((len(x),), 1 / len(x)) if weights is None else weights.to(x)
    return p.sqrt()[:, None]
