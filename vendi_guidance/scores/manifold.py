"""Nearest-neighbour scores of generated against reference images in feature space.

The *ball* of an image is centred on it and extends to its k-th nearest other image of the same set,
inclusive. The balls of a set approximate the support of its distribution. Euclidean distances are
computed in float64, tile by tile, so that memory does not grow with n m and copies of an image have
distance zero.

Precision and recall: Kynkäänniemi et al. (NeurIPS 2019), equations (1) and (2). Density and
coverage: Naeem et al. (ICML 2020). Authenticity: Alaa et al. (ICML 2022).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, as_features, rectangle, upper_triangle
from vendi_guidance.kernels.checks import check_count
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.storage.messages import counted


class ManifoldScores(NamedTuple):
    """Scores of n generated and m reference images; shares lie in [0, 1].

    Attributes:
        precision: share of generated images inside the ball of some reference image.
        recall: share of reference images inside the ball of some generated image.
        density: mean number of reference balls that contain a generated image, divided by k; in
            [0, m/k], 1 in expectation if both sets have the same distribution.
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

    All five depend on n, m and k, so only scores with equal n, m and k can be compared.
    O((n + m)^2 d) time.

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
        >>> from vendi_guidance import manifold_scores
        >>> real = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
        >>> manifold_scores(torch.tensor([[0.4], [0.6]]), real, neighbours=1).coverage
        0.5
    """
    check_count("neighbours", neighbours)
    remedy = (
        f"{neighbours} neighbours of each need at least {neighbours + 1}; "
        "give more images or ask for fewer neighbours"
    )
    x, reference = as_pair(x, reference, neighbours + 1, remedy)
    origin = reference.mean(dim=0).double()
    radius_x = _squared_radii(x, neighbours, origin)[:, -1]
    radii = _squared_radii(reference, neighbours, origin)
    radius, nearest_radius = radii[:, -1], radii[:, 0]

    balls, nearest = origin.new_zeros(len(x)), origin.new_full((len(x),), math.inf)
    authentic = torch.zeros_like(balls, dtype=torch.bool)
    shrink = 1 - rounding(origin.dtype, len(origin))
    covered, recalled = torch.zeros_like(radius, dtype=torch.bool).repeat(2, 1)
    for rows, columns in rectangle(x, reference):
        # shrunk, so that rounding cannot move an image on the edge of a ball outside it
        distances = _squared_distances(x[rows], reference[columns], origin, shrink)
        inside = distances <= radius[columns]
        balls[rows] += inside.sum(dim=1)
        covered[columns] |= inside.any(dim=0)
        recalled[columns] |= (distances <= radius_x[rows, None]).any(dim=0)
        closest, where = distances.min(dim=1)
        is_authentic = closest > nearest_radius[columns][where]
        authentic[rows] = torch.where(closest < nearest[rows], is_authentic, authentic[rows])
        nearest[rows] = torch.minimum(nearest[rows], closest)
    flags = (balls > 0, recalled, covered, authentic)
    precision, recall, coverage, authenticity = (float(each.double().mean()) for each in flags)
    density = float(balls.mean()) / neighbours
    return ManifoldScores(precision, recall, density, coverage, authenticity)


def as_pair(
    x: Features, reference: Features, fewest: int = 1, remedy: str = ""
) -> tuple[Tensor, Tensor]:
    """Validates x: (n, d) and reference: (m, d), and returns both as tensors on the device of x.

    Raises ValueError if `kernels.as_features` rejects one or they differ in d; and, with `remedy`
    in the message, if a set has fewer than `fewest` rows.
    """
    x, reference = as_features(x), as_features(reference)
    if x.shape[1] != reference.shape[1]:
        raise ValueError(
            f"features to compare must agree in d, got {x.shape[1]} and {reference.shape[1]}: "
            "take both from one encoder"
        )
    for name, n in (("generated", len(x)), ("reference", len(reference))):
        if n < fewest:
            raise ValueError(f"got {counted(n, f'{name} image')}: {remedy}")
    return x, reference.to(x.device)


def _squared_radii(x: Tensor, k: int, origin: Tensor) -> Tensor:
    """(n, k) squared distances of each item from its k nearest others, the nearest first."""
    radii = origin.new_full((len(x), k), math.inf)
    for rows, columns in upper_triangle(x):
        distances = _squared_distances(x[rows], x[columns], origin)
        if rows == columns:
            distances.fill_diagonal_(math.inf)
        else:
            radii[columns] = _smallest(radii[columns], distances.T)
        radii[rows] = _smallest(radii[rows], distances)
    return radii


def _smallest(known: Tensor, more: Tensor) -> Tensor:
    """The k smallest entries of each row of known: (b, k) and more: (b, c) together, sorted."""
    return torch.cat([known, more], dim=1).topk(known.shape[1], dim=1, largest=False).values


def _squared_distances(a: Tensor, b: Tensor, origin: Tensor, shrink: float = 1.0) -> Tensor:
    """shrink (|a|^2 + |b|^2) - 2<a, b>, with norms from the origin; |a - b|^2 for shrink 1: (n, m).

    An origin near the items avoids cancellation when norms are far larger than distances.
    """
    p, q = a.double() - origin, b.double() - origin
    lengths = p.square().sum(dim=1)[:, None] + q.square().sum(dim=1)
    return lengths.mul_(shrink).addmm_(p, q.T, alpha=-2)
