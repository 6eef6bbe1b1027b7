"""Methods that change how a pipeline samples: its CFG, its network or its latents."""

import math
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from scripts.comparison.call import Call, Step, ratio_at
from vendi_guidance.adapter.arguments import in_form_of, input_of, tensor_of
from vendi_guidance.adapter.levels import Reader
from vendi_guidance.adapter.undistilled import ADAPTERS, answer

LEAST_SIGMA, MOST_SIGMA = 1.0, 1e4  # of particle guidance


def limited_interval(call: Call, start: float) -> list[Image]:
    """CFG from this fraction of the steps on; before, the unconditional rows are not evaluated.

    Kynkäänniemi et al. (NeurIPS 2024). Their interval, in noise levels, is 0.28 to 5.42 for SDXL,
    which is 0.18 to 0.92 of 50 Euler steps.
    """

    def evaluate(step: Step) -> Any:
        if step.done >= start:
            return step.output()
        alone = step.of_prompts()
        raw = alone.make()
        parts = step.evaluation.rows // len(step.rows)
        return in_form_of(raw, torch.cat([tensor_of(raw)] * parts))

    return call.images_by(evaluate)


def base_first(call: Call, steps: float) -> list[Image]:
    """The network without its LoRA at the first steps.

    Where the LoRA distilled it to few steps, one step, as Gandikota & Bau (arXiv:2503.10637): a
    distilled network decides at its first step what the image shows. Where the LoRA tuned it on a
    taste, until high noise is gone, as Sorokin et al. (ImageReFL, arXiv:2505.22569). The number of
    evaluations and the scale of CFG stay those of the call.
    """

    def evaluate(step: Step) -> Any:
        is_first = step.number < steps
        return answer(ADAPTERS, *step.evaluation[:3]) if is_first else step.output()

    return call.images_by(evaluate)


def particle_guidance(call: Call, scale: float) -> list[Image]:
    """The samples of a prompt repel each other, within a batch only.

    Corso et al. (ICLR 2024) add the gradient of a fixed log potential (`repulsion`) to the score.
    Their code for Stable Diffusion, followed here, subtracts scale x sigma x repulsion from the
    predicted noise while sigma >= 1, with latents scaled to unit variance; sigma is noise over
    signal.

    For n samples of d values, the gradient's norm is about log(n) / sqrt(d) and the latents' norm
    grows with sqrt(d): at twice the height and width, the same effect takes four times the scale.
    """
    scheduler, groups = call.pipe.scheduler, call.groups

    def evaluate(step: Step) -> Any:
        reader, raw = Reader(scheduler), step.output()
        sigma = ratio_at(reader, step.number)
        if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
            return raw
        alone, level = step.of_prompts(), reader.at(sigma)
        latents, input_scale = input_of(alone.given), reader.input_scale(level)
        x = latents.flatten(1).float() / (input_scale * math.hypot(*level))
        change = torch.zeros_like(x)
        for rows in groups:
            change[rows] = -scale * sigma * repulsion(x[rows])
        if reader.predicts != "epsilon":  # a velocity changes 1 / signal times as much
            change /= input_scale * level.signal
        output = tensor_of(raw).clone()
        own = output[:, : latents.shape[1]]  # without a learned variance
        own.unflatten(0, (-1, len(x))).add_(change.view_as(latents))
        return in_form_of(raw, output)

    return call.images_by(evaluate)


def repulsion(x: Tensor) -> Tensor:
    """The gradient of log Phi = -sum over pairs exp(-|a - b|^2 / h) at (n, d) points, n > 1.

    The bandwidth h, held constant, is the median squared distance divided by log n, as in the
    paper; the authors' code has one for each sample and divides by log(n - 1). Where half of all
    pairs are duplicates, h is 0 and so is the gradient.
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    first, second = torch.triu_indices(len(x), len(x), offset=1)
    h = distances[first, second].median() / math.log(len(x))
    if h == 0:
        return torch.zeros_like(x)
    weights = (-distances / h).exp()
    return 2 / h * (weights.sum(dim=1, keepdim=True) * x - weights @ x)
