"""Choice of a bandwidth for Gaussian kernels from the data.

If the bandwidth is too small, all items count as distinct and the score of n items says little
about the next n. If it is too large, all items count as equal.
"""

import torch

from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.kernels.rounding import rounding

PAIRS = 4000  # most that are measured


def median_distance(features: Features) -> float:
    """Median Euclidean distance of two items that differ, a common heuristic for a bandwidth.

    Of more than 4,000 pairs, a random sample of this size is measured, always the same one.

    Args:
        features: (n, d) tensor or array, n >= 2.

    Raises:
        ValueError: there are fewer than 2 items; all items are equal; or features are not (n, d),
            complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import median_distance
        >>> median_distance(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """
    x = as_features(features)
    n = len(x)
    if n < 2:
        raise ValueError(f"got {n} item: a distance needs two")
    if n * (n - 1) // 2 <= PAIRS:
        first, second = torch.triu_indices(n, n, offset=1, device="cpu")
    else:
        generator = torch.Generator().manual_seed(0)
        first = torch.randint(n, (PAIRS,), generator=generator, device="cpu")
        second = (first + torch.randint(1, n, (PAIRS,), generator=generator, device="cpu")) % n
    chunks = torch.stack([first, second]).to(x.device).split(256, dim=1)
    distances = torch.cat([torch.linalg.vector_norm(x[a] - x[b], dim=1) for a, b in chunks])
    # Pairs that differ by rounding only count as equal; coordinates were rounded independently.
    norms = torch.linalg.vector_norm(x, dim=1)[torch.stack([first, second])].sum(dim=0)
    distances = distances[distances > rounding(x.dtype, 1) * norms]
    if not len(distances):
        raise ValueError("all items are equal: no bandwidth separates them")
    return float(distances.median())
