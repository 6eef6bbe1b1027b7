"""A bandwidth for Gaussian kernels, chosen from the data.

With too small a bandwidth all items count as different, and the score of n items says little about
the next n; with too large a one all count as equal.
"""

import torch

from vendi_guidance.checks import check_count
from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.kernels.rounding import rounding


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
        first, second = torch.triu_indices(n, n, offset=1, device="cpu")
    else:
        generator = torch.Generator().manual_seed(seed)
        first = torch.randint(n, (pairs,), generator=generator, device="cpu")
        second = (first + torch.randint(1, n, (pairs,), generator=generator, device="cpu")) % n
    chunks = torch.stack([first, second]).to(x.device).split(256, dim=1)
    distances = torch.cat([torch.linalg.vector_norm(x[a] - x[b], dim=1) for a, b in chunks])
    # what is subtracted was rounded number by number
    sizes = torch.linalg.vector_norm(x, dim=1)[torch.stack([first, second])].sum(dim=0)
    distances = distances[distances > rounding(x.dtype, 1) * sizes]
    if not len(distances):
        raise ValueError("all items are equal: no bandwidth separates them")
    return float(distances.median())
