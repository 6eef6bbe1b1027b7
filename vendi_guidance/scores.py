"""Diversity scores: features in, a number out.

A Vendi score is the exponential of an entropy of the spectrum of K/n: how many different items
there seem to be, from 1 (all alike) to n (nothing in common). Its conditional form counts the
differences that the prompts do not explain, its information form those that they do, and
vendi = conditional x information. RKE is the score of order 2, a ratio of sums of squares: it needs
no spectrum, and the `rke` functions and `intdiv` never hold an (n, n) matrix.

Features `x: (n, d)` and prompt features `t: (n, m)` are tensors or arrays; every score is a 0-d
float64 tensor on their device, without an autograd graph. Besides the errors named below, each
raises ValueError for features that `kernels.as_features` refuses and for x and t of different n.

Vendi: Friedman & Dieng (2023). Truncation: Ospanov & Farnia (UAI 2025). Conditional and information
scores: Jalali et al. (AISTATS 2026), equations (6), (7), (11) and (13).
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vendi_guidance.entropy import renyi_entropy, truncate
from vendi_guidance.kernels import Blocks, Features, Kernel, as_features, join
from vendi_guidance.spectra import Exact, Spectrum

if TYPE_CHECKING:
    import numpy as np

EXACT = Exact()


@torch.no_grad()
def vendi(
    x: Features,
    kernel: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    weights: "Features | None" = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp H_order(K/n), the effective number of different items in x, 1 <= vendi <= n.

    Args:
        x: (n, d) features.
        kernel: how alike two items are.
        order: of Renyi's entropy, 0 < order <= infinity. Orders below 1 count rare items for more,
            and rounding with them: give float64 features.
        truncation: how many eigenvalues to keep (see `entropy.truncate`), an upper bound of the
            score then.
        weights: (n,) probabilities of the items; None is 1/n each.
        spectrum: how the eigenvalues are got; order 2 without truncation and weights needs none.

    Raises:
        ValueError: order <= 0, truncation < 1, or weights that are not n probabilities.
    """
    x = as_features(x)
    if order == 2 and truncation is None and weights is None:
        return rke(x, kernel)
    p = None if weights is None else _probabilities(weights, len(x))
    return renyi_entropy(truncate(spectrum.eigenvalues(x, kernel, p), truncation), order).exp()


@torch.no_grad()
def rke(x: Features, kernel: Kernel) -> Tensor:
    """n^2 / |K|_F^2, which is `vendi` of order 2, 1 <= rke <= n.

    O(n^2 d) time, O(n d) memory.
    """
    x = as_features(x)
    return 1 / _mean_power(x, kernel, 2)


