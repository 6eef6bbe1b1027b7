"""Confidence intervals of scores.

A score of n items differs from that of their population by chance, and because n is finite: an
untruncated Vendi score with a Gaussian kernel keeps growing (Ospanov & Farnia, UAI 2025). Intervals
by subsampling cover the first of the two.
"""

import math
from dataclasses import dataclass
from typing import Any

from vendi_guidance.scores.subsampling import (
    Progress,
    Score,
    Subsets,
    interval,
    quantile,
    standard_error,
)

FEWEST = 20  # items for an interval


@dataclass(frozen=True)
class Interval:
    """The score of the items given, and its confidence interval from low to high, at `level`."""

    score: float
    low: float
    high: float
    level: float
    standard_error: float


def score_interval(
    score: Score,
    *arguments: Any,
    level: float = 0.95,
    subsamples: int = 100,
    seed: int = 0,
    progress: Progress = iter,
    **options: Any,
) -> Interval:
    """A score with its confidence interval, for items drawn independently of one another.

    By subsampling: the interval covers the mean score of n fresh items, not what more items would
    add to it. That is little for truncation well below n, or a cosine kernel and n well above d;
    for an untruncated score with a Gaussian kernel it may have no limit, and while the score grows
    nearly with n the interval is up to a quarter too narrow. The randomness of an approximate
    spectrum is not covered. Costs `subsamples` scores of n/2 items.

    Args:
        score, arguments, options: a function; its arguments, first what the n items are (features,
            prompts, labels), then the kernels; its keywords.
        level: of confidence, 0 < level < 1.
        subsamples: of random halves, >= 10, drawn with the seed; 100 give the error to 7%.
        progress: wraps the loop over the halves; `tqdm.tqdm` shows a progress bar.

    Raises:
        ValueError: level or subsamples out of range; fewer than 20 items; streams, weights, items
            of different n, or what the score refuses.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, rke, score_interval
        >>> found = score_interval(rke, torch.eye(4).repeat(20, 1), Cosine())
        >>> found.low < round(found.score, 3) < found.high
        True
    """
    z = quantile(level)
    if subsamples < 10:
        raise ValueError(f"subsamples must be at least 10, got {subsamples}")
    subsets = Subsets(score, arguments, options)
    if subsets.n < FEWEST:
        raise ValueError(f"an interval needs at least {FEWEST} items, got {subsets.n}")
    whole, m = subsets(), subsets.n // 2
    permutations = subsets.permutations(seed, subsamples, progress)
    halves = [subsets(rows[:m]) for rows in permutations]
    is_ratio = min(whole, *halves) > 0
    error = standard_error(halves, math.sqrt(m / (subsets.n - m)), is_ratio)
    low, high = interval(whole, z * error, is_ratio)
    return Interval(whole, low, high, level, error * (whole if is_ratio else 1))
