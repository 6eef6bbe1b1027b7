"""Distances of generated from real images: kernel and Fréchet distances (KID, FID)."""

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, rectangle, upper_triangle
from vendi_guidance.kernels.streams import chunks
from vendi_guidance.scores.manifold import as_pair


def kernel_distance(x: Features, reference: Features) -> float:
    """Kernel distance (KD, or KID): unbiased squared MMD with a cubic kernel.

        KD = mean_{i != j} k(x_i, x_j) + mean_{i != j} k(r_i, r_j) - 2 mean_{i, j} k(x_i, r_j)

    with k(a, b) = (<a, b>/d + 1)^3 on features of any encoder (Binkowski et al., ICLR 2018; Gretton
    et al., 2012, Lemma 6). If both sets have the same distribution it is 0 in expectation, and so
    can be negative. KID is often reported as the mean over random subsets of 1000 images, which has
    the same expectation and a larger variance. Computed in float64, in O((n + m)^2 d) time and
    O((n + m) d) memory.

    Args:
        x: (n, d) features of generated images, n >= 2.
        reference: (m, d) features of real images, m >= 2.

    Raises:
        ValueError: a set has fewer than 2 images; the sets differ in d; or features are not (n, d),
            complex, NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance import kernel_distance
        >>> round(kernel_distance(torch.zeros(2, 1), torch.ones(2, 1)), 3)
        7.0
    """
    x, reference = as_pair(x, reference, 2, "give at least 2")
    across = sum(_cubic_kernel(x[i], reference[j]).sum() for i, j in rectangle(x, reference))
    mean_across = float(across) / (len(x) * len(reference))
    return _mean_of_pairs(x) + _mean_of_pairs(reference) - 2 * mean_across


def frechet_distance(x: Features, reference: Features) -> float:
    """Fréchet distance (FD, or FID) of Gaussians fitted to the features of both sets.

        FD = |m - m_r|^2 + tr(C + C_r - 2 (C C_r)^(1/2))

    for means m and covariances C with denominator n - 1, on features of any encoder (Heusel et al.,
    NeurIPS 2017). It is biased upwards, the more the fewer images there are: compare it at equal n
    and m, or use `kernel_distance`. The trace is computed without a matrix square root, which would
    lose precision with fewer images than features. O((n + m) d^2 + d^3) time, O(d^2) memory beside
    the features.

    Args and errors are those of `kernel_distance`.

    Example:
        >>> import torch
        >>> from vendi_guidance import frechet_distance
        >>> round(frechet_distance(torch.zeros(2, 1), 3 * torch.ones(2, 1)), 3)
        9.0
    """
    x, reference = as_pair(x, reference, 2, "give at least 2")
    (mean, root), (mean_r, root_r) = _mean_and_root(x), _mean_and_root(reference)
    # C = R^T R, and the trace of (C C_r)^(1/2) is the sum of the singular values of R R_r^T
    overlap = torch.linalg.matrix_norm(root @ root_r.T, "nuc")
    spread = root.square().sum() + root_r.square().sum() - 2 * overlap
    return float((mean - mean_r).square().sum() + spread.clamp(min=0))


def _mean_of_pairs(x: Tensor) -> float:
    """The mean of `_cubic_kernel` over pairs of different rows of x: (n, d)."""
    total = 0.0
    for rows, columns in upper_triangle(x):
        values = _cubic_kernel(x[rows], x[columns])
        total += float((values.triu_(1) if rows == columns else values).sum())
    return total / (len(x) * (len(x) - 1) / 2)


def _cubic_kernel(a: Tensor, b: Tensor) -> Tensor:
    """(n, m) values of the kernel (<a, b>/d + 1)^3, float64."""
    return (a.double() @ b.double().T).div_(a.shape[1]).add_(1).pow_(3)


def _mean_and_root(x: Tensor) -> tuple[Tensor, Tensor]:
    """(d,) mean of x: (n, d), and R with at most d rows and covariance R^T R, in float64."""
    mean = torch.stack([chunk.double().sum(dim=0) for chunk in chunks(x)]).sum(dim=0) / len(x)
    root = mean.new_empty(0, len(mean))
    for chunk in chunks(x):
        root = torch.linalg.qr(torch.cat([root, chunk.double() - mean]), mode="r").R
    return mean, root / (len(x) - 1) ** 0.5
