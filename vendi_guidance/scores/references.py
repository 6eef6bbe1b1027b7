"""How far a batch is from real images: kernel and Fréchet distances (KID, FID)."""

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features
from vendi_guidance.kernels.streams import chunks
from vendi_guidance.kernels.tiles import rectangle, upper_triangle
from vendi_guidance.scores.manifold import as_pair


def kernel_distance(x: Features, reference: Features) -> float:
    """Squared MMD of the kernel (<a, b>/d + 1)^3: KID, on features of any encoder.

    mean k(x_i, x_j) + mean k(r_i, r_j) - 2 mean k(x_i, r_j), the first two over i != j (Binkowski
    et al., ICLR 2018; Gretton et al., 2012, Lemma 6). It is unbiased: 0 in expectation where both
    sets are of one distribution, so at times below 0. KID is often reported as the mean over random
    subsets of 1000, which has the same expectation and a larger variance. O((n + m)^2 d) time, in
    float64, O((n + m) d) memory.

    Args:
        x, reference: (n, d) features of generated and (m, d) of real images, at least 2 of each.

    Raises:
        ValueError: fewer than 2 images in a set, or features that `manifold.as_pair` refuses.

    Example:
        >>> import torch
        >>> from vendi_guidance import kernel_distance
        >>> round(kernel_distance(torch.zeros(2, 1), torch.ones(2, 1)), 3)
        7.0
    """
    x, reference = as_pair(x, reference, 2, "give at least 2")
    across = sum(_cubes(x[i], reference[j]).sum() for i, j in rectangle(x, reference))
    mean_across = float(across) / (len(x) * len(reference))
    return _mean_of_pairs(x) + _mean_of_pairs(reference) - 2 * mean_across


def frechet_distance(x: Features, reference: Features) -> float:
    """|m - m_r|^2 + tr(C + C_r - 2 (C C_r)^(1/2)) of means m, covariances C: FID, on any features.

    Heusel et al. (NeurIPS 2017); covariances with n - 1. Its bias is upwards and grows as images
    get fewer: compare it at equal n and m, or use `kernel_distance`. No matrix square root is
    computed, which would lose precision where there are fewer images than features.
    O((n + m) d^2 + d^3) time, O(d^2) memory beside the features.

    Args:
        x, reference: (n, d) features of generated and (m, d) of real images, at least 2 of each.

    Raises:
        ValueError: fewer than 2 images in a set, or features that `manifold.as_pair` refuses.

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
    """The mean of `_cubes` over pairs of different rows of x: (n, d)."""
    total = 0.0
    for rows, columns in upper_triangle(x):
        values = _cubes(x[rows], x[columns])
        total += float((values.triu_(1) if rows == columns else values).sum())
    return total / (len(x) * (len(x) - 1) / 2)


def _cubes(a: Tensor, b: Tensor) -> Tensor:
    """(n, m) values of the kernel (<a, b>/d + 1)^3, float64."""
    return (a.double() @ b.double().T).div_(a.shape[1]).add_(1).pow_(3)


def _mean_and_root(x: Tensor) -> tuple[Tensor, Tensor]:
    """(d,) mean of x: (n, d), and a root R of its covariance R^T R, at most d rows; float64."""
    mean = torch.stack([chunk.double().sum(dim=0) for chunk in chunks(x)]).sum(dim=0) / len(x)
    root = mean.new_empty(0, len(mean))
    for chunk in chunks(x):
        root = torch.linalg.qr(torch.cat([root, chunk.double() - mean]), mode="r").R
    return mean, root / (len(x) - 1) ** 0.5
