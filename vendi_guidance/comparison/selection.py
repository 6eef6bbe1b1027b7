"""Selection: generate more images than are needed and keep the most diverse ones.

It is what users do by hand. The subset has, found greedily, the largest determinant of a Gaussian
kernel between thumbnails.
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
"""Width and height in pixels of what is compared: not the features that results are judged by."""

POOL_SEED_STEP = 10_000_000
"""Between a sample's seed and those of the further candidates for its place."""


@dataclass(frozen=True)
class Select(Method):
    """Generates `pool` times as many images of each prompt of a batch, and keeps the most diverse.

    The first candidate for each place has the sample's own seed.

    Args:
        pool: candidates for each image.
        preview_steps: select among previews of so few steps, and generate with all steps what was
            selected, from the same noise. None: the candidates are generated with all steps.
        guidance_scale: of classifier-free guidance, by which candidates are less alike if it is
            low. None: the call's.

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
        parts = [
            [Sample(prompt, seed + k * POOL_SEED_STEP) for prompt, seed in samples]
            for k in range(self.pool)
        ]
        images = [image for part in parts for image in generate(part, self.preview_steps)]
        rows = most_diverse(images, [sample.prompt for sample in samples])
        if self.preview_steps is None:
            return [images[row] for row in rows]
        return generate([parts[row // len(samples)][row % len(samples)] for row in rows])


def most_diverse(images: Sequence[Image.Image], prompts: Sequence[str]) -> list[int]:
    """The rows of a diverse subset of a pool: for each prompt as many images as are asked for.

    Args:
        images: p x n images; image i shows prompt i mod n.
        prompts: the n prompts asked for; each is selected by itself.

    Returns:
        n rows of `images`, in the order of `prompts`.
    """
    small = [image.convert("RGB").resize((THUMBNAIL, THUMBNAIL)) for image in images]
    features = torch.from_numpy(np.stack([np.asarray(image) for image in small])).double() / 255
    taken = {}
    for prompt in dict.fromkeys(prompts):
        rows = [row for row in range(len(images)) if prompts[row % len(prompts)] == prompt]
        kernel = median_gaussian(features[rows].flatten(1))
        best = greedy_subset(kernel, torch.arange(len(rows)), prompts.count(prompt))
        taken[prompt] = iter([rows[place] for place in best])
    return [next(taken[prompt]) for prompt in prompts]


def median_gaussian(x: Tensor) -> Tensor:
    """(n, n) Gaussian kernel exp(-|a - b|^2 / 2 s^2), its bandwidth s the median distance.

    Args:
        x: (n, d). Distances of 0 do not count for the median; if all are, the kernel is ones.
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    apart = torch.pdist(x)
    apart = apart[apart > 0]
    if not len(apart):
        return torch.ones_like(distances)
    return (-distances.square() / (2 * apart.median() ** 2)).exp()
