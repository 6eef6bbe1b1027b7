"""Confidence intervals of scores.

A score of n items differs from that of their population by chance, and because n is finite: the
diagonal of K raises the mean of K^2, and an untruncated Vendi score with a Gaussian kernel keeps
growing (Ospanov & Farnia, UAI 2025). Each method says which of the two it covers.
"""

import math
from dataclasses import dataclass
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
from vendi_guidance.scores.subsampling import (
    Progress,
    Score,
    Subsets,
    interval,
    quantile,
    standard_error,
)

FEWEST = 20  # items for an interval

# A score, the score that it is at order 2, and the signs in log score of the logarithms of the
# means of K_X^2, K_T^2 and K_X^2∘K_T^2.
ORDER_TWO: tuple[tuple[Score, Score, tuple[float, ...]], ...] = (
    (rke, vendi, (-1.0,)),
    (conditional_rke, conditional_vendi, (0.0, 1.0, -1.0)),
    (information_rke, information_vendi, (-1.0, -1.0, 1.0)),
)


@dataclass(frozen=True)
class Interval:
    """The score of the items given, and its confidence interval from low to high, at `level`.

    Attributes:
        estimate: the centre, to which the standard error belongs: for "jackknife" the score
            corrected for the bias of K's diagonal, for "subsampling" `score` itself.
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
        score, arguments, options: a function; its arguments, first what the n items are (features,
            prompts, labels), then the kernels; its keywords.
        level: of confidence, 0 < level < 1.
        method: "jackknife" or "subsampling"; None is the jackknife where it applies.
        subsamples: of random halves, >= 10, drawn with the seed; 100 give the error to 7%.
        progress: wraps the loop over the halves; `tqdm.tqdm` shows a progress bar.

    Raises:
        ValueError: level, method or subsamples out of range; fewer than 20 items; streams,
            weights, items of different n, or what the score refuses; for the jackknife, no two
            items that are alike.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, rke, score_interval
        >>> found = score_interval(rke, torch.eye(4).repeat(20, 1), Cosine())
        >>> found.low < round(found.score, 3) < found.high
        True
    """
    z = quantile(level)
    if method not in (None, "jackknife", "subsampling"):
        raise ValueError(f"method must be 'jackknife' or 'subsampling', got {method!r}")
    if subsamples < 10:
        raise ValueError(f"subsamples must be at least 10, got {subsamples}")
    subsets = Subsets(score, arguments, options)
    if subsets.n < FEWEST:
        raise ValueError(f"an interval needs at least {FEWEST} items, got {subsets.n}")
    asked = {k: v for k, v in options.items() if v is not None and not isinstance(v, Exact)}
    signs = _order_two_signs(score, asked)
    if method == "jackknife" and signs is None:
        raise ValueError("the jackknife is for exact scores of order 2: leave method out")

    whole = estimate = subsets()
    if signs is None or method == "subsampling":
        method = "subsampling"
        permutations = subsets.permutations(seed, subsamples, progress)
        halves = [subsets(rows[: subsets.n // 2]) for rows in permutations]
        is_ratio = min(whole, *halves) > 0
        m = subsets.n // 2
        error = standard_error(halves, math.sqrt(m / (subsets.n - m)), is_ratio)
        low, high = interval(whole, z * error, is_ratio)
        error *= whole if is_ratio else 1
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


def _guarantee(
    subsets: Subsets, whole: float, asked: dict[str, Any], delta: float
) -> tuple[float, float] | None:
    score, order, rank = subsets.score, asked.get("order", 1), asked.get("truncation")
    if score not in (rke, vendi, conditional_vendi) or asked.keys() - {"order", "truncation"}:
        return None
    pairs = zip(subsets.items, subsets.kernels, strict=True)
    bound = [as_kernel(kernel).bind(entries) for entries, kernel in pairs]
    dimensions = [d for x, kernel in bound if (d := kernel.rank(x.shape[1])) is not None]
    if len(dimensions) == len(bound):
        rank = math.prod(dimensions) if rank is None else min(rank, math.prod(dimensions))
    if score is conditional_vendi:
        return conditional_vendi_guarantee(whole, subsets.n, rank, delta) if order == 1 else None
    return vendi_guarantee(whole, subsets.n, 2 if score is rke else order, rank, delta)
