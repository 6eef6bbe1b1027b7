"""Diversity scores: features in, a number out.

A Vendi score is the exponential of an entropy of the spectrum of K/n: the effective number of
different items, from 1 (all equal) to n (nothing in common). Its conditional form measures the
diversity that the prompts do not explain, its information form the diversity that they do, and
vendi = conditional x information. RKE is the score of order 2, a ratio of squared Frobenius norms:
the `rke` functions and `intdiv` need no spectrum and never store an (n, n) matrix.

Features `x: (n, d)` and prompt features `t: (n, m)` are tensors or arrays, row numbers of a
`Precomputed` matrix, or streams of chunks (see `streams.as_stream`). A stream is
read once, without being stored, by `RandomFourier` spectra and by exact scores of cosine kernels of
up to some thousand dimensions; other scores gather it in memory. Ranges hold up to rounding, and
for approximate spectra up to their errors.

Vendi: Friedman & Dieng (2023). Truncation: Ospanov & Farnia (UAI 2025). Conditional and information
scores: Jalali et al. (AISTATS 2026), equations (6), (7), (11) and (13).
"""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel, as_kernel
from vendi_guidance.kernels.parts import Part, mean_similarity
from vendi_guidance.kernels.precomputed import Precomputed
from vendi_guidance.kernels.standard import Product
from vendi_guidance.kernels.streams import Rows, as_stream, gather, side_by_side, width
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.groups import Groups, rows_by_label
from vendi_guidance.scores.spectra import Exact, Spectrum

EXACT = Exact()
Items: TypeAlias = Any  # whatever a kernel compares: features (n, d), a stream of them, row numbers


