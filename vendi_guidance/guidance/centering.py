"""Subtracting the mean from features before they are compared, and the gradient of that.

What all images of a prompt have in common says nothing about their diversity, but dominates inner
products. Here each sample's feature f_i is replaced by the direction u_i of f_i - sum_j W_ij f_j,
a mean over all samples. Everything follows from the inner products f_i f_j^T, so the features
themselves are read no more often than without.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Centered(NamedTuple):
    """Directions from the mean, for n samples of which the last b are in flight.

    Attributes:
        off: (n, n) matrix I - W, which subtracts the means.
        lengths: (n,) distances from the mean; infinite where a sample is its own mean and so has
            no direction.
        inner: (n, n) inner products u_i u_j^T.
    """

    off: Tensor
    lengths: Tensor
    inner: Tensor

    def pull_back(self, weights: Tensor, b: int) -> Tensor:
        """(b, n) coefficients L for which L f is the gradient in the b features in flight, from
        weights, (n, n): the derivative of a score in each u_i u_j^T plus that in u_j u_i^T."""
        along = torch.einsum("ij,ij->i", weights, self.inner)
        of_flight = self.off[:, -b:].T / self.lengths
        turning, stretching = of_flight @ weights, of_flight * along
        in_directions = beyond_rounding(turning - stretching, stretching)
        return (in_directions / self.lengths) @ self.off


def beyond_rounding(rows: Tensor, terms: Tensor) -> Tensor:
    """rows: (b, n), those zeroed that are only what rounding leaves of terms: (b, m).

    A guidance step uses the gradient's direction alone. Where the gradient is zero, as that of two
    samples with their mean subtracted, rounding must not decide the direction.
    """
    smallest = 16 * torch.finfo(rows.dtype).eps * terms.abs().sum(dim=1, keepdim=True)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows.masked_fill(length <= smallest, 0)  # NaN stays


def mean_removal(similarity: Tensor) -> Tensor:
    """I - W for the means weighted by similarity: (n, n), non-negative, each row's sum positive."""
    off = -similarity / similarity.sum(dim=1, keepdim=True)
    off.diagonal().add_(1)
    return off


def subtract_means(off: Tensor, fixed: Tensor, border: Tensor) -> Centered:
    """Directions from the mean, O(n^2 b) for b samples in flight.

    Args:
        off: (n, n), of `mean_removal`.
        fixed: (n, n) off G off^T, with G the inner products of samples not in flight, else 0.
        border: (b, n) inner products of those in flight with all, themselves last.
    """
    b = len(border)
    half = border.clone()
    half[:, -b:] /= 2  # both halves of the border hold the corner
    of_flight, of_all = off[:, -b:], half @ off.T
    # of_flight @ of_all and its mirror image, in one product
    both = torch.cat([of_flight, of_all.T], dim=1), torch.cat([of_all, of_flight.T])
    inner = torch.addmm(fixed, *both)
    squared = inner.diagonal()
    # rounding of the products, as a share of the features' own length 1
    own = squared > len(off) * torch.finfo(inner.dtype).eps
    lengths = squared.where(own, torch.inf).sqrt()
    return Centered(off, lengths, inner.div_(lengths).div_(lengths[:, None]))
