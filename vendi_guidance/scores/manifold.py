"""Scores of generated against reference images by nearest neighbours in feature space.

The *ball* of an image extends to its k-th nearest other image of the same set, inclusive; the balls
of a set approximate the support of its distribution. Distances are Euclidean, computed tile by tile
in float64, so that memory is that of the features and copies of an image are at distance zero.

Precision and recall: Kynkäänniemi et al. (NeurIPS 2019), equations (1) and (2). Density and
coverage: Naeem et al. (ICML 2020). Authenticity: Alaa et al. (ICML 2022).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.checks import check_count, counted
from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.kernels.tiles import rectangle, upper_triangle


class ManifoldScores(NamedTuple):
    """Scores of n generated and m reference images; shares lie in [0, 1].

    Attributes:
        precision: the share of generated images inside the ball of some reference image.
        recall: the share of reference images inside the ball of some generated image.
        density: the mean number of reference balls around a generated image, over k; from 0 to m/k,
            and 1 in expectation where both sets are of one distribution.
        coverage: the share of reference images with a generated image inside their ball; in
            expectation about 1 - 2^-k where both sets are of one distribution and size.
        authenticity: the share of generated images that are farther from their nearest reference
            image than that one is from its nearest other; the rest may be copies.
    """

    precision: float
    recall: float
    density: float
    coverage: float
    authenticity: float


def manifold_scores(x: Features, reference: Features, neighbours: int = 5) -> ManifoldScores:
    """Precision, recall, density, coverage and authenticity, from the same distances.

    All depend on n, m and k: compare scores at equal ones. O((n + m)^2 d) time.

    Args:
        x: (n, d) features of generated images.
        reference: (m, d) features of real ones; for authenticity, those of the training set.
        neighbours: k, always 1 for authenticity; in the papers 3 for precision and recall, else 5.

    Raises:
        ValueError: features that `as_pair` refuses, neighbours < 1, or k images or fewer in a set.

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
    share = 1 - rounding(origin.dtype, len(origin))
    covered, recalled = torch.zeros_like(radius, dtype=torch.bool).repeat(2, 1)
    for rows, columns in rectangle(x, reference):
        # rounding must not put an image outside a ball whose edge it is on
        distances = _squared_distances(x[rows], reference[columns], origin, share)
        inside = distances <= radius[columns]
        balls[rows] += inside.sum(dim=1)
        covered[columns] |= inside.any(dim=0)
        recalled[columns] |= (distances <= radius_x[rows, None]).any(dim=0)
        closest, where = distances.min(dim=1)
        fresh = closest > nearest_radius[columns][where]
        authentic[rows] = torch.where(closest < nearest[rows], fresh, authentic[rows])
        nearest[rows] = torch.minimum(nearest[rows], closest)
    shares = [float(true.double().mean()) for true in (balls > 0, recalled, covered, authentic)]
    precision, recall, coverage, authenticity = shares
    density = float(balls.mean()) / neighbours
    return ManifoldScores(precision, recall, density, coverage, authenticity)


def as_pair(
    x: Features, reference: Features, fewest: int = 1, remedy: str = ""
) -> tuple[Tensor, Tensor]:
    """x: (n, d) and reference: (m, d) as tensors on the device of x.

    Raises ValueError for features that `kernels.as_features` refuses or that differ in d, and, with
    this remedy, for fewer than `fewest` rows.
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
    found = origin.new_full((len(x), k), math.inf)
    for rows, columns in upper_triangle(x):
        distances = _squared_distances(x[rows], x[columns], origin)
        if rows == columns:
            distances.fill_diagonal_(math.inf)
        else:
            found[columns] = _smallest(found[columns], distances.T)
        found[rows] = _smallest(found[rows], distances)
    return found


def _smallest(found: Tensor, more: Tensor) -> Tensor:
    """The k smallest of each row of found: (b, k) and more: (b, c), in order."""
    return torch.cat([found, more], dim=1).topk(found.shape[1], dim=1, largest=False).values


def _squared_distances(a: Tensor, b: Tensor, origin: Tensor, share: float = 1.0) -> Tensor:
    """share (|a|^2 + |b|^2) - 2<a, b> as seen from the origin, at a share of 1 |a - b|^2: (n, m).

    An origin amid the items prevents the cancellation that norms far larger than the distances
    would cause.
    """
    p, q = a.double() - origin, b.double() - origin
    lengths = p.square().sum(dim=1)[:, None] + q.square().sum(dim=1)
    return lengths.mul_(share).addmm_(p, q.T, alpha=-2)
