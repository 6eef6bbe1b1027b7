"""Numbers that papers report of images and their prompts.

| number | of the unit features x_i of one prompt's images, averaged over prompts | source |
|---|---|---|
| `in_batch_similarity` | mean of <x_i, x_j>, i != j; over all pairs | |
| `pairwise_distance` | mean of 1 - <x_i, x_j>, i != j | on CLIP, DINO, DreamSim |
| `group_vendi` | Vendi score of 4 images, cosine kernel | Jalali et al. (2026) |
| `projection_spreads` | max - min of <x_i, t>, and of <x_i, u> | Zhu et al. (2026), GASS |
| `seed_identifiability` | accuracy of a linear probe of the seed | arXiv 2606.01651 |
| `clip_score` | 100 max(<x_i, t>, 0), over images | Hessel et al. (2021) |

t is the prompt's unit feature of the same CLIP, and u the principal direction of what x_i have
beside their component along t.
"""

from collections.abc import Hashable, Sequence
from itertools import chain
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.functional import one_hot

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
    totals, pairs = zip(*_cosines(x, prompts), strict=True)
    return sum(totals) / sum(pairs) if any(pairs) else None


def pairwise_distance(x: Features, prompts: Sequence[str]) -> float | None:
    """Mean cosine distance of two images of a prompt, mean over prompts, in [0, 2].

    Arguments and errors are those of `in_batch_similarity`, which weighs prompts by their pairs.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import pairwise_distance
        >>> pairwise_distance(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), ["a", "b", "b"])
        1.0
    """
    found = [1 - total / pairs for total, pairs in _cosines(x, prompts) if pairs]
    return fmean(found) if found else None


def _cosines(x: Features, prompts: Sequence[str]) -> list[tuple[float, int]]:
    """For each prompt, the sum of the cosines of its ordered pairs of images, and their number."""
    unit, found = Cosine().unit(as_features(x).double()), []
    for group in rows_by_label(prompts, len(unit)).values():
        n = len(group)
        # |sum of unit vectors|^2 is the sum of cosines over all pairs, including i = j
        found.append((float(unit[group].sum(dim=0).square().sum()) - n, n * (n - 1)))
    return found


@isolated()
def projection_spreads(
    images: Features, texts: Features, prompts: Sequence[str]
) -> tuple[float, float] | None:
    """max - min of a prompt's images along its text's direction, and along the principal direction
    of what they have beside it; means over prompts with two images or more, in [0, 2].

    Args:
        images, texts: (n, d) features of images and of their prompts by one CLIP.
        prompts: the n prompts.

    Raises:
        ValueError: as for `clip_score`, or there are not n prompts.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import projection_spreads
        >>> images, texts = torch.eye(3)[:2], torch.eye(3)[:1].repeat(2, 1)
        >>> projection_spreads(images, texts, ["a", "a"])
        (1.0, 1.0)
    """
    x, t = (Cosine().unit(it.double()) for it in as_pair(images, texts))
    found = []
    for group in rows_by_label(prompts, len(x)).values():
        if len(group) > 1:
            along = x[group] @ t[group[0]]
            beside = x[group] - along[:, None] * t[group[0]]
            u = torch.linalg.svd(beside - beside.mean(dim=0), full_matrices=False).Vh[0]
            found.append([float(it.max() - it.min()) for it in (along, beside @ u)])
    return None if not found else (fmean(a for a, _ in found), fmean(b for _, b in found))


@isolated()
def seed_identifiability(
    x: Features, seeds: Sequence[Hashable], prompts: Sequence[str]
) -> float | None:
    """How well a linear probe tells the seed of an image of a prompt that it was not trained on, in
    [0, 1]; the chance is one over the number of seeds. Low if a seed decides nothing by itself.

    The probe is ridge regression of one-hot seeds on unit features without their prompt's mean,
    with a penalty of 1, trained on every second prompt and tested on the others, and the reverse.

    Args:
        x: (n, d) features of the images.
        seeds, prompts: the seed and the prompt of each image.

    Returns:
        The accuracy, or None unless both halves of the prompts have the same two seeds or more.

    Raises:
        ValueError: as for `in_batch_similarity`.

    Example:
        >>> import torch
        >>> from vendi_guidance.scores import seed_identifiability
        >>> seed_identifiability(torch.eye(2).repeat(2, 1), [0, 1, 0, 1], ["a", "a", "b", "b"])
        1.0
    """
    unit = Cosine().unit(as_features(x).double())
    rows_by_label(seeds, len(unit))
    halves: list[list[int]] = [[], []]
    for number, group in enumerate(rows_by_label(prompts, len(unit)).values()):
        unit[group] -= unit[group].mean(dim=0)
        halves[number % 2] += group
    known = {seed: place for place, seed in enumerate(dict.fromkeys(seeds))}
    if len(known) < 2 or any({seeds[row] for row in half} != {*known} for half in halves):
        return None
    labels = torch.tensor([known[seed] for seed in seeds], device=unit.device)
    right = 0
    for train, test in (halves, halves[::-1]):
        a, targets = unit[train], one_hot(labels[train], len(known)).double()
        gram = a @ a.T + torch.eye(len(a), dtype=a.dtype, device=a.device)
        found = unit[test] @ (a.T @ torch.linalg.solve(gram, targets))
        right += int((found.argmax(dim=1) == labels[test]).sum())
    return right / len(unit)


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
