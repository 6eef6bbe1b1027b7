"""Samples of the papers' experiments and their scores, without figures.

Scores are dictionaries: name -> array with one number for each setting.
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
    "IntDiv": functional.intdiv,
}
MIXTURE_KERNEL = Gaussian(0.6)
RADIUS, SPREAD = 0.8, 0.3
"""Radius of the ring of a mixture's modes, and their standard deviation in each direction."""


class Pairs(NamedTuple):
    """n pairs of a text and an image.

    Attributes:
        texts: (n, 2) points.
        images: (n, 2) points.
        groups: (n,) index of each text's mode.
    """

    texts: np.ndarray
    images: np.ndarray
    groups: np.ndarray


def ring(modes: int) -> np.ndarray:
    """(modes, 2) centres, evenly spaced around the origin; a single one is at the origin."""
    angles = 2 * np.pi * (np.arange(modes) + 0.5) / modes
    return (modes > 1) * RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def mixture(text_modes: int, image_modes: int, count: int, seed: int) -> Pairs:
    """`count` pairs of texts and images from Gaussian mixtures, paired so that the sum of squared
    distances between the modes of partners is least."""
    r = np.random.default_rng(seed)
    text_groups, image_groups = np.arange(count) % text_modes, np.arange(count) % image_modes
    text_centres, image_centres = ring(text_modes)[text_groups], ring(image_modes)[image_groups]
    texts = text_centres + SPREAD * r.normal(size=(count, 2))
    images = image_centres + SPREAD * r.normal(size=(count, 2))
    _, partners = linear_sum_assignment(cdist(text_centres, image_centres, "sqeuclidean"))
    return Pairs(texts, images[partners], text_groups)


def evaluate(arguments: Sequence[Sequence[Any]], *names: str) -> Scores:
    """Scores by name, evaluated at each set of arguments."""
    return {name: np.array([float(SCORES[name](*one)) for one in arguments]) for name in names}


def mixture_scores(samples: Sequence[Pairs]) -> Scores:
    """Conditional-Vendi and Information-Vendi of each sample."""
    arguments = [(pairs.images, pairs.texts, MIXTURE_KERNEL, MIXTURE_KERNEL) for pairs in samples]
    return evaluate(arguments, "Conditional-Vendi", "Information-Vendi")


def digit_scores(pixels: np.ndarray, digits: np.ndarray, count: int, seed: int) -> Scores:
    """Scores of `count` images of the first 1 to 10 digits, by the cosine of their pixels.

    Args:
        pixels: (n, d) images, at least `count` of each digit.
        digits: (n,) the digit of each image.
    """
    r = np.random.default_rng(seed)
    arguments = [
        (pixels[r.choice(np.flatnonzero(digits < kinds), count, replace=False)], Cosine())
        for kinds in range(1, 11)
    ]
    return evaluate(arguments, "Vendi", "IntDiv")


def look_scores(
    x: Tensor, t: Tensor, looks: Sequence[Hashable], kernels: tuple[Gaussian, Gaussian], most: int
) -> Scores:
    """Scores of the images with the 1 to `most` commonest looks.

    Args:
        x: (n, d) features of images.
        t: (n, m) features of their prompts.
        looks: the look of each image; at least `most` are different.
        kernels: on features of images and prompts.
    """
    common = [look for look, _ in Counter(looks).most_common(most)]
    rows = [
        np.flatnonzero([look in common[:kinds] for look in looks]) for kinds in range(1, most + 1)
    ]
    vendi = evaluate([(x[own], kernels[0]) for own in rows], "Vendi")
    return vendi | evaluate([(x[own], t[own], *kernels) for own in rows], "Conditional-Vendi")
