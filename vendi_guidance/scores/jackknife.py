"""Confidence intervals for the scores of order 2 of a population, from one sample of it.

log RKE, log Conditional-RKE and log Information-RKE are signed sums of logarithms of means of
k(X, Y)^2 over pairs of different items: functions of U-statistics, whose value without an item
follows from the row sum of that item.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.rounding import rounding
from vendi_guidance.kernels.standard import LEAST_EXPONENT
from vendi_guidance.kernels.tiles import Blocks, upper_triangle


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
    bound = [kernel.bind(entries) for entries, kernel in zip(items, kernels, strict=True)]
    blocks, x = [kernel.blocks(x) for x, kernel in bound], bound[0][0]
    n = len(x)
    sums = row_sums(blocks, x)
    means, without = leave_one_out(sums)
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


def leave_one_out(sums: Tensor) -> tuple[Tensor, Tensor]:
    """(s,) means of matrices off their diagonal, and (s, n): in column i those without item i.

    From the row sums: (s, n) of s symmetric (n, n) matrices with zeros on the diagonal, n >= 3.
    """
    n = sums.shape[1]
    total = sums.sum(dim=1)
    without = (total[:, None] - 2 * sums) / ((n - 1) * (n - 2))
    return total / (n * (n - 1)), without


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
