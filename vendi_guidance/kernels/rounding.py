"""One rule for what counts as rounding, wherever a computed number meets an exact one.

The rounding errors of a sum of m terms grow as sqrt(m) (Higham & Mary, 2019). Which sign they have
depends on the processor and on the number of threads, so `computed > exact` decides nothing.
"""

import torch
from torch import Tensor

MULTIPLE = 4
"""The worst case of unit rows of 2 numbers, and twice what was measured; more for wider ones."""


def rounding(dtype: torch.dtype, length: int) -> float:
    """The largest difference that counts as zero, as a share of the size of the terms.

    4 eps sqrt(length), for a sum of `length` terms in this dtype.

    Example:
        >>> f"{rounding(torch.float32, 512):.1e}"
        '1.1e-05'
    """
    return MULTIPLE * torch.finfo(dtype).eps * length**0.5


def coarser(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """Of two floating dtypes, that with the larger eps."""
    return max(one, other, key=lambda dtype: torch.finfo(dtype).eps)


def exact_ones(cosines: Tensor, width: int, stored: torch.dtype = torch.float64) -> Tensor:
    """Inner products of unit rows of this width, in place: 1 for those that differ from it by
    rounding, so that duplicates are at a distance of exactly 0.

    Args:
        stored: the dtype of the rows, where it is coarser than that of the products.
    """
    # rows are scaled to length 1 in at least single precision, then rounded number by number
    scaled = torch.promote_types(stored, torch.float32)
    smallest = rounding(coarser(cosines.dtype, scaled), width)
    if stored != scaled:
        smallest += rounding(stored, width) / width  # errors of single numbers average out
    return cosines.masked_fill_((cosines - 1).abs() <= smallest, 1)
