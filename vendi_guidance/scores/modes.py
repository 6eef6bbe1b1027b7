"""The modes of a sample, and the diversity of its groups.

With phi the kernel's feature map, k(a, b) = <phi(a), phi(b)>, the eigenvectors v_j of
C = sum_i phi(x_i) phi(x_i)^T / n are the modes whose weights are the eigenvalues of K/n, and
u_j(x) = <phi(x), v_j> is how much of mode j there is in x. With random Fourier features this is
FKEA: Ospanov et al. (NeurIPS 2024), Remark 2 and equation (5).
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.streams import Rows, Stream, chunks, gather, width
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import EXACT, Groups, Items, read, vendi_by_label
from vendi_guidance.scores.linalg import (
    FLOAT64_UP_TO,
    LEADING_BELOW,
    SPARE,
    Map,
    leading,
    precise,
    second_moments,
)
from vendi_guidance.scores.spectra import Exact, RandomFourier, Spectrum

FKEA = RandomFourier(4000)

ROUNDING = 1e-6  # eigenvalues below this share of the largest count as rounding errors


@dataclass(frozen=True)
class Mode:
    """An eigenvector of C, and the items with the largest components along it, best first.

    The eigenvalues of K/n, in (0, 1], sum to 1 over all modes. For well separated modes each is the
    share of items in this one, times their mean similarity.
    """

    eigenvalue: float
    rows: tuple[int, ...]  # numbers of the top items
    loadings: tuple[float, ...]  # u(x) of each of them, in [-1, 1]


@dataclass(frozen=True)
class GroupScore:
    """The Vendi score of one group of items, 1 <= score <= size."""

    label: Hashable
    size: int
    score: float


@torch.no_grad()
def find_modes(
    x: Items,
    kernel: Kernel,
    *,
    count: int = 10,
    top: int = 20,
    spectrum: RandomFourier | Exact = FKEA,
) -> list[Mode]:
    """The leading modes of x, and the items that show each best; the largest eigenvalue first.

    The sign of an eigenvector is chosen so that its largest |u(x)| is positive.

    Args:
        x: (n, d) features, or a stream of them that can be read twice in the same order.
        count: how many modes; there are fewer where K has a smaller rank.
        top: how many items of each mode.
        spectrum: `RandomFourier`, for Gaussian kernels, in O(r^2 + n count) memory beside x; or
            `Exact`, from the kernel's factor if it has fewer than n columns, else from K, n^2.

    Raises:
        ValueError: count or top < 1, x can be read only once, another spectrum, or a kernel that
            the spectrum cannot do.

    Example:
        >>> import torch
        >>> from vendi_guidance import Exact, Gaussian, find_modes
        >>> x = torch.tensor([[0.0], [9.0], [9.0]])
        >>> [mode] = find_modes(x, Gaussian(1.0), count=1, top=2, spectrum=Exact())
        >>> round(mode.eigenvalue, 3), sorted(mode.rows)
        (0.667, [1, 2])
    """
    check_count("count", count)
    check_count("top", top)
    if isinstance(x, (Iterator, Stream)):
        raise ValueError("modes read the features twice: give an array, a list or a DataLoader")
    rows = read(x, kernel)
    features_of = _feature_map(rows, kernel, spectrum)
    if features_of is None:
        gram = kernel.gram(gather(rows))
        n = len(gram)
        eigenvalues, vectors = _leading(gram.div_(n), count)
        return _read_off(eigenvalues, vectors * (n * eigenvalues).sqrt().to(vectors), top)
    [moment] = second_moments(rows, [(Part(kernel), features_of)])
    eigenvalues, vectors = _leading(moment, count)
    again = read(x, kernel) if isinstance(rows, Stream) else rows
    loadings = [features_of(chunk) @ vectors.to(chunk) for chunk in chunks(again)]
    return _read_off(eigenvalues, torch.cat(loadings), top)


@torch.no_grad()
def group_scores(
    x: Items,
    kernel: Kernel,
    groups: Groups,
    *,
    order: float = 1.0,
    truncation: int | None = None,
    spectrum: Spectrum = EXACT,
) -> list[GroupScore]:
    """The Vendi score of each group by itself, the least diverse group first.

    Larger groups can reach larger scores: truncate to compare groups of different sizes.

    Args:
        x, kernel, order, truncation, spectrum: as in `vendi`.
        groups: (n,) labels of any kind, such as prompts or the clusters of k-means.

    Raises:
        ValueError: order <= 0, truncation < 1, or not n labels.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, group_scores
        >>> groups = group_scores(torch.eye(3), Cosine(), ["cat", "cat", "dog"])
        >>> [(group.label, round(group.score, 3)) for group in groups]
        [('dog', 1.0), ('cat', 2.0)]
    """
    found = vendi_by_label(x, groups, kernel, Entropy(order, truncation), spectrum)
    scores = [GroupScore(label, size, float(score)) for label, size, score in found]
    return sorted(scores, key=lambda group: group.score)


def _feature_map(rows: Rows, kernel: Kernel, spectrum: RandomFourier | Exact) -> Map | None:
    """phi, or None where K itself is the smaller matrix or the only one there is."""
    d = width(rows)
    if isinstance(spectrum, RandomFourier):
        return spectrum.map(kernel, d)
    if not isinstance(spectrum, Exact):
        raise ValueError(f"modes need RandomFourier(...) or Exact() as spectrum, got {spectrum}")
    rank = kernel.rank(d)
    most = len(rows) - 1 if isinstance(rows, Tensor) else FLOAT64_UP_TO
    return None if rank is None or rank > most else kernel.factor


def _leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """At most `count` eigenvalues, largest first, of a matrix of trace 1, and their vectors."""
    w, matrix = len(matrix), precise(matrix)
    if LEADING_BELOW * (count + SPARE) > w:
        values, vectors = (found.flip(-1)[..., :count] for found in torch.linalg.eigh(matrix))
    else:
        tolerance = max(1e-9, 10 * torch.finfo(matrix.dtype).eps)
        values, vectors = leading(matrix, count, tolerance)
    sound = values > ROUNDING * values[0]
    return values[sound].double(), vectors[:, sound]


def _read_off(eigenvalues: Tensor, u: Tensor, top: int) -> list[Mode]:
    """The modes of the eigenvalues: (count,), from u of all items: (n, count)."""
    u = torch.where(u.amax(dim=0) < -u.amin(dim=0), -u, u)
    loadings, rows = u.T.topk(min(top, len(u)), dim=1)
    columns = zip(eigenvalues.tolist(), rows.tolist(), loadings.tolist(), strict=True)
    return [Mode(value, tuple(these), tuple(largest)) for value, these, largest in columns]
