"""Diversity scores: functions from features to a number.

A Vendi score is the exponential of an entropy of the eigenvalues of K/n, where K is the kernel
matrix of n items. It counts the distinct items, from 1 (all equal) to n (no two similar). Given
prompts, vendi = conditional_vendi * information_vendi: the diversity that the prompts do not
explain, times the diversity that they do. RKE is the Vendi score of order 2, a ratio of squared
Frobenius norms; the `rke` functions need no eigenvalues and store no (n, n) matrix.
In formulas, ∘ is the elementwise product and H_a the entropy in `vendi`.

Features `x: (n, d)` and prompt features `t: (n, m)` are tensors or arrays, or row indices of a
`Precomputed` matrix; `scores.metrics` takes them in batches. Ranges hold up to rounding, and for
approximate spectra up to their errors.

Vendi: Friedman & Dieng (2023). Truncation: Ospanov & Farnia (UAI 2025). Conditional and information
scores: Jalali et al. (AISTATS 2026), equations (6), (7), (11) and (13).
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, Kernel, as_kernel, concat_columns
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.standard import Precomputed, Product
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.spectra import Exact, Spectrum

EXACT = Exact()
Items: TypeAlias = Any  # what a kernel compares: (n, d) features, or row indices


@isolated()
def vendi(
    x: Items,
    kernel: Kernel,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Features | None = None,
    spectrum: Spectrum = EXACT,
) -> Tensor:
    """Vendi score: the effective number of distinct items in x.

        vendi = exp H_a(K/n),  H_a = log(sum_i lambda_i^a) / (1 - a)

    where lambda_1, ..., lambda_n are the eigenvalues of K/n, which sum to 1, and a is the order;
    H_1 is their Shannon entropy and H_inf = -log max_i lambda_i.

    Args:
        x: (n, d) real tensor or array, or row indices of a `Precomputed` matrix. float16 and
            bfloat16 are computed in float32, integers in float64.
        kernel: similarity of two items.
        order: order of the entropy, 0 < order <= infinity. Below 1, rare items have more weight,
            but so do rounding errors: use float64 features.
        truncation: number of eigenvalues to keep (see `entropy.truncate`), an upper bound on the
            score; None keeps all.
        weights: (n,) probabilities of the items; None is 1/n each.
        spectrum: algorithm for the entropy; each class states its cost.

    Returns:
        0-d float64 on x's device, without an autograd graph, 1 <= score <= n.

    Raises:
        ValueError: order <= 0; truncation < 1; weights are not n probabilities; or x is empty, not
            (n, d), complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, vendi
        >>> round(float(vendi(torch.tensor([[0.0], [9.0], [9.0]]), Gaussian(1.0))), 3)
        1.89
    """
    entropy = Entropy(order, truncation)
    rows = as_kernel(kernel).read(x)
    if weights is not None:
        weights = _probabilities(weights, len(rows))
    return spectrum.entropies(rows, [Part(kernel)], entropy, weights)[0].exp()


def rke(x: Items, kernel: Kernel, *, spectrum: Spectrum = EXACT) -> Tensor:
    """RKE score: the Vendi score of order 2.

        rke = n^2 / |K|_F^2

    In [1, n]. With the default spectrum, O(n^2 d) time and O(n d) memory, without eigenvalues.
    Arguments, result and errors are those of `vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, rke
        >>> round(float(rke(torch.tensor([[0.0], [9.0], [9.0]]), Gaussian(1.0))), 3)
        1.8
    """
    return vendi(x, kernel, order=2, spectrum=spectrum)


@isolated()
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
    """Conditional Vendi score: the diversity of x that the prompts t do not explain.

        conditional_vendi = exp(H_a(K_X∘K_T / n) - H_a(K_T / n))

    Args:
        x: (n, d) features, or any other input that `vendi` accepts.
        t: (n, m) features of the prompts, likewise, one row for each row of x.
        kernel_x, kernel_t: similarity of two items, and of two prompts.
        order, truncation, spectrum: as in `vendi`, for both entropies.

    Returns:
        0-d float64, as in `vendi`, 1 <= score <= n; slightly below 1 is possible with truncation.

    Raises:
        ValueError: x and t differ in n; or as in `vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, conditional_vendi
        >>> prompts = torch.eye(2).repeat(2, 1)
        >>> round(float(conditional_vendi(torch.eye(4), prompts, Cosine(), Cosine())), 3)
        2.0
    """
    entropy = Entropy(order, truncation)
    rows, parts = _joint_rows(x, t, kernel_x, kernel_t)
    joint, prompts = spectrum.entropies(rows, [parts.joint, parts.t], entropy)
    return (joint - prompts).exp()


def conditional_rke(
    x: Items, t: Items, kernel_x: Kernel, kernel_t: Kernel, *, spectrum: Spectrum = EXACT
) -> Tensor:
    """Conditional RKE score: the conditional Vendi score of order 2.

        conditional_rke = |K_T|_F^2 / |K_X∘K_T|_F^2

    In [1, n]. O(n^2 (d + m)) time and O(n (d + m)) memory, without eigenvalues. Arguments, result
    and errors are those of `conditional_vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, conditional_rke
        >>> round(float(conditional_rke(torch.eye(3), torch.ones(3, 2), Cosine(), Cosine())), 3)
        3.0
    """
    return conditional_vendi(x, t, kernel_x, kernel_t, order=2, spectrum=spectrum)


@isolated()
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
    """Information Vendi score: the diversity of x that the prompts t explain.

        information_vendi = exp(H_a(K_X / n) + H_a(K_T / n) - H_a(K_X∘K_T / n))

    In [1, n]; slightly below 1 is possible with truncation or an order other than 1. Arguments,
    result and errors are those of `conditional_vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, information_vendi
        >>> round(float(information_vendi(torch.eye(3), torch.eye(3), Cosine(), Cosine())), 3)
        3.0
    """
    entropy = Entropy(order, truncation)
    rows, parts = _joint_rows(x, t, kernel_x, kernel_t)
    whole, prompts, joint = spectrum.entropies(rows, [parts.x, parts.t, parts.joint], entropy)
    return (whole + prompts - joint).exp()


def information_rke(
    x: Items, t: Items, kernel_x: Kernel, kernel_t: Kernel, *, spectrum: Spectrum = EXACT
) -> Tensor:
    """Information RKE score: the information Vendi score of order 2.

        information_rke = n^2 |K_X∘K_T|_F^2 / (|K_X|_F^2 |K_T|_F^2)

    In (0, n]; slightly below 1 is possible. O(n^2 (d + m)) time and O(n (d + m)) memory, without
    eigenvalues. Arguments, result and errors are those of `information_vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, information_rke
        >>> round(float(information_rke(torch.eye(3), torch.eye(3), Cosine(), Cosine())), 3)
        3.0
    """
    return information_vendi(x, t, kernel_x, kernel_t, order=2, spectrum=spectrum)


class Parts(NamedTuple):
    """The kernels of items x, of prompts t, and of both jointly (K_X∘K_T)."""

    x: Part
    t: Part
    joint: Part

    @classmethod
    def of(cls, kernel_x: Kernel, kernel_t: Kernel, d: int) -> "Parts":
        """Parts of features whose first d columns are x and whose other columns are t."""
        joint = Product(kernel_x, kernel_t, split=d)
        return cls(Part(kernel_x, stop=d), Part(kernel_t, start=d), Part(joint))


def _joint_rows(x: Items, t: Items, kernel_x: Kernel, kernel_t: Kernel) -> tuple[Tensor, Parts]:
    """Rows [x, t] of width d + m, and the kernels that read their columns."""
    x, t = as_kernel(kernel_x).read(x), as_kernel(kernel_t).read(t)
    # row indices follow the features
    x = x.to(t.device) if isinstance(kernel_x, Precomputed) else x
    t = t.to(x.device) if isinstance(kernel_t, Precomputed) else t
    return concat_columns(x, t), Parts.of(kernel_x, kernel_t, x.shape[1])


def _probabilities(weights: Features, n: int) -> Tensor:
    if not isinstance(weights, Tensor):  # NumPy normalises layout and byte order
        weights = torch.from_numpy(np.array(weights, dtype=np.double, order="C"))
    p = weights.double()
    if p.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each item, got {tuple(p.shape)}")
    if not (p >= 0).all():
        raise ValueError(f"weights must be non-negative numbers, got {float(p.min())}")
    if not abs(float(p.sum()) - 1) < 1e-5:
        raise ValueError(f"weights must sum to 1, got {float(p.sum())}: divide them by their sum")
    return p
