"""Bounds of a population's score by theorems, from the score of n independent items of it.

Loose, but valid at this n for every population, with probability 1 - delta or more. A score's range
[1, rank] follows from the number of eigenvalues: the truncation, or the dimension of the kernel's
feature map (of the joint kernel, the product of both dimensions); None where neither is finite. The
score is truncated to `rank` if its kernel has more dimensions. Bounds are (low, high), or None for
an n too small for the theorem.
"""

import math


def vendi_guarantee(
    score: float, n: int, order: float, rank: int | None, delta: float
) -> tuple[float, float] | None:
    """Of Vendi of any order: Ospanov & Farnia (UAI 2025), corollaries 1 and 2 and theorem 2.

    Theorem 2 does not cover order 1, where both of its powers are 1. There, as in its proof,
    corollary 2(a) is applied to the `rank` eigenvalues that truncation leaves. None also for an
    order below 1, and for an order below 2 without a rank.
    """
    log = math.log(2 / delta)
    most = math.inf if rank is None else float(rank)
    if order == 1:
        if rank is None or n < 32 * math.e**2 * log:
            return None
        error = math.sqrt(8 * rank * log / n) * math.log(n * rank / (32 * log))
        return _around(score, error, 0.0, math.log(most))
    if order < 1 or (order < 2 and rank is None) or n < 2 + 8 * math.log(1 / delta):
        return None
    dimensions = 1.0 if rank is None or order >= 2 else rank ** (2 - order)
    error = math.sqrt(32 * dimensions * log / n)
    power = -1.0 if math.isinf(order) else (1 - order) / order
    norm = score**power  # of the eigenvalues: it is the norm that concentrates
    # near order 1 the power of a norm that no score in range has can overflow
    high = (norm - error) ** (1 / power) if norm - error > most**power else most
    return min(1.0, norm + error) ** (1 / power), min(most, high)


def conditional_vendi_guarantee(
    score: float, n: int, rank: int | None, delta: float
) -> tuple[float, float] | None:
    """Of Conditional-Vendi of order 1: Jalali et al. (AISTATS 2026), theorems 1 and 2.

    None also without a rank.
    """
    log = math.log(4 / delta)
    if rank is None or rank < 2 or n < 4 * math.e**2 * (1 + math.sqrt(2 * log)) ** 2:
        return None
    error = math.sqrt(20 * rank * log / n) * math.log(n * rank)
    return _around(score, error, -math.log(rank), math.log(rank))


def _around(score: float, error: float, least: float, most: float) -> tuple[float, float]:
    """exp(log score -+ error), the logarithms kept between least and most."""
    middle = math.log(score)
    return math.exp(max(least, middle - error)), math.exp(min(most, middle + error))
