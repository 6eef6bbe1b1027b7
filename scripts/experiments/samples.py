"""Samples of the papers' experiments and their scores, without figures.

Scores are dictionaries: name -> array with one number for each setting.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores import functional

Scores = dict[str, np.ndarray]

SCORES: dict[str, Callable[..., Tensor]] = {
    "Vendi": functional.vendi,
    "Conditional-Vendi": functional.conditional_vendi,
    "IntDiv": lambda x, kernel: 1 - kernel.gram(x).double().mean(),  # mean dissimilarity
}


def evaluate(arguments: Sequence[Sequence[Any]], *names: str) -> Scores:
    """Scores by name, evaluated at each set of arguments."""
    return {name: np.array([float(SCORES[name](*one)) for one in arguments]) for name in names}


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
