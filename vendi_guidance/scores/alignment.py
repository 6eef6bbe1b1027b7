"""How well images match their prompts, and how similar images of one prompt are."""

from collections.abc import Sequence

from torch import Tensor

from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.kernels.standard import Cosine
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.manifold import as_pair


def clip_score(image_features: Features, prompt_features: Features) -> float:
    """Mean of 100 max(cos, 0) of an image and its prompt, in [0, 100]; higher is more faithful.

    Hessel et al. (EMNLP 2021), with the factor 100 of torchmetrics where the paper has 2.5.

    Args:
        image_features: (n, d) features of the images.
        prompt_features: (n, d) features of their prompts, of the same model, such as CLIP.

    Raises:
        ValueError: features of other n or d, that `as_features` refuses, or with a zero vector.

    Example:
        >>> import torch
        >>> from vendi_guidance import clip_score
        >>> clip_score(torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
        50.0
    """
    return 100 * float(clip_cosines(image_features, prompt_features).mean())


def clip_cosines(image_features: Features, prompt_features: Features) -> Tensor:
    """(n,) float64 values max(cos, 0) of each image and its prompt, which `clip_score` averages.

    Args and errors are those of `clip_score`.
    """
    images, prompts = as_pair(image_features, prompt_features)
    if len(images) != len(prompts):
        raise ValueError(f"got {len(images)} images and {len(prompts)} prompts: give one for each")
    unit = Cosine().unit
    cosines = (unit(images.double()) * unit(prompts.double())).sum(dim=1)
    return cosines.clamp(min=0, max=1)


def in_batch_similarity(x: Features, prompts: Sequence[str]) -> float | None:
    """Mean cosine between different images of the same prompt, in [-1, 1]; lower is more diverse.

    The mean is over all such pairs, so a prompt with more images has more weight; None if no two
    images share a prompt.

    Args:
        x, prompts: (n, d) features of the images, and the n prompts.

    Raises:
        ValueError: x of other than n rows, that `as_features` refuses, or with a zero vector.

    Example:
        >>> import torch
        >>> from vendi_guidance import in_batch_similarity
        >>> in_batch_similarity(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), ["a", "a", "b"])
        1.0
    """
    unit = Cosine().unit(as_features(x).double())
    total, pairs = 0.0, 0
    for group in rows_by_label(prompts, len(unit)).values():
        # |sum of unit vectors|^2 is the sum over all pairs, each item with itself included
        total += float(unit[group].sum(dim=0).square().sum()) - len(group)
        pairs += len(group) * (len(group) - 1)
    return total / pairs if pairs else None
