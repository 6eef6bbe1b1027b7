"""Methods that generate a larger pool of images and keep some."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn.functional import normalize

from scripts.comparison import efficientnet
from scripts.comparison.call import Call, Step
from scripts.comparison.models import MODELS
from vendi_guidance.adapter.arguments import in_form_of, tensor_of
from vendi_guidance.evaluation.embedding import choose_kernel
from vendi_guidance.features import open_image_embedder
from vendi_guidance.features.probe import Probe, load_probe
from vendi_guidance.kernels.subsets import greedy_subset
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.storage.assets import asset

THUMBNAIL = 16  # pixels a side
Subset: TypeAlias = Callable[[Sequence[Image], str, int], list[int]]
"""Indices of so many of the images of a prompt."""

DISTANCE = 4.5  # of group inference: 1.5 times the distances to the other three of a group
POOL_SEED_STEP = 10_000_000  # between the seeds of a sample's candidates


def select(call: Call, pool: float, guidance_scale: float | None = None) -> list[Image]:
    """Generate `pool` candidates for each image of a batch and keep each prompt's most diverse, as
    users do by hand.

    The subset greedily maximizes the determinant of a Gaussian kernel between thumbnails, whose
    bandwidth is their median distance (Chen et al., NeurIPS 2018). The first candidate for an image
    has the sample's own seed.

    Args:
        guidance_scale: CFG scale; candidates differ more if it is low. None uses the call's.
    """
    changes = {} if guidance_scale is None else {"guidance_scale": guidance_scale}
    images = [image for one in _pool(call, pool) for image in one.images(**changes)]
    return [images[row] for row in chosen(images, call.prompts, most_diverse, 1)]


def _pool(call: Call, pool: float) -> list[Call]:
    """The calls of so many candidates for each image."""
    steps = [k * POOL_SEED_STEP for k in range(int(pool))]
    return [replace(call, seeds=[seed + step for seed in call.seeds]) for step in steps]


def most_diverse(images: Sequence[Image], prompt: str, count: int) -> list[int]:
    """Indices of a diverse subset of a prompt's images."""
    features = open_image_embedder(f"pixels:{THUMBNAIL}").embed(images).double()
    kernel, _ = choose_kernel(None, {}, {"name": "thumbnails"}, features)
    return greedy_subset(kernel.gram(features), torch.arange(len(images)), count)


def chosen(
    images: Sequence[Image], prompts: Sequence[str], subset: Subset, times: int
) -> list[int]:
    """Indices of so many images for each of n prompts, in the prompts' order; image i belongs to
    prompt i mod n, and `subset` chooses among those of each distinct prompt."""
    selected = {}
    of_prompts = rows_by_label([*prompts] * (len(images) // len(prompts)), len(images))
    for prompt in dict.fromkeys(prompts):
        rows = of_prompts[prompt]
        found = subset([images[row] for row in rows], prompt, times * prompts.count(prompt))
        selected[prompt] = iter([rows[i] for i in found])
    return [next(selected[prompt]) for prompt in [*prompts] * times]


def group_inference(call: Call, pool: float) -> list[Image]:
    """`pool` candidates for each image, a power of 2; half of them are dropped after each step.

    Parmar et al. (arXiv:2508.15773). A set of the images predicted at a step is worth the sum of
    their qualities and 1.5 times that of pairwise distances, in groups of four. They take CLIP,
    DINO and an exact solver, and 16 to 32 candidates for each image. Here the worst one is dropped
    again and again, and the judges are those of the results, which favours the method (`worth`).
    """
    if pool == 0:
        return call.images()
    outputs: dict[tuple[int, int], Tensor] = {}  # (seed, step) -> in all parts of CFG
    forms: list[Any] = []

    def evaluate(own: Call, last: int | None, step: Step) -> Any:
        keys = [(seed, step.number) for seed in own.seeds]
        if keys[0] not in outputs:  # else evaluated before candidates were dropped
            forms.append(step.output())
            rows = tensor_of(forms[-1]).unflatten(0, (-1, len(keys))).unbind(dim=1)
            outputs.update(zip(keys, rows, strict=True))
        output = torch.stack([outputs[key] for key in keys], dim=1).flatten(0, 1)
        if step.number == last:
            raise _StepError(step.denoised(own, output))
        return in_form_of(forms[0], output)

    calls, number = _pool(call, pool), 0
    while len(calls) > 1:
        images: list[Image] = []
        for own in calls:
            try:
                own.images_by(partial(evaluate, own, number))
            except _StepError as stopped:
                images += decoded(call.pipe, stopped.args[0])
        seeds = [seed for own in calls for seed in own.seeds]
        rows = chosen(images, call.prompts, worth_most, len(calls) // 2)
        kept = torch.tensor(rows).view(-1, len(call.seeds)).tolist()
        calls, number = [replace(call, seeds=[seeds[row] for row in it]) for it in kept], number + 1
    return calls[0].images_by(partial(evaluate, calls[0], None))


class _StepError(Exception):
    """Ends a call at a step; has what is predicted there."""


@torch.no_grad()
def decoded(pipe: Any, clean: Tensor) -> list[Image]:
    """The images of (n, c, h, w) clean latents."""
    config = pipe.vae.config
    latents = clean / config.scaling_factor + (config.get("shift_factor") or 0)
    [pixels] = pipe.vae.decode(latents.to(pipe.vae.dtype), return_dict=False)
    return pipe.image_processor.postprocess(pixels.float())


def worth_most(images: Sequence[Image], prompt: str, count: int) -> list[int]:
    """Indices of a prompt's images that are left when those worth least are dropped one by one.

    Quality is the probability of what the prompt names, by the probe that knows it; the distance is
    one minus the cosine of EfficientNet's features.
    """
    units = normalize(efficientnet.embedder().embed(images))
    return left(quality(images, prompt), 1 - units @ units.T, count)


def left(qualities: Tensor, distances: Tensor, count: int) -> list[int]:
    """Indices of so many of n items, of (n,) qualities and (n, n) distances."""
    kept = list(range(len(qualities)))
    while len(kept) > count:
        others = distances[kept][:, kept].sum(dim=1) / (len(kept) - 1)
        del kept[int((qualities[kept] + DISTANCE * others).argmin())]
    return kept


@torch.no_grad()
def quality(images: Sequence[Image], prompt: str) -> Tensor:
    """The (n,) probabilities that images show all that the prompt names."""
    probe, asked = next((it, own) for it in probes() for own in it.asked([prompt]) if own)
    features, share = probe.embed(images), torch.ones(len(images))
    values = [probe.concepts, *probe.attributes.values()]
    for head, names, value in zip(probe.heads, values, asked, strict=True):
        if value:
            share = share * head(features).softmax(dim=1)[:, names.index(value)]
    return share


@cache
def probes() -> list[Probe]:
    return [load_probe(str(asset(it))) for it in sorted({own.probe for own in MODELS.values()})]
