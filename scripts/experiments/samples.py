"""Samples of the papers' experiments and their scores, without figures.

Scores come by name, as arrays of one number for each setting.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores import functional

Scores = dict[str, np.ndarray]

SCORES: dict[str, Callable[..., Tensor]] = {
    "Vendi": functional.vendi,
    "Conditional-Vendi": functional.conditional_vendi,
    "Information-Vendi": functional.information_vendi,
    "Information-RKE": functional.information_rke,
    "IntDiv": functional.intdiv,
}
MIXTURE_KERNEL = Gaussian(0.6)
RADIUS, SPREAD = 0.8, 0.3
"""Of the ring that a mixture's modes lie on, and their standard deviation in each direction."""


class Pairs(NamedTuple):
    """n texts and images that belong together.

    Attributes:
        texts: (n, 2).
        images: (n, 2).
        groups: (n,) which of its modes each text is of.
    """

    texts: np.ndarray
    images: np.ndarray
    groups: np.ndarray


def ring(modes: int) -> np.ndarray:
    """(modes, 2) centres, evenly around the origin; a single one lies at it."""
    angles = 2 * np.pi * (np.arange(modes) + 0.5) / modes
    return (modes > 1) * RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def mixture(text_modes: int, image_modes: int, count: int, seed: int, nearest: str) -> Pairs:
    """Texts and images from Gaussian mixtures, paired so that partners are close.

    Args:
        count: how many pairs.
        nearest: what the least sum of squared distances is of: the "modes" of a text and its
            image, or the "points" themselves.
    """
    r = np.random.default_rng(seed)
    groups, kinds = np.arange(count) % text_modes, np.arange(count) % image_modes
    text_centres, image_centres = ring(text_modes)[groups], ring(image_modes)[kinds]
    texts = text_centres + SPREAD * r.normal(size=(count, 2))
    images = image_centres + SPREAD * r.normal(size=(count, 2))
    sides = (text_centres, image_centres) if nearest == "modes" else (texts, images)
    _, partners = linear_sum_assignment(cdist(*sides, "sqeuclidean"))
    return Pairs(texts, images[partners], groups)


def scored(samples: Sequence[Sequence[Any]], *names: str) -> Scores:
    """Scores by name of samples, each the arguments of a score."""
    return {name: np.array([float(SCORES[name](*one)) for one in samples]) for name in names}


def mixture_scores(samples: Sequence[Pairs]) -> Scores:
    """Conditional and Information-Vendi of each sample."""
    given = [(some.images, some.texts, MIXTURE_KERNEL, MIXTURE_KERNEL) for some in samples]
    return scored(given, "Conditional-Vendi", "Information-Vendi")


def substituted(count: int, share: float, r: np.random.Generator) -> np.ndarray:
    """(count,) for each prompt which prompt's image it gets: a share of them, chosen at random,
    exchange theirs at random."""
    rows = np.arange(count)
    chosen = r.choice(count, round(share * count), replace=False)
    rows[chosen] = r.permutation(chosen)
    return rows


def substitution_scores(
    x: Tensor, t: Tensor, kernels: tuple[Gaussian, Gaussian], shares: Sequence[float], seed: int
) -> Scores:
    """Information of prompts about images when a share of the images is exchanged.

    Args:
        x: (n, d) features of images.
        t: (n, m) features of their prompts.
        kernels: on the two.
        shares: in [0, 1].
    """
    r = np.random.default_rng(seed)
    given = [(x[substituted(len(x), share, r)], t, *kernels) for share in shares]
    return scored(given, "Information-Vendi", "Information-RKE")


def digit_scores(pixels: np.ndarray, digits: np.ndarray, count: int, seed: int) -> Scores:
    """What `count` images of the first 1 to 10 digits score, by the cosine of their pixels.

    Args:
        pixels: (n, d), of each digit at least `count`.
        digits: (n,).
    """
    r = np.random.default_rng(seed)
    samples = [
        (pixels[r.choice(np.flatnonzero(digits < kinds), count, replace=False)], Cosine())
        for kinds in range(1, 11)
    ]
    return scored(samples, "Vendi", "IntDiv")


def look_scores(
    x: Tensor, t: Tensor, looks: Sequence[Hashable], kernels: tuple[Gaussian, Gaussian], most: int
) -> Scores:
    """What the images of the 1 to `most` commonest looks score.

    Args:
        x: (n, d) features of images.
        t: (n, m) features of their prompts.
        looks: n of them, at least `most` different.
        kernels: on features of images and prompts.
    """
    common = [look for look, _ in Counter(looks).most_common(most)]
    rows = [
        np.flatnonzero([look in common[:kinds] for look in looks]) for kinds in range(1, most + 1)
    ]
    plain = scored([(x[some], kernels[0]) for some in rows], "Vendi")
    return plain | scored([(x[some], t[some], *kernels) for some in rows], "Conditional-Vendi")
