"""How faithful a batch is to its prompts and to real pictures, and how much it repeats itself.

Some scores must be told by a probe what a picture shows. A picture's *look* is what its prompt left
open: for the demo's emoji, the vendor's style and the skin tone. Others read features, of any
encoder: `clip_score` and the distances from a reference set. Scores of single pictures against such
a set are in `neighbours`.
"""

from collections.abc import Sequence, Sized

import torch
from torch import Tensor

from vendi_guidance.features.probe import Looks
from vendi_guidance.kernels.standard import Cosine, Features, as_features, upper_triangle
from vendi_guidance.kernels.streams import chunks
from vendi_guidance.scores.manifold import as_pair, rectangle


def asked_concepts(prompts: Sequence[str], concepts: Sequence[str]) -> list[str | None]:
    """The concept that each prompt asks for: its words before the first comma, in any case.

    Args:
        prompts: n prompts, such as "Waving hand, dark skin tone".
        concepts: the names that are known.

    Returns:
        n names out of `concepts`; None where a prompt names none of them.
    """
    by_words = {concept.casefold(): concept for concept in concepts}
    return [by_words.get(prompt.split(",")[0].strip().casefold()) for prompt in prompts]


def prompt_fidelity(asked: Sequence[str | None], seen: Looks) -> float | None:
    """The share of pictures that show what was asked for, in [0, 1].

    Args:
        asked: n concepts (see `asked_concepts`); pictures with None are left out.
        seen: what the n pictures show.

    Returns:
        The share, or None if nothing known was asked for.

    Raises:
        ValueError: `asked` and `seen` differ in n.
    """
    _check_lengths(asked, seen.concepts)
    right = [a == s for a, s in zip(asked, seen.concepts, strict=True) if a is not None]
    return sum(right) / len(right) if right else None


def looks_by_prompt(
    prompts: Sequence[str], asked: Sequence[str | None], seen: Looks
) -> dict[str, int]:
    """How many different looks were found for each prompt.

    A look is a (vendor, tone) pair; only pictures that show what was asked for count.

    Args:
        prompts: n prompts; equal ones belong together.
        asked: n concepts (see `asked_concepts`); prompts with None are left out.
        seen: what the n pictures show.

    Raises:
        ValueError: `prompts`, `asked` and `seen` differ in n.
    """
    _check_lengths(prompts, asked)
    _check_lengths(prompts, seen.concepts)
    looks: dict[str, set[tuple[str, str]]] = {}
    for prompt, concept, shown, *look in zip(prompts, asked, *seen, strict=True):
        if concept is not None:
            found = looks.setdefault(prompt, set())
            if shown == concept:
                found.add((look[0], look[1]))
    return {prompt: len(found) for prompt, found in looks.items()}


def in_batch_similarity(x: Features, prompts: Sequence[str]) -> float | None:
    """Mean cosine between different pictures of the same prompt, in [-1, 1]; lower is more diverse.

    The mean is over all such pairs, so a prompt with more pictures has more weight.

    Args:
        x: (n, d) features of the pictures.
        prompts: n prompts; equal ones belong together.

    Returns:
        The mean, or None if no two pictures share a prompt.

    Raises:
        ValueError: x has other than n rows, is malformed (see `kernels.as_features`), or holds a
            zero vector.
    """
    unit = Cosine().unit(as_features(x).double())
    _check_lengths(prompts, range(len(unit)))
    rows: dict[str, list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows.setdefault(prompt, []).append(row)
    total, pairs = 0.0, 0
    for group in rows.values():
        # |sum of unit vectors|^2 is the sum over all pairs, each item with itself included
        total += float(unit[group].sum(dim=0).square().sum()) - len(group)
        pairs += len(group) * (len(group) - 1)
    return total / pairs if pairs else None


def clip_score(image_features: Features, prompt_features: Features) -> float:
    """Mean of 100 max(cos, 0) of a picture and its prompt, in [0, 100]; higher is more faithful.

    Hessel et al. (EMNLP 2021), with the factor 100 that torchmetrics has, where the paper has 2.5.

    Args:
        image_features: (n, d) features of the pictures.
        prompt_features: (n, d) features of their prompts, of the same model, such as CLIP.

    Raises:
        ValueError: the two differ in n or in d, are malformed (see `kernels.as_features`), or hold
            a zero vector.
    """
    images, prompts = as_pair(image_features, prompt_features)
    _check_lengths(images, prompts)
    unit = Cosine().unit
    cosines = (unit(images.double()) * unit(prompts.double())).sum(dim=1)
    return 100 * float(cosines.clamp(min=0, max=1).mean())


def kernel_distance(x: Features, reference: Features) -> float:
    """Squared MMD of the kernel (<a, b>/d + 1)^3: KID, on features of any encoder.

    mean k(x_i, x_j) + mean k(r_i, r_j) - 2 mean k(x_i, r_j), the first two over i != j (Binkowski
    et al., ICLR 2018; Gretton et al., 2012, Lemma 6). It is unbiased: 0 in expectation where both
    sets are of one distribution, whatever n and m, and so below 0 at times. KID is often reported
    as the mean over random subsets of 1000; that has the same expectation, but depends on a seed
    and varies more than this, which counts every pair once.

    O((n + m)^2 d) time, in float64, tile by tile, so that memory is that of the features.

    Args:
        x: (n, d) features of generated pictures, n >= 2.
        reference: (m, d) features of real ones, m >= 2.

    Raises:
        ValueError: fewer than 2 pictures of a kind, or features that `neighbours.as_pair` refuses.
    """
    x, reference = as_pair(x, reference)
    _at_least_two(x, reference)
    across = sum(
        _cubes(x[rows], reference[columns]).sum() for rows, columns in rectangle(x, reference)
    )
    mean_across = float(across) / (len(x) * len(reference))
    return _mean_of_pairs(x) + _mean_of_pairs(reference) - 2 * mean_across


def frechet_distance(x: Features, reference: Features) -> float:
    """|m - m_r|^2 + tr(C + C_r - 2 (C C_r)^(1/2)) of means m, covariances C: FID, on any features.

    Heusel et al. (NeurIPS 2017); covariances with n - 1. It is biased upwards, the more so the
    fewer the pictures: compare it at equal n and m, or use `kernel_distance`. No matrix square root
    is taken, which would cost precision where there are fewer pictures than features.

    O((n + m) d^2 + d^3) time, O(d^2) memory beside the features.

    Args:
        x: (n, d) features of generated pictures, n >= 2.
        reference: (m, d) features of real ones, m >= 2.

    Raises:
        ValueError: fewer than 2 pictures of a kind, or features that `neighbours.as_pair` refuses.
    """
    x, reference = as_pair(x, reference)
    _at_least_two(x, reference)
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


def _at_least_two(x: Tensor, reference: Tensor) -> None:
    for name, pictures in (("generated", x), ("reference", reference)):
        if len(pictures) < 2:
            raise ValueError(f"got 1 {name} picture: how a set spreads takes at least 2")


def _check_lengths(one: Sized, other: Sized) -> None:
    if len(one) != len(other):
        raise ValueError(f"got {len(one)} and {len(other)} items for the same pictures")
