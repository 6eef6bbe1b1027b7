"""Diversity scores: features in, a number out.

A Vendi score is the exponential of an entropy of the spectrum of K/n: how many different items
there seem to be, from 1 (all alike) to n (nothing in common). Its conditional form counts the
differences that the prompts do not explain, its information form those that they do, and
vendi = conditional x information. RKE is the score of order 2, a ratio of sums of squares: it needs
no spectrum, and the `rke` functions and `intdiv` never hold an (n, n) matrix.

Features `x: (n, d)` and prompt features `t: (n, m)` are tensors or arrays, whatever else their
kernel compares (see `similarities`), or streams of chunks (see `stream.as_stream`). A stream is
read once, and never held, by `RandomFourier` spectra and by exact scores of cosine kernels of some
thousand dimensions; others gather it in memory. Every score is a 0-d float64 tensor on the
features' device, without an autograd graph. Besides the errors named below, each raises ValueError
for features that `kernels.as_features` refuses and for x and t of different n.

Vendi: Friedman & Dieng (2023). Truncation: Ospanov & Farnia (UAI 2025). Conditional and information
scores: Jalali et al. (AISTATS 2026), equations (6), (7), (11) and (13).
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel
from vendi_guidance.kernels.custom import Similarity, as_kernel, reads_features
from vendi_guidance.kernels.parts import Part, mean_similarity
from vendi_guidance.kernels.standard import Product
from vendi_guidance.kernels.streams import Rows, as_stream, gather, side_by_side, width
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.spectra import Exact, Spectrum

if TYPE_CHECKING:
    import numpy as np

EXACT = Exact()

Items: TypeAlias = Any
"""Whatever a kernel compares: features (n, d), a stream of them, n texts, ..."""


@torch.no_grad()
def vendi(
    x: Items,
    kernel: Similarity,
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
        spectrum: how the entropy is got; each way states its cost.

    Raises:
        ValueError: order <= 0, truncation < 1, or weights that are not n probabilities.
    """
    entropy = Entropy(order, truncation)
    rows, kernel = bind(x, kernel)
    p = None
    if weights is not None:
        rows = gather(rows)
        p = _probabilities(weights, len(rows))
    return spectrum.entropies(rows, [Part(kernel)], entropy, p)[0].exp()


def rke(x: Items, kernel: Similarity, *, spectrum: Spectrum = EXACT) -> Tensor:
    """n^2 / |K|_F^2, which is `vendi` of order 2, 1 <= rke <= n.

    O(n^2 d) time, O(n d) memory; with `RandomFourier`, 1/|C|_F^2 and its costs.
    """
    return vendi(x, kernel, order=2, spectrum=spectrum)