@torch.no_grad()
def vendi(
    x: Items,
    kernel: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Features | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp H_order(K/n), the effective number of different items in x.

    Args:
        x: (n, d) tensor or array of real numbers, in which float16 and bfloat16 are computed in
            float32 and integers in float64; or a stream of chunks of it; or row numbers of a
            `Precomputed` matrix.
        kernel: how alike two items are.
        order: of the Renyi entropy, 0 < order <= infinity. One below 1 gives rare items more
            weight, and rounding errors too: give float64 features.
        truncation: how many eigenvalues to keep (see `entropy.truncate`), for an upper bound.
        weights: (n,) probabilities of the items; None is 1/n each.
        spectrum: how the entropy is computed; each class states its cost.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n.

    Raises:
        ValueError: order <= 0, truncation < 1, weights that are not n probabilities, or features
            that are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, vendi
        >>> round(float(vendi(torch.tensor([[0.0], [9.0], [9.0]]), Gaussian(1.0))), 3)
        1.89
    """
    entropy = Entropy(order, truncation)
    rows = read(x, kernel)
    if weights is not None:
        rows = gather(rows)
        weights = _probabilities(weights, len(rows))
    return spectrum.entropies(rows, [Part(kernel)], entropy, weights)[0].exp()


def rke(x: Items, kernel: Kernel, *, spectrum: Spectrum = EXACT) -> Tensor:
    """n^2 / |K|_F^2, which is `vendi` of order 2.

    O(n^2 d) time, O(n d) memory; with `RandomFourier`, 1/|C|_F^2 and its costs.

    Args:
        x: (n, d) features, or what else `vendi` takes.
        kernel: how alike two items are.
        spectrum: as in `vendi`.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n.

    Raises:
        ValueError: features that are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, rke
        >>> round(float(rke(torch.tensor([[0.0], [9.0], [9.0]]), Gaussian(1.0))), 3)
        1.8
    """
    return vendi(x, kernel, order=2, spectrum=spectrum)


@torch.no_grad()
def conditional_vendi(
    x: Items,
    t: Items,
    kernel_x: Kernel,
    kernel_t: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp(H(K_X∘K_T / n) - H(K_T / n)): the diversity of x that the prompts t do not explain.

    Args:
        x: (n, d) features, or what else `vendi` takes.
        t: (n, m) features of the prompts, likewise, one row for each row of x.
        kernel_x, kernel_t: how alike two items are, and two prompts.
        order, truncation, spectrum: of both entropies, as in `vendi`.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n; a truncated
        score can fall slightly below 1.

    Raises:
        ValueError: order <= 0, truncation < 1, x and t of different n, or features that
            are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, conditional_vendi
        >>> prompts = torch.eye(2).repeat(2, 1)
        >>> round(float(conditional_vendi(torch.eye(4), prompts, Cosine(), Cosine())), 3)
        2.0
    """
    entropy = Entropy(order, truncation)
    rows, parts = _joined(x, t, kernel_x, kernel_t)
    joint, prompts = spectrum.entropies(rows, [parts.joint, parts.t], entropy)
    return (joint - prompts).exp()


def conditional_rke(
    x: Items, t: Items, kernel_x: Kernel, kernel_t: Kernel, *, spectrum: Spectrum = EXACT
) -> Tensor:
    """|K_T|_F^2 / |K_X∘K_T|_F^2, which is `conditional_vendi` of order 2.

    O(n^2 (d + m)) time, O(n (d + m)) memory.

    Args:
        x: (n, d) features, or what else `vendi` takes.
        t: (n, m) features of the prompts, likewise, one row for each row of x.
        kernel_x, kernel_t: how alike two items are, and two prompts.
        spectrum: as in `vendi`.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n.

    Raises:
        ValueError: x and t of different n, or features that are empty, not
            (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, conditional_rke
        >>> round(float(conditional_rke(torch.eye(3), torch.ones(3, 2), Cosine(), Cosine())), 3)
        3.0
    """
    return conditional_vendi(x, t, kernel_x, kernel_t, order=2, spectrum=spectrum)


@torch.no_grad()
def information_vendi(
    x: Items,
    t: Items,
    kernel_x: Kernel,
    kernel_t: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """exp(H(K_X/n) + H(K_T/n) - H(K_X∘K_T / n)): the diversity of x that the prompts t explain.

    Times `conditional_vendi` it is `vendi`.

    Args:
        x: (n, d) features, or what else `vendi` takes.
        t: (n, m) features of the prompts, likewise, one row for each row of x.
        kernel_x, kernel_t: how alike two items are, and two prompts.
        order, truncation, spectrum: of all three entropies, as in `vendi`.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n; truncated, or
        of another order than 1, it can fall slightly below 1.

    Raises:
        ValueError: order <= 0, truncation < 1, x and t of different n, or features that
            are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, information_vendi
        >>> round(float(information_vendi(torch.eye(3), torch.eye(3), Cosine(), Cosine())), 3)
        3.0
    """
    entropy = Entropy(order, truncation)
    rows, parts = _joined(x, t, kernel_x, kernel_t)
    whole, prompts, joint = spectrum.entropies(rows, [parts.x, parts.t, parts.joint], entropy)
    return (whole + prompts - joint).exp()


def information_rke(
    x: Items, t: Items, kernel_x: Kernel, kernel_t: Kernel, *, spectrum: Spectrum = EXACT
) -> Tensor:
    """n^2 |K_X∘K_T|_F^2 / (|K_X|_F^2 |K_T|_F^2), which is `information_vendi` of order 2.

    O(n^2 (d + m)) time, O(n (d + m)) memory.

    Args:
        x: (n, d) features, or what else `vendi` takes.
        t: (n, m) features of the prompts, likewise, one row for each row of x.
        kernel_x, kernel_t: how alike two items are, and two prompts.
        spectrum: as in `vendi`.

    Returns:
        0-d float64 on x's device, without an autograd graph, 0 < score <= n; it can fall
        slightly below 1.

    Raises:
        ValueError: x and t of different n, or features that are empty, not
            (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, information_rke
        >>> round(float(information_rke(torch.eye(3), torch.eye(3), Cosine(), Cosine())), 3)
        3.0
    """
    return information_vendi(x, t, kernel_x, kernel_t, order=2, spectrum=spectrum)


@torch.no_grad()
def cluster_vendi(
    x: Items,
    clusters: Groups,
    kernel: Kernel,
    *,
    order: float = 1.0,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """sum_j |S_j|/n * vendi(S_j): the diversity inside each of the given clusters S_j, on average.

    Args:
        x, kernel, order, spectrum: as in `vendi`.
        clusters: (n,) labels of any kind; items of equal labels are a cluster.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n.

    Raises:
        ValueError: not n labels, order <= 0, or features that are empty, not (n, d), complex, NaN
            or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, cluster_vendi
        >>> round(float(cluster_vendi(torch.eye(3), ["a", "a", "b"], Cosine())), 3)
        1.667
    """
    found = vendi_by_label(x, clusters, kernel, Entropy(order), spectrum)
    total = torch.stack([size * score for _, size, score in found]).sum()
    return total / sum(size for _, size, _ in found)


def cluster_rke(
    x: Items, clusters: Groups, kernel: Kernel, *, spectrum: Spectrum = EXACT
) -> Tensor:
    """sum_j |S_j|/n * rke(S_j), which is `cluster_vendi` of order 2.

    Args:
        x, kernel, spectrum: as in `rke`.
        clusters: (n,) labels of any kind; items of equal labels are a cluster.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n.

    Raises:
        ValueError: not n labels, or features that are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, cluster_rke
        >>> round(float(cluster_rke(torch.eye(3), ["a", "a", "b"], Cosine())), 3)
        1.667
    """
    return cluster_vendi(x, clusters, kernel, order=2, spectrum=spectrum)


def vendi_by_label(
    x: Items, labels: Groups, kernel: Kernel, entropy: Entropy, spectrum: Spectrum
) -> list[tuple[Hashable, int, Tensor]]:
    """Each label, how many of x: (n, d) have it, and their Vendi score; see `rows_by_label`."""
    rows = gather(read(x, kernel))
    return [
        (label, len(members), spectrum.entropies(rows[members], [Part(kernel)], entropy)[0].exp())
        for label, members in rows_by_label(labels, len(rows)).items()
    ]


@torch.no_grad()
def intdiv(x: Items, kernel: Kernel) -> Tensor:
    """1 - mean(K), the internal diversity: the mean dissimilarity of two items.

    O(n^2 d) time, O(n d) memory.

    Args:
        x, kernel: as in `rke`.

    Returns:
        0-d float64 on x's device, without an autograd graph, 0 <= score <= 1.

    Raises:
        ValueError: features that are empty, not (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, intdiv
        >>> round(float(intdiv(torch.eye(4), Cosine())), 3)
        0.75
    """
    return 1 - mean_similarity(gather(read(x, kernel)), kernel)


class Parts(NamedTuple):
    """The kernels of samples x, of prompts t, and of both."""

    x: Part
    t: Part
    joint: Part

    @classmethod
    def of(cls, kernel_x: Kernel, kernel_t: Kernel, d: int) -> "Parts":
        """Of features whose first d columns are x, and the others t."""
        joint = Product(kernel_x, kernel_t, split=d)
        return cls(Part(kernel_x, stop=d), Part(kernel_t, start=d), Part(joint))


def read(items: Items, kernel: Kernel) -> Rows:
    """The items as rows that the kernel compares, or a stream of rows."""
    as_kernel(kernel)
    stream = as_stream(items) if type(kernel).read is Kernel.read else None
    return kernel.read(items) if stream is None else stream


def _joined(x: Items, t: Items, kernel_x: Kernel, kernel_t: Kernel) -> tuple[Rows, Parts]:
    """The columns of x, then those of t, and the kernels that read them."""
    if x is t and isinstance(x, Iterator):
        raise ValueError("x and t are one iterator, which can only be read once: give two")
    x, t = read(x, kernel_x), read(t, kernel_t)
    if isinstance(x, Tensor) and isinstance(t, Tensor):  # row numbers go where the features are
        x = x.to(t.device) if isinstance(kernel_x, Precomputed) else x
        t = t.to(x.device) if isinstance(kernel_t, Precomputed) else t
    return side_by_side(x, t), Parts.of(kernel_x, kernel_t, width(x))


def _probabilities(weights: Features, n: int) -> Tensor:
    if not isinstance(weights, Tensor):  # any layout and byte order
        weights = torch.from_numpy(np.array(weights, dtype=np.double, order="C"))
    p = weights.double()
    if p.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each item, got {tuple(p.shape)}")
    if not (p >= 0).all():
        raise ValueError(f"weights must be non-negative numbers, got {float(p.min())}")
    if not abs(float(p.sum()) - 1) < 1e-5:
        raise ValueError(f"weights must sum to 1, got {float(p.sum())}: divide them by their sum")
    return p
