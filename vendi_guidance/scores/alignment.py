"""Prompt fidelity of images, and similarity of images of the same prompt."""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from vendi_guidance.kernels.base import Features, as_features, check_count
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.standard import Cosine
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.references import as_pair


def clip_score(image_features: Features, prompt_features: Features) -> Tensor:
    """CLIPScore: similarity of images to their prompts, in [0, 100]; higher is more faithful.

        clip_score_i = 100 max(cos(image_i, prompt_i), 0)

    Hessel et al. (EMNLP 2021), with the factor 100 of torchmetrics instead of the paper's 2.5.

    Args:
        image_features: (n, d) features of the images.
        prompt_features: (n, d) features of their prompts from the same model, such as CLIP.

    Returns:
        (n,) float64, whose mean is the score of a batch.

    Raises:
        ValueError: the features differ in n or d, have a zero vector, or are empty, complex, NaN or
            infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import clip_score
        >>> clip_score(torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, -1.0]])).tolist()
        [100.0, 0.0]
    """
    images, prompts = as_pair(image_features, prompt_features)
    if len(images) != len(prompts):
        raise ValueError(f"got {len(images)} images and {len(prompts)} prompts: give one for each")
    unit = Cosine().unit
    cosines = (unit(images.double()) * unit(prompts.double())).sum(dim=1)
    return 100 * cosines.clamp(min=0, max=1)


def in_batch_similarity(x: Features, prompts: Sequence[str]) -> float | None:
    """Mean cosine similarity of images of the same prompt, in [-1, 1]; lower is more diverse.

    The mean is over all pairs of different images that share a prompt, so prompts with more images
    have more weight.

    Args:
        x: (n, d) features of the images.
        prompts: the n prompts.

    Returns:
        The mean, or None if no two images share a prompt.

    Raises:
        ValueError: there are not n prompts; or x has a zero vector, is empty, not (n, d), complex,
            NaN or infinite.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import in_batch_similarity
        >>> in_batch_similarity(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), ["a", "a", "b"])
        1.0
    """
    unit = Cosine().unit(as_features(x).double())
    total, pairs = 0.0, 0
    for group in rows_by_label(prompts, len(unit)).values():
        # |sum of unit vectors|^2 is the sum of cosines over all pairs, including i = j
        total += float(unit[group].sum(dim=0).square().sum()) - len(group)
        pairs += len(group) * (len(group) - 1)
    return total / pairs if pairs else None


@isolated()
def group_vendi(x: Features, prompts: Sequence[str], size: int = 4) -> float | None:
    """In-group Vendi: the mean Vendi score of `size` images of a prompt, in [1, size].

    Each prompt's images form groups in their order; a rest is left out. Scores of order 1 with the
    cosine kernel are averaged over the groups of a prompt, then over prompts.

    Args:
        x: (n, d) features of the images; papers take those of Inception before its classifier.
        prompts: the n prompts.
        size: images in a group, >= 2.

    Returns:
        The mean, or None if no prompt has a group.

    Raises:
        ValueError: size < 2; or as for `in_batch_similarity`.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import group_vendi
        >>> round(group_vendi(torch.eye(4), ["a"] * 4), 3)
        4.0
    """
    check_count("size", size, 2)
    unit = Cosine().unit(as_features(x).double())
    of_prompts = [
        [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
        for rows in rows_by_label(prompts, len(unit)).values()
    ]
    if not any(of_prompts):
        return None
    members = unit[torch.tensor([*chain(*of_prompts)], device=unit.device)]  # (groups, size, d)
    scores = vendi_of_each(members @ members.mT)
    counts = [len(groups) for groups in of_prompts if groups]
    return float(torch.stack([part.mean() for part in scores.split(counts)]).mean())


def vendi_of_each(grams: Tensor) -> Tensor:
    """(g,) float64 Vendi scores of g groups, from their (g, n, n) kernel matrices."""
    spectra = torch.linalg.eigvalsh(grams.double() / grams.shape[-1])
    return torch.special.entr(spectra.clamp(min=0)).sum(dim=1).exp()
