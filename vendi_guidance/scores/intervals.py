"""Confidence intervals of scores.

A score of n items differs from that of their population by chance, and because n is finite: the
diagonal of K raises the mean of K^2, and an untruncated Vendi score with a Gaussian kernel keeps
growing (Ospanov & Farnia, UAI 2025). Each method says which of the two it covers.

The jackknife: log RKE, log Conditional-RKE and log Information-RKE are signed sums of logarithms of
means of k(X, Y)^2 over pairs of different items: functions of U-statistics, whose value without an
item follows from the row sum of that item.
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
from vendi_guidance.kernels.standard import LEAST_EXPONENT
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
    subsamples: int = 100,
    seed: int = 0,
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
        subsamples: of random halves, >= 10, drawn with the seed; 100 give the error to 7%.

    Raises:
        ValueError: level or subsamples out of range; fewer than 20 items; streams,
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
    check_count("subsamples", subsamples, 10)
    subsets = Subsets(score, arguments, options)
    if subsets.n < FEWEST:
        raise ValueError(f"an interval needs at least {FEWEST} items, got {subsets.n}")
    given = subsets.options.items()
    asked = {k: v for k, v in given if v is not None and not isinstance(v, Exact)}
    of_order_two = (
        signs
        for short, long, signs in ORDER_TWO
        if (score is short and not asked) or (score is long and asked == {"order": 2})
    )
    signs = next(of_order_two, None)
    whole = estimate = subsets()
    if signs is None:
        method, m = "subsampling", subsets.n // 2
        halves = [subsets(rows[:m]) for rows in subsets.permutations(seed, subsamples)]
        is_ratio = min(whole, *halves) > 0
        error = standard_error(halves, math.sqrt(m / (subsets.n - m)), is_ratio)
        low, high = interval(whole, z * error, is_ratio)
        error *= whole if is_ratio else 1
    else:
        method = "jackknife"
        estimate, low, high, error = jackknife(subsets.items, subsets.kernels, signs, z)
    bound = _guarantee(subsets, whole, asked, delta=1 - level)
    return Interval(whole, estimate, low, high, level, error, method, bound)


def _guarantee(
    subsets: Subsets, whole: float, asked: dict[str, Any], delta: float
) -> tuple[float, float] | None:
    score, order, rank = subsets.score, asked.get("order", 1), asked.get("truncation")
    if score not in (rke, vendi, conditional_vendi) or asked.keys() - {"order", "truncation"}:
        return None
    pairs = zip(subsets.items, subsets.kernels, strict=True)
    ranks = [kernel.rank(kernel.read(entries).shape[1]) for entries, kernel in pairs]
    if None not in ranks:
        dimensions = math.prod(filter(None, ranks))
        rank = dimensions if rank is None else min(rank, dimensions)
    if score is conditional_vendi:
        return conditional_vendi_guarantee(whole, subsets.n, rank, delta) if order == 1 else None
    return vendi_guarantee(whole, subsets.n, 2 if score is rke else order, rank, delta)


@torch.no_grad()
def jackknife(
    items: Sequence[Any], kernels: Sequence[Kernel], signs: Sequence[float], z: float
) -> tuple[float, float, float, float]:
    """Estimate, low, high and standard error of exp(sum signs * log E k^2).

    Linearised, the logarithm is a U-statistic of g = sum signs * k^2 / E k^2; its variance is
    4 Var(E[g(X, Y) | X]) / n + second. Where all items are about equally similar to the others
    (equal modes, far apart), the first term is no larger than its own error, which is correlated
    with the error of the estimate. So the interval contains each value within z standard errors *of
    that value*: the variance is modelled as linear in the estimate, with the slope of the
    regression of their influence functions over the items.

    There are one or two kernels, which compare n >= 3 entries each, and signs of log E k_1^2, or of
    log E k_1^2, log E k_2^2 and log E (k_1 k_2)^2. Half the interval is z standard errors. Raises
    ValueError where no two items are alike, so that a logarithm is infinite.
    """
    read = [kernel.read(entries) for entries, kernel in zip(items, kernels, strict=True)]
    blocks = [kernel.blocks(features) for features, kernel in zip(read, kernels, strict=True)]
    x, n = read[0], len(read[0])
    sums = row_sums(blocks, x)
    total = sums.sum(dim=1)
    means = total / (n * (n - 1))  # off the diagonal
    without = (total[:, None] - 2 * sums) / ((n - 1) * (n - 2))  # in column i, those without item i
    if not (means > 2 * math.exp(2 * LEAST_EXPONENT)).all():
        raise ValueError(f"no two of {n} items are alike: choose a kernel of larger bandwidth")
    sign = means.new_tensor(signs)
    relative = (n - 1) / 2 * (1 - without / means[:, None])  # E[k^2(x_i, Y)] / E k^2 - 1
    relative = relative.masked_fill(relative.abs() <= (n - 1) / 2 * rounding(sums.dtype, n), 0)
    first = sign @ relative
    passed_on, spread = _second_pass(blocks, x, sign / means, first, centre=float(sign.sum()))

    # A jackknife counts the second-order term twice (Efron & Stein, 1981).
    doubled = 4 * first.square().sum() / (n * (n - 1))
    second = (2 * spread - n * doubled).clamp(min=0) / ((n - 1) * (n - 2))
    variance, least = float(doubled - second), float(second)
    # influence on Var(E[g(X, Y) | X]), up to a constant: `first` sums to 0
    influence = first.square() + 2 * passed_on - 4 / n * (sign * (relative @ first)) @ relative
    tilt = float(2 / n * first @ influence / first.square().sum()) if first.any() else 0.0

    # the least and the largest d with d^2 <= z^2 max(variance + tilt * d, least)
    middle, floor = z**2 * tilt / 2, z * math.sqrt(least)
    root = math.sqrt(max(middle**2 + z**2 * variance, 0))
    ends = means.new_tensor([0, min(middle - root, -floor), max(middle + root, floor)])
    estimate, low, high = (sign @ means.log() + ends).exp().tolist()
    return estimate, low, high, estimate * math.sqrt(max(variance, least))


def _squared_tiles(
    blocks: Sequence[Blocks], x: Tensor
) -> Iterator[tuple[slice, slice, list[Tensor]]]:
    """Upper-triangle tiles of k^2 of each kernel and then of their product, 0 on the diagonal."""
    for rows, columns in upper_triangle(x):
        tiles = [block(rows, columns).square_() for block in blocks]
        if len(tiles) == 2:
            tiles.append(tiles[0] * tiles[1])
        if rows == columns:
            tiles = [tile.fill_diagonal_(0) for tile in tiles]
        yield rows, columns, tiles


def row_sums(blocks: Sequence[Blocks], x: Tensor) -> Tensor:
    """(s, n) row sums, float64, of the matrices that `_squared_tiles` gives."""
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
    """(n,) E[g(x_i, Y) first(Y)] and E (g - centre)^2, over pairs of different items."""
    n = len(x)
    passed_on, spread = torch.zeros_like(first), torch.zeros_like(first[0])
    vector, factors = first.to(x.dtype), slopes.tolist()
    for rows, columns, tiles in _squared_tiles(blocks, x):
        g = torch.zeros_like(tiles[0])
        for factor, tile in zip(factors, tiles, strict=True):
            g.add_(tile, alpha=factor)
        passed_on[rows] += g @ vector[columns]
        if rows != columns:
            passed_on[columns] += g.T @ vector[rows]
        share = g.sub_(centre).square_().sum(dtype=torch.float64)
        spread += share if rows == columns else 2 * share
    diagonal = n * centre**2  # what is added for the zeros there
    spread = (spread - diagonal).where(spread - diagonal > rounding(x.dtype, n) * diagonal, 0)
    return passed_on / (n - 1), spread / (n * (n - 1))
