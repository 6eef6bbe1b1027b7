"""Bandwidths for Gaussian kernels, chosen from the data.

With too small a bandwidth all items count as different, and the score of n items says little about
the next n; with too large a one all count as equal.
"""

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.functional import rke
from vendi_guidance.scores.subsampling import Score

LARGEST, SMALLEST, RATIO = 32.0, 1 / 128, 2**0.5
"""The ends of the grid, in median distances, and the ratio of its neighbours."""

FEWEST = 10  # items in an evaluation


def median_distance(features: Features, *, pairs: int = 4000, seed: int = 0) -> float:
    """The median distance of two items that differ, a common heuristic for a bandwidth.

    Args:
        features: (n, d).
        pairs: how many are measured, drawn with the seed where there are more.

    Raises:
        ValueError: features that `as_features` refuses, fewer than 2 or all equal; pairs < 1.

    Example:
        >>> import torch
        >>> from vendi_guidance import median_distance
        >>> median_distance(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """
    check_count("pairs", pairs)
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
    chunks = torch.stack([first, second]).to(x.device).split(256, dim=1)
    distances = torch.cat([torch.linalg.vector_norm(x[a] - x[b], dim=1) for a, b in chunks])
    # what is subtracted was rounded number by number
    sizes = torch.linalg.vector_norm(x, dim=1)[torch.stack([first, second])].sum(dim=0)
    distances = distances[distances > rounding(x.dtype, 1) * sizes]
    if not len(distances):
        raise ValueError("all items are equal: no bandwidth separates them")
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
    evaluated score over independent evaluations" (Jalali et al., AISTATS 2026, appendix E.1), to
    2%. The evaluations are of disjoint random parts of the data, so sigma suits scores of about n /
    evaluations items, and is somewhat large for more. Since the variance is small again where sigma
    is so small that all items count as different, it must be below the tolerance for every larger
    sigma of a grid around the median distance. The grid ends at 1/128 of that distance.

    Args:
        features: (n, d). By "variance", about twenty sigmas are tried, each at the cost of
            `evaluations` scores of n / evaluations items: give a random part of large data.
        rule: "variance"; or "median" for `median_distance`, of which only the seed is an argument.
        score: of features and a `Gaussian`, tending to a constant as sigma grows.
        tolerance: upper bound of the variance of the score (not of its logarithm).
        evaluations: of random parts, >= 2. With ten, the variance is right to a factor of 1.6.

    Raises:
        ValueError: another rule; features that `as_features` refuses, all equal, or fewer than
            FEWEST for each evaluation; tolerance <= 0; evaluations < 2; a score that varies at any
            sigma.

    Example:
        >>> import torch
        >>> from vendi_guidance import select_bandwidth
        >>> select_bandwidth(torch.tensor([[0.0], [1.0], [3.0]]), "median")
        2.0
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
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
    parts = [x[rows] for rows in drawn[: size * evaluations].split(size)]
    scale = median_distance(x, seed=seed)

    def is_stable(multiple: float) -> bool:
        return variance(score, parts, multiple * scale) < tolerance

    multiple = LARGEST
    while not is_stable(multiple):
        multiple *= 2
        if multiple > 1e6:
            raise ValueError(
                f"the score varies by {tolerance} or more at any bandwidth up to "
                f"{multiple * scale:.3g}: allow a larger tolerance"
            )
    while is_stable(multiple / RATIO):
        multiple /= RATIO
        if multiple < SMALLEST * 1.01:
            return multiple * scale
    step = RATIO
    for _ in range(4):  # bisections of the last step of the grid, down to 2%
        step **= 0.5
        if is_stable(multiple / step):
            multiple /= step
    return multiple * scale


def variance(score: Score, parts: list[Tensor], sigma: float) -> float:
    """The variance of the score over independent parts of the data, at one bandwidth."""
    scores = [float(score(part, Gaussian(sigma))) for part in parts]
    return float(torch.tensor(scores, dtype=torch.float64).var())
