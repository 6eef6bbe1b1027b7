"""Finite-sample bounds on the score of a population, from the score of n independent items.

The bounds hold for every population and every n with probability at least 1 - delta, and are loose.
A bound is (low, high), or None if n is too small for its theorem.

`rank` is the number of eigenvalues, and the score lies in [1, rank]: the truncation, or the
dimension of the kernel's feature map (for a joint kernel, the product of both dimensions); None if
neither is finite. A kernel with more dimensions than `rank` implies a truncated score.
"""

import math


def vendi_guarantee(
    score: float, n: int, order: float, rank: int | None, delta: float
) -> tuple[float, float] | None:
    """Bound on Vendi scores of order >= 1: Ospanov & Farnia (UAI 2025), cor. 1 and 2, theorem 2.

    Theorem 2 does not cover order 1. For that order, as in its proof, corollary 2(a) is applied to
    the `rank` eigenvalues that truncation keeps. Also None for order < 1, and for order < 2 without
    a rank.
    """
    log = math.log(2 / delta)
    maximum = math.inf if rank is None else float(rank)
    if order == 1:
        if rank is None or n < 32 * math.e**2 * log:
            return None
        error = math.sqrt(8 * rank * log / n) * math.log(n * rank / (32 * log))
        return _log_interval(score, error, 0.0, math.log(maximum))
    if order < 1 or (order < 2 and rank is None) or n < 2 + 8 * math.log(1 / delta):
        return None
    dimensions = 1.0 if rank is None or order >= 2 else rank ** (2 - order)
    error = math.sqrt(32 * dimensions * log / n)
    power = -1.0 if math.isinf(order) else (1 - order) / order
    norm = score**power  # the norm of the eigenvalues, which is what concentrates
    # check the range first: near order 1 the power can overflow
    high = (norm - error) ** (1 / power) if norm - error > maximum**power else maximum
    return min(1.0, norm + error) ** (1 / power), min(maximum, high)


def conditional_vendi_guarantee(
    score: float, n: int, rank: int | None, delta: float
) -> tuple[float, float] | None:
    """Bound on conditional Vendi scores of order 1: Jalali et al. (AISTATS 2026), theorems 1 and 2.

    Also None without a rank.
    """
    log = math.log(4 / delta)
    if rank is None or rank < 2 or n < 4 * math.e**2 * (1 + math.sqrt(2 * log)) ** 2:
        return None
    error = math.sqrt(20 * rank * log / n) * math.log(n * rank)
    return _log_interval(score, error, -math.log(rank), math.log(rank))


def _log_interval(score: float, error: float, least: float, most: float) -> tuple[float, float]:
    """exp(log score -+ error), with the logarithms clamped to [least, most]."""
    log_score = math.log(score)
    return math.exp(max(least, log_score - error)), math.exp(min(most, log_score + error))
