"""The tolerance for comparing a computed number with an exact one.

Rounding errors of a sum of m terms grow as sqrt(m) (Higham & Mary, 2019). Their sign depends on the
processor and the number of threads, so that `computed > exact` alone is not reproducible.
"""

import torch
from torch import Tensor


def rounding(dtype: torch.dtype, length: int) -> float:
    """Relative tolerance 4 eps sqrt(length) for a sum of `length` terms in this dtype.

    Example:
        >>> f"{rounding(torch.float32, 512):.1e}"
        '1.1e-05'
    """
    # 4: the worst case for unit vectors of 2 entries, and at least twice the errors measured
    return 4 * torch.finfo(dtype).eps * length**0.5


def coarser(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """The floating dtype with the larger eps."""
    return max(one, other, key=lambda dtype: torch.finfo(dtype).eps)


def exact_ones(cosines: Tensor, width: int) -> Tensor:
    """Sets inner products of unit-length rows within rounding of 1 to 1, in place, so that copies
    have similarity exactly 1."""
    return cosines.masked_fill_(cosines >= 1 - rounding(cosines.dtype, width), 1)


def cosine_distances(cosines: Tensor, width: int, stored: torch.dtype = torch.float64) -> Tensor:
    """One minus inner products of unit-length rows, exactly 0 for copies; NaN stays. `stored` is
    the dtype of the rows, if coarser than the products'."""
    # Rows are normalised in at least single precision, then their entries are rounded to `stored`.
    scaled = torch.promote_types(stored, torch.float32)
    tolerance = rounding(coarser(cosines.dtype, scaled), width)
    if stored != scaled:
        tolerance += rounding(stored, width) / width  # rounding errors of entries average out
    return torch.threshold_(1 - cosines, tolerance, 0)
