"""Confidence intervals of scores.

A score of n items differs from that of their population by chance, and because n is finite: the
diagonal of K raises the mean of K^2, and an untruncated Vendi score with a Gaussian kernel keeps
growing (Ospanov & Farnia, UAI 2025). Each method says which of the two it covers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, stdev
from typing import Any

from vendi_guidance.kernels.custom import as_kernel
from vendi_guidance.scores.bounds import conditional_vendi_guarantee, vendi_guarantee
from vendi_guidance.scores.functional import (
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from vendi_guidance.scores.jackknife import jackknife
from vendi_guidance.scores.spectra import Exact
from vendi_guidance.scores.subsampling import Progress, Score, Subsets

FEWEST = 20
"""The least number of items for an interval."""

# A score, the score that it is at order 2, and the signs in log score of the logarithms of the
# means of K_X^2, K_T^2 and K_X^2∘K_T^2.
ORDER_TWO: tuple[tuple[Score, Score, tuple[float, ...]], ...] = (
    (rke, vendi, (-1.0,)),
    (conditional_rke, conditional_vendi, (0.0, 1.0, -1.0)),
    (information_rke, information_vendi, (-1.0, -1.0, 1.0)),
)


@dataclass(frozen=True)
class Interval:
    """A score and its confidence interval.

    Attributes:
        score: of the items given.
        estimate: the centre: for "jackknife" the score corrected for the bias of K's diagonal, for
            "subsampling" `score` itself.
        low, high: the ends.
        level: of confidence.
        standard_error: of `estimate`.
        method: "jackknife" or "subsampling".
        bound: (low, high) that contains the score of the population with probability `level` or
            more, by a theorem (see `bounds`); far wider. None where no theorem applies.
    """

    score: float
    estimate: float
    low: float
    high: float
    level: float
    standard_error: float
    method: str
    bound: tuple[float, float] | None


def score_interval(
    score: Score,
    *arguments: Any,
    level: float = 0.95,
    method: str | None = None,
    subsamples: int = 100,
    seed: int = 0,
    progress: Progress = iter,
    **options: Any,
) -> Interval:
    """A score with its confidence interval, for items drawn independently of one another.

    "jackknife", for exact `rke`, `conditional_rke` and `information_rke`, also as `vendi` etc. of
    order 2: the interval covers the score of the *population*, the limit for n -> infinity. Two
    passes over K: O(n^2 d) time, O(n d) memory.

    "subsampling", for any other score: the interval covers the mean score of n fresh items, not
    what more items would add to it. That is little for truncation well below n, or a cosine kernel
    and n well above d; for an untruncated score with a Gaussian kernel it may have no limit, and
    while the score grows nearly with n the interval is up to a quarter too narrow. The randomness
    of an approximate spectrum is not covered. Costs `subsamples` scores of n/2 items.

    Args:
        score: of this package, or any function.
        arguments: of the score (see `subsampling.Subsets`).
        level: of confidence, 0 < level < 1.
        method: "jackknife" or "subsampling"; None is the jackknife where it applies.
        subsamples: how many random halves are scored, >= 10; 100 give the standard error to 7%.
        seed: of the halves.
        progress: wraps the loop over the halves; `tqdm.tqdm` shows a progress bar.
        options: keyword arguments of the score.

    Raises:
        ValueError: level, method or subsamples out of range; fewer than FEWEST items; arguments
            that `Subsets` refuses; for the jackknife, no two items that are alike at all; and what
            the score raises.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, rke, score_interval
        >>> found = score_interval(rke, torch.eye(4).repeat(20, 1), Cosine())
        >>> found.low < round(found.score, 3) < found.high
        True
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if method not in (None, "jackknife", "subsampling"):
        raise ValueError(f"method must be 'jackknife' or 'subsampling', got {method!r}")
    if subsamples < 10:
        raise ValueError(f"subsamples must be at least 10, got {subsamples}")
    subsets = Subsets(score, arguments, options)
    if subsets.n < FEWEST:
        raise ValueError(f"an interval needs at least {FEWEST} items, got {subsets.n}")
    asked = {
        name: value
        for name, value in options.items()
        if value is not None and not isinstance(value, Exact)
    }
    signs = _order_two_signs(score, asked)
    if method == "jackknife" and signs is None:
        raise ValueError("the jackknife is for exact scores of order 2: leave method out")

    whole = subsets()
    z = NormalDist().inv_cdf((1 + level) / 2)
    if signs is None or method == "subsampling":
        method = "subsampling"
        estimate = whole
        permutations = subsets.permutations(seed, subsamples, progress)
        halves = [subsets(rows[: subsets.n // 2]) for rows in permutations]
        low, high, error = _around(whole, halves, subsets.n, z)
    else:
        method = "jackknife"
        kernels = [as_kernel(kernel) for kernel in subsets.kernels]
        estimate, low, high, error = jackknife(subsets.items, kernels, signs, z)
    bound = _guarantee(subsets, whole, asked, delta=1 - level)
    return Interval(whole, estimate, low, high, level, error, method, bound)


def _order_two_signs(score: Score, asked: dict[str, Any]) -> tuple[float, ...] | None:
    for short, long, signs in ORDER_TWO:
        if (score is short and not asked) or (score is long and asked == {"order": 2}):
            return signs
    return None


def _around(whole: float, halves: Sequence[float], n: int, z: float) -> tuple[float, float, float]:
    """Low, high and standard error of the score of n items, from the scores of random halves.

    The variance of means of m out of n items is to that of n fresh items as 1/m - 1/n to 1/n. The
    deviation of a score is about proportional to the score: hence logarithms.
    """
    m = n // 2
    shrink = math.sqrt(m / (n - m))
    if min(whole, *halves) > 0:
        relative = shrink * stdev(math.log(half) for half in halves)
        return whole * math.exp(-z * relative), whole * math.exp(z * relative), whole * relative
    error = shrink * stdev(halves)
    return whole - z * error, whole + z * error, error


def _guarantee(
    subsets: Subsets, whole: float, asked: dict[str, Any], delta: float
) -> tuple[float, float] | None:
    known = any(subsets.score is score for score in (rke, vendi, conditional_vendi))
    if not known or asked.keys() - {"order", "truncation"}:
        return None
    rank = asked.get("truncation")
    dimension: int | None = 1
    for entries, kernel in zip(subsets.items, subsets.kernels, strict=True):
        x, bound = as_kernel(kernel).bind(entries)
        found = bound.rank(x.shape[1])
        dimension = None if dimension is None or found is None else dimension * found
    if dimension is not None:
        rank = dimension if rank is None else min(rank, dimension)
    if subsets.score is conditional_vendi:
        is_order_one = asked.get("order", 1) == 1
        return conditional_vendi_guarantee(whole, subsets.n, rank, delta) if is_order_one else None
    order = asked.get("order", 2 if subsets.score is rke else 1)
    return vendi_guarantee(whole, subsets.n, order, rank, delta)
