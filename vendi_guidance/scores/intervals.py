"""Confidence intervals of scores.

A score of n items differs from that of their population by random variation, and by a bias: the
diagonal of K raises the mean of K^2, and an untruncated Vendi score with a Gaussian kernel keeps
growing with n (Ospanov & Farnia, UAI 2025). Each method states which of the two it covers.

The jackknife applies to scores of order 2: log RKE, log Conditional-RKE and log Information-RKE are
signed sums of logarithms of means of k(X, Y)^2 over pairs of different items. These means are
U-statistics, whose value without item i follows from row sum i.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.kernels.standard import MIN_EXPONENT
from vendi_guidance.kernels.tiles import Blocks, upper_triangle
from vendi_guidance.scores.bounds import conditional_vendi_guarantee, vendi_guarantee
from vendi_guidance.scores.functional import (
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from vendi_guidance.scores.spectra import Exact
from vendi_guidance.scores.subsampling import Score, Subsets, interval, quantile, standard_error

FEWEST = 20  # items for an interval

# A score, the score whose order 2 it is, and the signs in the log score of the logarithms of the
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
        score: of the given items.
        estimate, standard_error: the value that the interval is for, and its standard error. For
            "jackknife", the score corrected for the bias from K's diagonal, else `score` itself.
        low, high, level: the ends of the interval and its confidence level.
        method: "jackknife" or "subsampling".
        bound: (low, high) that contains the score of the population with probability >= `level` by
            a theorem (see `bounds`). Far wider; None if no theorem applies.
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
    subsamples: int = 100,
    seed: int = 0,
    **options: Any,
) -> Interval:
    """A score with its confidence interval, for items sampled independently of one another.

    "jackknife", for exact `rke`, `conditional_rke` and `information_rke` (or `vendi` etc. of order
    2): the interval covers the score of the *population*, the limit for n -> infinity. Two passes
    over K: O(n^2 d) time, O(n d) memory.

    "subsampling", for any other score: the interval covers the mean score of n new items, but not
    the change that more items would bring. This change is small for a truncation well below n, or
    a cosine kernel with n well above d. An untruncated score with a Gaussian kernel may have no
    limit; while it grows almost linearly with n, the interval is up to 25% too narrow. The
    randomness of an approximate spectrum is not covered. Costs `subsamples` scores of n/2 items.

    Args:
        score: the score, such as `rke`, or any function with arguments like its own.
        arguments: of the score: first the n items (features, prompts, labels), then the kernels.
        level: confidence level, 0 < level < 1.
        subsamples, seed: number of random halves, >= 10, and their seed; 100 halves determine the
            standard error to 7%.
        options: keyword arguments of the score.

    Raises:
        ValueError: level or subsamples is out of range; there are fewer than 20 items; items are
            streams, have weights or differ in n; or the score rejects them. Jackknife only: all
            pairs of items have similarity 0.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, rke, score_interval
        >>> result = score_interval(rke, torch.eye(4).repeat(20, 1), Cosine())
        >>> result.low < round(result.score, 3) < result.high
        True
    """
    z = quantile(level)
    check_count("subsamples", subsamples, 10)
    subsets = Subsets(score, arguments, options)
    if subsets.n < FEWEST:
        raise ValueError(f"an interval needs at least {FEWEST} items, got {subsets.n}")
    given = subsets.options.items()
    options = {k: v for k, v in given if v is not None and not isinstance(v, Exact)}
    signs = _signs_of_order_two(score, options)
    value = estimate = subsets()
    if signs is None:
        method, m = "subsampling", subsets.n // 2
        halves = [subsets(rows[:m]) for rows in subsets.permutations(seed, subsamples)]
        is_ratio = min(value, *halves) > 0
        error = standard_error(halves, math.sqrt(m / (subsets.n - m)), is_ratio)
        low, high = interval(value, z * error, is_ratio)
        error *= value if is_ratio else 1
    else:
        method = "jackknife"
        estimate, low, high, error = jackknife(subsets.items, subsets.kernels, signs, z)
    bound = _guarantee(subsets, value, options, delta=1 - level)
    return Interval(value, estimate, low, high, level, error, method, bound)


def _signs_of_order_two(score: Score, options: dict[str, Any]) -> tuple[float, ...] | None:
    """The signs in `ORDER_TWO` if this is an exact score of order 2, else None."""
    for short, long, signs in ORDER_TWO:
        if (score is short and not options) or (score is long and options == {"order": 2}):
            return signs
    return None


def _guarantee(
    subsets: Subsets, value: float, options: dict[str, Any], delta: float
) -> tuple[float, float] | None:
    """The bound of the theorem for this score, or None if there is no theorem."""
    score, order, rank = subsets.score, options.get("order", 1), options.get("truncation")
    if score not in (rke, vendi, conditional_vendi) or options.keys() - {"order", "truncation"}:
        return None
    pairs = zip(subsets.items, subsets.kernels, strict=True)
    ranks = [kernel.rank(kernel.read(items).shape[1]) for items, kernel in pairs]
    if None not in ranks:
        dimensions = math.prod(filter(None, ranks))
        rank = dimensions if rank is None else min(rank, dimensions)
    if score is conditional_vendi:
        return conditional_vendi_guarantee(value, subsets.n, rank, delta) if order == 1 else None
    return vendi_guarantee(value, subsets.n, 2 if score is rke else order, rank, delta)


@torch.no_grad()
def jackknife(
    items: Sequence[Any], kernels: Sequence[Kernel], signs: Sequence[float], z: float
) -> tuple[float, float, float, float]:
    """Jackknife estimate, low, high and standard error of exp(sum signs * log E k^2).

    Linearised, the logarithm is a U-statistic of g = sum signs * k^2 / E k^2, whose variance is
    4 Var(E[g(X, Y) | X]) / n plus a second-order term. If all items are about equally similar to
    the others (equal modes, far apart), the first term is no larger than its own error, which
    correlates with the error of the estimate. The interval therefore consists of all values within
    z standard errors *at that value*: the variance is modelled as linear in the estimate, with the
    slope from a regression of their influence functions over the items.

    There are one or two kernels, each with n >= 3 items, and signs of log E k_1^2, or of
    log E k_1^2, log E k_2^2 and log E (k_1 k_2)^2. The interval is z standard errors wide on each
    side. Raises ValueError if all pairs of items have similarity 0: a logarithm is infinite.
    """
    read = [kernel.read(entries) for entries, kernel in zip(items, kernels, strict=True)]
    blocks = [kernel.blocks(features) for features, kernel in zip(read, kernels, strict=True)]
    x, n = read[0], len(read[0])
    sums = row_sums(blocks, x)
    total = sums.sum(dim=1)
    means = total / (n * (n - 1))  # off the diagonal
    without = (total[:, None] - 2 * sums) / ((n - 1) * (n - 2))  # column i: the mean without item i
    if not (means > 2 * math.exp(2 * MIN_EXPONENT)).all():
        raise ValueError(f"no two of {n} items are similar: choose a kernel with larger bandwidth")
    sign = means.new_tensor(signs)
    relative = (n - 1) / 2 * (1 - without / means[:, None])  # E[k^2(x_i, Y)] / E k^2 - 1
    relative = relative.masked_fill(relative.abs() <= (n - 1) / 2 * rounding(sums.dtype, n), 0)
    first = sign @ relative
    smoothed, spread = _second_pass(blocks, x, sign / means, first, centre=float(sign.sum()))

    # A jackknife counts the second-order term twice (Efron & Stein, 1981).
    doubled = 4 * first.square().sum() / (n * (n - 1))
    second = (2 * spread - n * doubled).clamp(min=0) / ((n - 1) * (n - 2))
    variance, minimum = float(doubled - second), float(second)
    # influence on Var(E[g(X, Y) | X]), up to a constant: `first` sums to 0
    influence = first.square() + 2 * smoothed - 4 / n * (sign * (relative @ first)) @ relative
    slope = float(2 / n * first @ influence / first.square().sum()) if first.any() else 0.0

    # the smallest and the largest d with d^2 <= z^2 max(variance + slope * d, minimum)
    middle, floor = z**2 * slope / 2, z * math.sqrt(minimum)
    root = math.sqrt(max(middle**2 + z**2 * variance, 0))
    ends = means.new_tensor([0, min(middle - root, -floor), max(middle + root, floor)])
    estimate, low, high = (sign @ means.log() + ends).exp().tolist()
    return estimate, low, high, estimate * math.sqrt(max(variance, minimum))


def _squared_tiles(
    blocks: Sequence[Blocks], x: Tensor
) -> Iterator[tuple[slice, slice, list[Tensor]]]:
    """Upper-triangle tiles of k^2 of each kernel, then of their product; 0 on the diagonal."""
    for rows, columns in upper_triangle(x):
        tiles = [block(rows, columns).square_() for block in blocks]
        if len(tiles) == 2:
            tiles.append(tiles[0] * tiles[1])
        if rows == columns:
            tiles = [tile.fill_diagonal_(0) for tile in tiles]
        yield rows, columns, tiles


def row_sums(blocks: Sequence[Blocks], x: Tensor) -> Tensor:
    """(s, n) float64 row sums of the s matrices of `_squared_tiles`."""
    sums = x.new_zeros(2 * len(blocks) - 1, len(x), dtype=torch.float64)
    for rows, columns, tiles in _squared_tiles(blocks, x):
        for total, tile in zip(sums, tiles, strict=True):
            total[rows] += tile.sum(dim=1, dtype=torch.float64)
            if rows != columns:
                total[columns] += tile.sum(dim=0, dtype=torch.float64)
    return sums


def _second_pass(
    blocks: Sequence[Blocks], x: Tensor, slopes: Tensor, first: Tensor, centre: float
) -> tuple[Tensor, Tensor]:
    """(n,) E[g(x_i, Y) first(Y)], and E (g - centre)^2, over pairs of different items."""
    n = len(x)
    smoothed, spread = torch.zeros_like(first), torch.zeros_like(first[0])
    vector, factors = first.to(x.dtype), slopes.tolist()
    for rows, columns, tiles in _squared_tiles(blocks, x):
        g = torch.zeros_like(tiles[0])
        for factor, tile in zip(factors, tiles, strict=True):
            g.add_(tile, alpha=factor)
        smoothed[rows] += g @ vector[columns]
        if rows != columns:
            smoothed[columns] += g.T @ vector[rows]
        tile_sum = g.sub_(centre).square_().sum(dtype=torch.float64)
        spread += tile_sum if rows == columns else 2 * tile_sum
    diagonal = n * centre**2  # the share of the zeros on the diagonal
    spread = (spread - diagonal).where(spread - diagonal > rounding(x.dtype, n) * diagonal, 0)
    return smoothed / (n - 1), spread / (n * (n - 1))