@torch.no_grad()
def conditional_vendi(
    x: Features,
    t: Features,
    kernel_x: Kernel,
    kernel_t: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp(H(K_X∘K_T / n) - H(K_T / n)): the diversity of x that the prompts t do not explain.

    Args:
        x: (n, d) features.
        t: (n, m) features of the prompts, one row for each row of x.
        kernel_x: how alike two items are.
        kernel_t: how alike two prompts are.
        order: of both entropies, 0 < order <= infinity.
        truncation: of both spectra (see `entropy.truncate`).
        spectrum: how the eigenvalues are got; order 2 without truncation needs none.

    Raises:
        ValueError: order <= 0, or truncation < 1.
    """
    x, t = _pair(x, t)
    if order == 2 and truncation is None:
        return conditional_rke(x, t, kernel_x, kernel_t)

    def entropy(features: Tensor, kernel: Kernel) -> Tensor:
        return renyi_entropy(truncate(spectrum.eigenvalues(features, kernel), truncation), order)

    return (entropy(*join(x, kernel_x, t, kernel_t)) - entropy(t, kernel_t)).exp()


@torch.no_grad()
def conditional_rke(x: Features, t: Features, kernel_x: Kernel, kernel_t: Kernel) -> Tensor:
    """|K_T|_F^2 / |K_X∘K_T|_F^2, which is `conditional_vendi` of order 2.

    O(n^2 (d + m)) time, O(n (d + m)) memory.
    """
    _, norm_t, norm_joint = _squared_norms(*_pair(x, t), kernel_x, kernel_t)
    return norm_t / norm_joint


@torch.no_grad()
def information_vendi(
    x: Features,
    t: Features,
    kernel_x: Kernel,
    kernel_t: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp(H(K_X/n) + H(K_T/n) - H(K_X∘K_T / n)): the diversity of x that the prompts t explain.

    Arguments and errors are those of `conditional_vendi`; the two multiply to `vendi`.
    """
    x, t = _pair(x, t)
    if order == 2 and truncation is None:
        return information_rke(x, t, kernel_x, kernel_t)
    whole = vendi(x, kernel_x, order=order, truncation=truncation, spectrum=spectrum)
    unexplained = conditional_vendi(
        x, t, kernel_x, kernel_t, order=order, truncation=truncation, spectrum=spectrum
    )
    return whole / unexplained


@torch.no_grad()
def information_rke(x: Features, t: Features, kernel_x: Kernel, kernel_t: Kernel) -> Tensor:
    """n^2 |K_X∘K_T|_F^2 / (|K_X|_F^2 |K_T|_F^2), which is `information_vendi` of order 2.

    O(n^2 (d + m)) time, O(n (d + m)) memory.
    """
    x, t = _pair(x, t)
    norm_x, norm_t, norm_joint = _squared_norms(x, t, kernel_x, kernel_t)
    return len(x) ** 2 * norm_joint / (norm_x * norm_t)


@torch.no_grad()
def cluster_vendi(
    x: Features,
    clusters: "Tensor | np.ndarray | Sequence[Hashable]",
    kernel: Kernel,
    *,
    order: float = 1.0,
) -> Tensor:
    """sum_j |S_j|/n * vendi(S_j): the diversity inside each of the given clusters S_j, on average.

    Args:
        x: (n, d) features.
        clusters: (n,) labels of any kind; items of equal labels are a cluster.
        kernel: how alike two items are.
        order: of Renyi's entropy, 0 < order <= infinity.

    Raises:
        ValueError: order <= 0, or not n labels.
    """
    x = as_features(x)
    labels = clusters if isinstance(clusters, Sequence) else clusters.reshape(-1).tolist()
    if len(labels) != len(x):
        raise ValueError(f"clusters must hold n = {len(x)} labels, got {len(labels)}")
    members: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, label in enumerate(labels):
        members[label].append(row)
    scores = [len(rows) * vendi(x[rows], kernel, order=order) for rows in members.values()]
    return torch.stack(scores).sum() / len(x)


def cluster_rke(
    x: Features, clusters: "Tensor | np.ndarray | Sequence[Hashable]", kernel: Kernel
) -> Tensor:
    """sum_j |S_j|/n * rke(S_j), which is `cluster_vendi` of order 2."""
    return cluster_vendi(x, clusters, kernel, order=2)


@torch.no_grad()
def intdiv(x: Features, kernel: Kernel) -> Tensor:
    """1 - mean(K): internal diversity, how unlike two items drawn at random are, 0 <= intdiv < 1.

    O(n^2 d) time, O(n d) memory.
    """
    x = as_features(x)
    return 1 - _mean_power(x, kernel, 1)


def _pair(x: Features, t: Features) -> tuple[Tensor, Tensor]:
    x, t = as_features(x), as_features(t)
    if len(x) != len(t):
        raise ValueError(f"x and t must describe the same items, got n = {len(x)} and n = {len(t)}")
    return x, t


def _probabilities(weights: Features, n: int) -> Tensor:
    p = (weights if isinstance(weights, Tensor) else torch.tensor(weights)).double()
    if p.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each item, got {tuple(p.shape)}")
    if not (p >= 0).all():
        raise ValueError(f"weights must be non-negative numbers, got {float(p.min())}")
    if not abs(float(p.sum()) - 1) < 1e-5:
        raise ValueError(f"weights must sum to 1, got {float(p.sum())}: divide them by their sum")
    return p


def _upper_triangle(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Square tiles of an (n, n) matrix that cover its diagonal and what is above it."""
    # On a CPU a tile should stay in cache between operations, on a GPU outlast their launches.
    side = 512 if x.device.type == "cpu" else 4096
    strips = [slice(start, min(start + side, len(x))) for start in range(0, len(x), side)]
    for i, rows in enumerate(strips):
        for columns in strips[i:]:
            yield rows, columns


def _tile(blocks: Blocks, rows: slice, columns: slice) -> Tensor:
    values = blocks(rows, columns)
    return values.fill_diagonal_(1) if rows == columns else values


def _share(values: Tensor, rows: slice, columns: slice) -> Tensor:
    """What a tile adds to the sum over K: off the diagonal, its mirror image too."""
    total = values.sum(dim=1).sum(dtype=torch.float64)  # a row is short enough for float32
    return total if rows == columns else 2 * total


def _mean_power(x: Tensor, kernel: Kernel, power: int) -> Tensor:
    """Mean of the entries of K, each to the given power."""
    blocks = kernel.blocks(x)
    total = x.new_zeros((), dtype=torch.float64)
    for rows, columns in _upper_triangle(x):
        total += _share(_tile(blocks, rows, columns).pow_(power), rows, columns)
    return total / len(x) ** 2


def _squared_norms(
    x: Tensor, t: Tensor, kernel_x: Kernel, kernel_t: Kernel
) -> tuple[Tensor, Tensor, Tensor]:
    """|K_X|_F^2, |K_T|_F^2 and |K_X∘K_T|_F^2 in one pass over their blocks."""
    blocks_x, blocks_t = kernel_x.blocks(x), kernel_t.blocks(t)
    norms = x.new_zeros(3, dtype=torch.float64)
    for rows, columns in _upper_triangle(x):
        of_x = _tile(blocks_x, rows, columns).square_()
        of_t = _tile(blocks_t, rows, columns).square_()
        norms[0] += _share(of_x, rows, columns)
        norms[1] += _share(of_t, rows, columns)
        norms[2] += _share(of_x.mul_(of_t), rows, columns)
    return norms[0], norms[1], norms[2]
