"""Scores of generated against real images: kernel and Fréchet distances, and nearest neighbours.

The *ball* of an image is centred on it and extends to its k-th nearest other image of the same set,
which is outside: balls are open, as in the package `prdc` of Naeem et al. The balls of a set
approximate the support of its distribution. Euclidean distances are computed in float64, some rows
at a time, so that memory does not grow with n m, and rounding moves no image into a ball.

Precision and recall: Kynkäänniemi et al. (NeurIPS 2019), equations (1) and (2). Density and
coverage: Naeem et al. (ICML 2020). Authenticity: Alaa et al. (ICML 2022).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.kernels.base import CHUNK, Features, as_features, check_count, upper_triangle
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.storage.messages import counted


def kernel_distance(x: Features, reference: Features) -> float:
    """Kernel distance (KD, or KID): unbiased squared MMD with a cubic kernel.

        KD = mean_{i != j} k(x_i, x_j) + mean_{i != j} k(r_i, r_j) - 2 mean_{i, j} k(x_i, r_j)

    with k(a, b) = (<a, b>/d + 1)^3 on features of any encoder (Binkowski et al., ICLR 2018; Gretton
    et al., 2012, Lemma 6). If both sets have the same distribution it is 0 in expectation, and so
    can be negative. KID is often reported as the mean over random subsets of 1000 images, which has
    the same expectation and a larger variance. Computed in float64, in O((n + m)^2 d) time and
    O((n + m) d) memory.

    Args:
        x: (n, d) features of generated images, n >= 2.
        reference: (m, d) features of real images, m >= 2.

    Raises:
        ValueError: a set has fewer than 2 images; the sets differ in d; or features are not (n, d),
            complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import kernel_distance
        >>> round(kernel_distance(torch.zeros(2, 1), torch.ones(2, 1)), 3)
        7.0
    """
    x, reference = as_pair(x, reference, 2)
    across = sum(_cubic_kernel(x[rows], reference).sum() for rows in _strips(x, reference))
    mean_across = float(across) / (len(x) * len(reference))
    return _mean_of_pairs(x) + _mean_of_pairs(reference) - 2 * mean_across


def frechet_distance(x: Features, reference: Features) -> float:
    """Fréchet distance (FD, or FID) of Gaussians fitted to the features of both sets.

        FD = |m - m_r|^2 + tr(C + C_r - 2 (C C_r)^(1/2))

    for means m and covariances C with denominator n - 1, on features of any encoder (Heusel et al.,
    NeurIPS 2017). It is biased upwards, the more the fewer images there are: compare it at equal n
    and m, or use `kernel_distance`. The trace is computed without a matrix square root, which would
    lose precision with fewer images than features. O((n + m) d^2 + d^3) time, O(d^2) memory beside
    the features.

    Args and errors are those of `kernel_distance`.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import frechet_distance
        >>> round(frechet_distance(torch.zeros(2, 1), 3 * torch.ones(2, 1)), 3)
        9.0
    """
    x, reference = as_pair(x, reference, 2)
    (mean, root), (mean_r, root_r) = _mean_and_root(x), _mean_and_root(reference)
    # C = R^T R, and the trace of (C C_r)^(1/2) is the sum of the singular values of R R_r^T
    overlap = torch.linalg.matrix_norm(root @ root_r.T, "nuc")
    spread = root.square().sum() + root_r.square().sum() - 2 * overlap
    return float((mean - mean_r).square().sum() + spread.clamp(min=0))


class ManifoldScores(NamedTuple):
    """Scores of n generated and m reference images; shares lie in [0, 1].

    Attributes:
        precision: share of generated images inside the ball of some reference image.
        recall: share of reference images inside the ball of some generated image.
        density: mean number of reference balls that contain a generated image, divided by k; in
            [0, m/k], 1 in expectation if both sets have the same distribution, and 1 for a set
            against itself unless distances are equal.
        coverage: share of reference images whose ball contains a generated image; about 1 - 2^-k in
            expectation if both sets have the same distribution and size.
        authenticity: share of generated images that are farther from their nearest reference image
            than that image is from its own nearest neighbour; the others may be copies.
    """

    precision: float
    recall: float
    density: float
    coverage: float
    authenticity: float


def manifold_scores(x: Features, reference: Features, neighbours: int = 5) -> ManifoldScores:
    """Precision, recall, density, coverage and authenticity of generated images.

    All five depend on n, m and k, so only scores with equal n, m and k can be compared. Images with
    k copies in their set have empty balls: a set of equal images scores 0. O((n + m)^2 d) time.

    Args:
        x: (n, d) features of generated images.
        reference: (m, d) features of real images; for authenticity, of the training set.
        neighbours: k; the papers use 3 for precision and recall and 5 for density and coverage.
            Authenticity always uses 1.

    Raises:
        ValueError: neighbours < 1; a set has k images or fewer; the sets differ in d; or features
            are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import manifold_scores
        >>> real = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
        >>> manifold_scores(torch.tensor([[0.4], [0.6]]), real, neighbours=1).coverage
        0.5
    """
    check_count("neighbours", neighbours)
    x, reference = as_pair(x, reference, neighbours + 1)
    origin = reference.mean(dim=0).double()
    radius_x = _squared_radii(x, neighbours, origin)[:, -1]
    radii = _squared_radii(reference, neighbours, origin)
    radius, nearest_radius = radii[:, -1], radii[:, 0]

    # relative to squared norms, so that rounding moves no image on the edge of a ball
    edge = rounding(origin.dtype, len(origin))
    covered, recalled = torch.zeros_like(radius, dtype=torch.bool).repeat(2, 1)
    balls, authentic = [], []
    for rows in _strips(x, reference):
        distances = _squared_distances(x[rows], reference, origin, 1 + edge)
        inside = distances < radius
        balls.append(inside.sum(dim=1))
        covered |= inside.any(dim=0)
        recalled |= (distances < radius_x[rows, None]).any(dim=0)
        closest, where = distances.min(dim=1)
        lengths = _squared_lengths(x[rows], origin) + _squared_lengths(reference, origin)[where]
        authentic.append(closest - 2 * edge * lengths > nearest_radius[where])
    counts = torch.cat(balls).double()
    flags = (counts > 0, recalled, covered, torch.cat(authentic))
    precision, recall, coverage, authenticity = (float(each.double().mean()) for each in flags)
    density = float(counts.mean()) / neighbours
    return ManifoldScores(precision, recall, density, coverage, authenticity)


def as_pair(x: Features, reference: Features, fewest: int = 1) -> tuple[Tensor, Tensor]:
    """Features (n, d) and (m, d) as tensors on the device of x; ValueError if `as_features` rejects
    one, they differ in d, or one has fewer than `fewest` rows."""
    x, reference = as_features(x), as_features(reference)
    if x.shape[1] != reference.shape[1]:
        raise ValueError(
            f"features to compare must agree in d, got {x.shape[1]} and {reference.shape[1]}: "
            "take both from one encoder"
        )
    for name, n in (("generated", len(x)), ("reference", len(reference))):
        if n < fewest:
            raise ValueError(f"got {counted(n, f'{name} image')}: give at least {fewest}")
    return x, reference.to(x.device)


def _mean_of_pairs(x: Tensor) -> float:
    """The mean of `_cubic_kernel` over pairs of different rows of x: (n, d)."""
    total = 0.0
    for rows, columns in upper_triangle(x):
        values = _cubic_kernel(x[rows], x[columns])
        total += float((values.triu_(1) if rows == columns else values).sum())
    return total / (len(x) * (len(x) - 1) / 2)


def _cubic_kernel(a: Tensor, b: Tensor) -> Tensor:
    """(n, m) values of the kernel (<a, b>/d + 1)^3, float64."""
    return (a.double() @ b.double().T).div_(a.shape[1]).add_(1).pow_(3)


def _mean_and_root(x: Tensor) -> tuple[Tensor, Tensor]:
    """(d,) mean of x: (n, d), and R with at most d rows and covariance R^T R, in float64."""
    mean = torch.stack([chunk.double().sum(dim=0) for chunk in x.split(CHUNK)]).sum(dim=0) / len(x)
    root = mean.new_empty(0, len(mean))
    for chunk in x.split(CHUNK):
        root = torch.linalg.qr(torch.cat([root, chunk.double() - mean]), mode="r").R
    return mean, root / (len(x) - 1) ** 0.5


def _squared_radii(x: Tensor, k: int, origin: Tensor) -> Tensor:
    """(n, k) squared distances of each item from its k nearest others, the nearest first."""
    radii = []
    for rows in _strips(x, x):
        distances = _squared_distances(x[rows], x, origin)
        distances.diagonal(rows.start).fill_(math.inf)
        radii.append(distances.topk(k, dim=1, largest=False).values)
    return torch.cat(radii)


def _strips(x: Tensor, reference: Tensor) -> Iterator[slice]:
    """Rows of x, so few at a time that memory does not grow with the number of pairs."""
    step = max(1, 1024**2 // len(reference))
    return (slice(start, start + step) for start in range(0, len(x), step))


def _squared_distances(a: Tensor, b: Tensor, origin: Tensor, grow: float = 1.0) -> Tensor:
    """grow (|a|^2 + |b|^2) - 2<a, b>, with norms from the origin; |a - b|^2 for grow 1: (n, m).

    An origin near the items avoids cancellation when norms are far larger than distances.
    """
    lengths = _squared_lengths(a, origin)[:, None] + _squared_lengths(b, origin)
    return lengths.mul_(grow).addmm_(a.double() - origin, (b.double() - origin).T, alpha=-2)


def _squared_lengths(a: Tensor, origin: Tensor) -> Tensor:
    """(n,) squared norms from the origin."""
    return (a.double() - origin).square().sum(dim=1)
