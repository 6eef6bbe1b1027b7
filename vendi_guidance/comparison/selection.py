"""Selection: generate a larger pool of images and keep the most diverse ones, as users do by hand.

The subset greedily maximizes the determinant of a Gaussian kernel between thumbnails (Chen et al.,
NeurIPS 2018).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.comparison.methods import (
    Generate,
    Method,
    PipelineCall,
    Sample,
    check_not_negative,
)
from vendi_guidance.kernels.subsets import greedy_subset

THUMBNAIL = 16
"""Width and height of the thumbnails, in pixels. Results are judged by other features."""

POOL_SEED_STEP = 10_000_000
"""Difference between the seeds of a sample's consecutive candidates."""


@dataclass(frozen=True)
class Select(Method):
    """Generates `pool` candidates for each image of a batch and keeps each prompt's most diverse.

    The first candidate for an image has the sample's own seed.

    Args:
        pool: number of candidates per image.
        preview_steps: generate the candidates with this number of steps, then the selected ones
            again from the same noise with all steps. None generates candidates with all steps.
        guidance_scale: CFG scale; candidates differ more if it is low. None uses the call's.

    Raises:
        ValueError: pool or preview_steps < 1, or guidance_scale is negative or not finite.
    """

    pool: int = 4
    preview_steps: int | None = None
    guidance_scale: float | None = None

    def __post_init__(self) -> None:
        check_count("pool", self.pool)
        if self.preview_steps is not None:
            check_count("preview_steps", self.preview_steps)
        if self.guidance_scale is not None:
            check_not_negative("guidance_scale", self.guidance_scale)

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        yield {} if self.guidance_scale is None else {call.scale_name: self.guidance_scale}

    def images(self, generate: Generate, samples: Sequence[Sample]) -> list[Image.Image]:
        candidates: list[Sample] = []
        images: list[Image.Image] = []
        for k in range(self.pool):
            batch = [Sample(prompt, seed + k * POOL_SEED_STEP) for prompt, seed in samples]
            candidates += batch
            images += generate(batch, self.preview_steps)
        rows = most_diverse(images, [sample.prompt for sample in samples])
        if self.preview_steps is None:
            return [images[row] for row in rows]
        return generate([candidates[row] for row in rows])


def most_diverse(images: Sequence[Image.Image], prompts: Sequence[str]) -> list[int]:
    """Select a diverse subset of a pool, separately for each distinct prompt.

    Args:
        images: the pool of p x n images; image i belongs to prompt i mod n.
        prompts: n prompts, one for each image to keep.

    Returns:
        n indices of `images`, in the order of `prompts`.
    """
    small = [image.convert("RGB").resize((THUMBNAIL, THUMBNAIL)) for image in images]
    features = torch.from_numpy(np.stack([np.asarray(image) for image in small])).double() / 255
    selected = {}
    for prompt in dict.fromkeys(prompts):
        rows = [row for row in range(len(images)) if prompts[row % len(prompts)] == prompt]
        kernel = median_gaussian(features[rows].flatten(1))
        subset = greedy_subset(kernel, torch.arange(len(rows)), prompts.count(prompt))
        selected[prompt] = iter([rows[place] for place in subset])
    return [next(selected[prompt]) for prompt in prompts]


def median_gaussian(x: Tensor) -> Tensor:
    """The (n, n) Gaussian kernel exp(-|a - b|^2 / (2 s^2)), where s is the median distance.

    Args:
        x: (n, d). The median ignores distances of 0; if all are 0, the kernel is all ones.
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    pairwise = torch.pdist(x)
    positive = pairwise[pairwise > 0]
    if not len(positive):
        return torch.ones_like(distances)
    return (-distances.square() / (2 * positive.median() ** 2)).exp()
