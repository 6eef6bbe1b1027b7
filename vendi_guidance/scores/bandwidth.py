"""Bandwidths for Gaussian kernels, chosen from the data.

Too small a bandwidth takes every item for a kind of its own, and the score for n items says little
about the next n; too large a one takes all for the same.
"""

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.functional import rke
from vendi_guidance.scores.subsampling import Score

LARGEST, SMALLEST = 32.0, 1 / 128
"""The grid's ends, in median distances."""

RATIO = 2**0.5
"""Between neighbours in the grid."""

HALVINGS = 4
"""How often the last step of the grid is halved, to 2%."""

FEWEST = 10
"""An evaluation needs so many items."""


def median_distance(features: Features, *, pairs: int = 4000, seed: int = 0) -> float:
    """The median distance of two items that differ, the usual first guess at a bandwidth.

    Args:
        features: (n, d).
        pairs: how many are looked at, drawn at random where there are more.
        seed: of the draw.

    Raises:
        ValueError: features that `kernels.as_features` refuses, fewer than 2 or all equal; pairs
            < 1.
    """
    if pairs < 1:
        raise ValueError(f"pairs must be at least 1, got {pairs}")
    x = as_features(features)
    n = len(x)
    if n < 2:
        raise ValueError(f"got {n} item: a distance needs two")
    if n * (n - 1) // 2 <= pairs:
        first, second = torch.triu_indices(n, n, offset=1)
    else:
        generator = torch.Generator().manual_seed(seed)
        first = torch.randint(n, (pairs,), generator=generator)
        second = (first + torch.randint(1, n, (pairs,), generator=generator)) % n
    halves = zip(first.to(x.device).split(256), second.to(x.device).split(256), strict=True)
    distances = torch.cat([torch.linalg.vector_norm(x[a] - x[b], dim=1) for a, b in halves])
    distances = distances[distances > 0]
    if not len(distances):
        raise ValueError("all items are equal: no bandwidth tells one from another")
    return float(distances.median())


def select_bandwidth(
    features: Features,
    rule: str = "variance",
    *,
    score: Score = rke,
    tolerance: float = 0.01,
    evaluations: int = 10,
    seed: int = 0,
) -> float:
    """A bandwidth for a Gaussian kernel on the features.

    By "variance", the papers' rule, "the smallest sigma that ensures a variance below 0.01 in the
    evaluated score over independent evaluations" (Jalali et al., AISTATS 2026, appendix E.1). Here,
    evaluations are of disjoint random parts of the data, so sigma is right for scores of about n /
    evaluations items, and somewhat large for more. The variance is small again where sigma is so
    small that all items count as different, which is not meant: it has to stay below the tolerance
    for every larger sigma of a grid around the median distance. Where it does so down to the grid's
    end, at 1/128 of that, the end is returned.

    By "median", `median_distance`.

    Args:
        features: (n, d). By "variance", one sigma costs `evaluations` scores of n / evaluations
            items, and about twenty are tried: give a random part of much data.
        rule: "variance", which reads the arguments that follow, or "median", which reads the seed.
        rule: "variance" or "median", which takes no more than the seed of what follows.
        score: of features and a `Gaussian`, tending to a constant as sigma grows.
        tolerance: what the variance, of the score and not of its logarithm, has to be below.
        evaluations: how many, >= 2. With ten, the variance is right to a factor of 1.6 or so.
        seed: of the parts.

    Returns:
        sigma, by "variance" to 2%. It scales with the features.

    Raises:
        ValueError: another rule; features that `kernels.as_features` refuses, all equal, or fewer
            than FEWEST for each evaluation; tolerance <= 0; evaluations < 2; or a score that varies
            at any sigma.
    """
    if rule == "median":
        return median_distance(features, seed=seed)
    if rule != "variance":
        raise ValueError(f"rule must be 'variance' or 'median', got {rule!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be greater than 0, got {tolerance}")
    if evaluations < 2:
        raise ValueError(f"a variance needs at least 2 evaluations, got {evaluations}")
    x = as_features(features)
    size = len(x) // evaluations
    if size < FEWEST:
        raise ValueError(
            f"got {len(x)} items: {evaluations} evaluations need at least {FEWEST * evaluations}"
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)[: size * evaluations].to(x.device)
    parts = [x[rows] for rows in order.split(size)]
    scale = median_distance(x, seed=seed)

    def settled(multiple: float) -> bool:
        return variance(score, parts, multiple * scale) < tolerance

    multiple = LARGEST
    while not settled(multiple):
        multiple *= 2
        if multiple > 1e6:
            raise ValueError(
                f"the score varies by {tolerance} or more at any bandwidth up to "
                f"{multiple * scale:.3g}: allow a larger tolerance"
            )
    while settled(multiple / RATIO):
        multiple /= RATIO
        if multiple < SMALLEST * 1.01:
            return multiple * scale
    step = RATIO
    for _ in range(HALVINGS):
        step **= 0.5
        if settled(multiple / step):
            multiple /= step
    return multiple * scale


def variance(score: Score, parts: "list[Tensor]", sigma: float) -> float:
    """The variance of the score over independent parts of the data, at one bandwidth."""
    scores = [float(score(part, Gaussian(sigma))) for part in parts]
    return float(torch.tensor(scores, dtype=torch.float64).var())