@torch.no_grad()
def conditional_vendi(
    x: Items,
    t: Items,
    kernel_x: Similarity,
    kernel_t: Similarity,
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
        spectrum: how the entropies are got; each way states its cost.

    Raises:
        ValueError: order <= 0, or truncation < 1.
    """
    entropy = Entropy(order, truncation)
    rows, parts = _joined(x, t, kernel_x, kernel_t)
    joint, prompts = spectrum.entropies(rows, [parts.joint, parts.t], entropy)
    return (joint - prompts).exp()


def conditional_rke(
    x: Items,
    t: Items,
    kernel_x: Similarity,
    kernel_t: Similarity,
    *,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """|K_T|_F^2 / |K_X∘K_T|_F^2, which is `conditional_vendi` of order 2.

    O(n^2 (d + m)) time, O(n (d + m)) memory.
    """
    return conditional_vendi(x, t, kernel_x, kernel_t, order=2, spectrum=spectrum)


@torch.no_grad()
def information_vendi(
    x: Items,
    t: Items,
    kernel_x: Similarity,
    kernel_t: Similarity,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp(H(K_X/n) + H(K_T/n) - H(K_X∘K_T / n)): the diversity of x that the prompts t explain.

    Arguments and errors are those of `conditional_vendi`; the two multiply to `vendi`.
    """
    entropy = Entropy(order, truncation)
    rows, parts = _joined(x, t, kernel_x, kernel_t)
    whole, prompts, joint = spectrum.entropies(rows, [parts.x, parts.t, parts.joint], entropy)
    return (whole + prompts - joint).exp()


def information_rke(
    x: Items,
    t: Items,
    kernel_x: Similarity,
    kernel_t: Similarity,
    *,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """n^2 |K_X∘K_T|_F^2 / (|K_X|_F^2 |K_T|_F^2), which is `information_vendi` of order 2.

    O(n^2 (d + m)) time, O(n (d + m)) memory.
    """
    return information_vendi(x, t, kernel_x, kernel_t, order=2, spectrum=spectrum)


@torch.no_grad()
def cluster_vendi(
    x: Items,
    clusters: "Tensor | np.ndarray | Sequence[Hashable]",
    kernel: Similarity,
    *,
    order: float = 1.0,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """sum_j |S_j|/n * vendi(S_j): the diversity inside each of the given clusters S_j, on average.

    Args:
        x: (n, d) features.
        clusters: (n,) labels of any kind; items of equal labels are a cluster.
        kernel: how alike two items are.
        order: of Renyi's entropy, 0 < order <= infinity.
        spectrum: how the entropy is got; each way states its cost.

    Raises:
        ValueError: order <= 0, or not n labels.
    """
    entropy = Entropy(order)
    rows, kernel = bind(x, kernel)
    rows = gather(rows)
    scores = [
        len(members) * spectrum.entropies(rows[members], [Part(kernel)], entropy)[0].exp()
        for members in rows_by_label(clusters, len(rows)).values()
    ]
    return torch.stack(scores).sum() / len(rows)


def cluster_rke(
    x: Items,
    clusters: "Tensor | np.ndarray | Sequence[Hashable]",
    kernel: Similarity,
    *,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """sum_j |S_j|/n * rke(S_j), which is `cluster_vendi` of order 2."""
    return cluster_vendi(x, clusters, kernel, order=2, spectrum=spectrum)


@torch.no_grad()
def intdiv(x: Items, kernel: Similarity) -> Tensor:
    """1 - mean(K): internal diversity, how unlike two items drawn at random are, 0 <= intdiv < 1.

    O(n^2 d) time, O(n d) memory.
    """
    rows, kernel = bind(x, kernel)
    return 1 - mean_similarity(gather(rows), kernel)


def rows_by_label(
    labels: "Tensor | np.ndarray | Sequence[Hashable]", n: int
) -> dict[Hashable, list[int]]:
    """The row numbers of each label, in order of appearance.

    Raises:
        ValueError: not n labels.
    """
    values = labels if isinstance(labels, Sequence) else labels.reshape(-1).tolist()
    if len(values) != n:
        raise ValueError(f"clusters must hold n = {n} labels, got {len(values)}")
    rows: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, label in enumerate(values):
        rows[label].append(row)
    return rows


class Parts(NamedTuple):
    """What scores of samples x with prompts t are made of: the entropies of these."""

    x: Part
    t: Part
    joint: Part

    @classmethod
    def of(cls, kernel_x: Kernel, kernel_t: Kernel, d: int) -> "Parts":
        """Those of features of which the first d columns are x, and the rest t."""
        return cls(
            Part(kernel_x, stop=d),
            Part(kernel_t, start=d),
            Part(Product(kernel_x, kernel_t, split=d)),
        )


def bind(items: Items, kernel: Similarity) -> tuple[Rows, Kernel]:
    """The items as features that the kernel reads, and the kernel, whatever their kinds."""
    kernel = as_kernel(kernel)
    stream = as_stream(items) if reads_features(kernel) else None
    return kernel.bind(items) if stream is None else (stream, kernel)


def _joined(x: Items, t: Items, kernel_x: Similarity, kernel_t: Similarity) -> tuple[Rows, Parts]:
    """The columns of x, then those of t, and who reads which."""
    if x is t and isinstance(x, Iterator):
        raise ValueError("x and t are one iterator, which can only be read once: give two")
    x, kernel_x = bind(x, kernel_x)
    t, kernel_t = bind(t, kernel_t)
    if isinstance(x, Tensor) and isinstance(t, Tensor):  # numbers of things follow features
        x = x if reads_features(kernel_x) else x.to(t.device)
        t = t if reads_features(kernel_t) else t.to(x.device)
    return side_by_side(x, t), Parts.of(kernel_x, kernel_t, width(x))


def _probabilities(weights: Features, n: int) -> Tensor:
    p = (weights if isinstance(weights, Tensor) else torch.tensor(weights)).double()
    if p.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each item, got {tuple(p.shape)}")
    if not (p >= 0).all():
        raise ValueError(f"weights must be non-negative numbers, got {float(p.min())}")
    if not abs(float(p.sum()) - 1) < 1e-5:
        raise ValueError(f"weights must sum to 1, got {float(p.sum())}: divide them by their sum")
    return p
