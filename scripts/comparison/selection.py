"""Selection: generate a larger pool of images and keep the most diverse ones, as users do by hand.

The subset greedily maximizes the determinant of a Gaussian kernel between thumbnails, whose
bandwidth is their median distance (Chen et al., NeurIPS 2018).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from PIL.Image import Image

from scripts.comparison.call import Call
from vendi_guidance.evaluation.embedding import choose_kernel
from vendi_guidance.features import open_image_embedder
from vendi_guidance.kernels.subsets import greedy_subset
from vendi_guidance.scores.groups import rows_by_label

THUMBNAIL = 16  # pixels a side
POOL_SEED_STEP = 10_000_000  # between the seeds of a sample's candidates


def select(call: Call, pool: float, guidance_scale: float | None = None) -> list[Image]:
    """Generate `pool` candidates for each image of a batch and keep each prompt's most diverse.

    The first candidate for an image has the sample's own seed.

    Args:
        guidance_scale: CFG scale; candidates differ more if it is low. None uses the call's.
    """
    changes = {} if guidance_scale is None else {"guidance_scale": guidance_scale}
    images: list[Image] = []
    for k in range(int(pool)):
        seeds = [seed + k * POOL_SEED_STEP for seed in call.seeds]
        images += replace(call, seeds=seeds).images(**changes)
    return [images[row] for row in most_diverse(images, call.prompts)]


def most_diverse(images: Sequence[Image], prompts: Sequence[str]) -> list[int]:
    """Indices of n of p x n images, in the order of the n prompts: a diverse subset of the images
    of each distinct prompt; image i belongs to prompt i mod n."""
    features, selected = open_image_embedder(f"pixels:{THUMBNAIL}").embed(images).double(), {}
    of_prompts = rows_by_label([*prompts] * (len(images) // len(prompts)), len(images))
    for prompt, rows in of_prompts.items():
        kernel, _ = choose_kernel(None, {}, {"name": "thumbnails"}, features[rows])
        places = torch.arange(len(rows))
        subset = greedy_subset(kernel.gram(features[rows]), places, prompts.count(prompt))
        selected[prompt] = iter([rows[place] for place in subset])
    return [next(selected[prompt]) for prompt in prompts]
