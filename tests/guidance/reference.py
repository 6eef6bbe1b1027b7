"""Each way to guide in a few lines, for samples of a mixture of Gaussians in two dimensions, whose
denoiser is exact: one prompt, RKE of a fixed bandwidth, Euler's method at signal 1.

Independent of the package but for its constants and its fresh noise. docs/theory.md shows it.
"""

import math
from itertools import pairwise

import torch

from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.ways.own_steps import ABOVE, OUTWARD
from vendi_guidance.guidance.ways.perturbed import EXTENSION, PROMPT_NOISE, PUSH
from vendi_guidance.guidance.ways.rounds import FIRST_MOVE

MEANS = torch.tensor([[5.0, 0.0], [2.0, 1.5], [2.0, -1.5]], dtype=torch.float64)
RATIOS = [60.0, 30.0, 15.0, 8.0, 4.0, 2.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0]
SIGMA, VARIANCE = 0.8, 0.01


def predict(latents, ratio, means=MEANS):
    """The clean latents that latents with noise of this size are expected to come from."""
    total = VARIANCE + ratio**2
    weights = (-((latents[:, None] - means) ** 2).sum(2) / (2 * total)).softmax(1)
    return (weights[..., None] * means).sum(1) * (ratio**2 / total) + latents * (VARIANCE / total)


def gradient(x):
    """Rows of length 1: the gradient of RKE of unit vectors."""
    x = x.clone().requires_grad_()
    u = x / x.norm(dim=1, keepdim=True)
    kernel = torch.exp(-((u[:, None] - u) ** 2).sum(2) / (2 * SIGMA**2))
    (-(kernel / len(u)).square().sum().log()).backward()
    return x.grad / x.grad.norm(dim=1, keepdim=True)


def on_sphere(z, length, direction):
    """A move by a share of the norm, which is kept."""
    norm = z.norm(dim=1, keepdim=True)
    moved = z + length * norm * direction
    return moved * norm / moved.norm(dim=1, keepdim=True)


def distances(x):
    return torch.cdist(x, x).fill_diagonal_(math.nan)


def published(z, scale, every):
    for index, (start, end) in enumerate(pairwise(RATIOS)):
        clean = predict(z, start)
        z = clean + end / start * (z - clean)
        if end and index % every == 0:
            z = on_sphere(z, scale, gradient(z))
    return z


def own_steps(z, target):
    for start, end in pairwise(RATIOS):
        clean = predict(z, start)
        noise = (z - clean) / start
        if start > ABOVE and end:
            apart = distances(clean).nanquantile(0.5, dim=1, interpolation="lower")
            missing = (target - apart / clean.norm(dim=1)).clamp(min=0)
            length = OUTWARD * clean.norm(dim=1) * missing
            clean = clean + length[:, None] * gradient(clean)
        z = clean + end * noise
    return z


def rounds(z, wanted, count):
    fresh, made = Noise(z), False
    for start, end in pairwise(RATIOS):
        clean = predict(z, start)
        noise = (z - clean) / start
        if not made and start * end <= wanted**2:
            made, spread = True, 0.6 * distances(clean).nan_to_num(0).amax(1, keepdim=True)
            for done in range(count):
                length = FIRST_MOVE * (1 - done / count) * spread
                z = clean + start * fresh.like(clean)
                moved = on_sphere(z, length / z.norm(dim=1, keepdim=True), gradient(clean))
                clean = predict(moved, start)
            noise = (moved - clean) / start
        z = clean + end * noise
    return z


def perturbed(z, wanted, ratios):
    fresh, made = Noise(z), False
    for start, end in pairwise(ratios):
        clean = predict(z, start)
        noise = (z - clean) / start
        if not made and end < wanted:
            made, level = True, min(wanted, start)
            each = [fresh.on_prompt(MEANS[None], i, None, PROMPT_NOISE) for i in range(len(z))]
            proposal = predict(clean + start * noise, start, torch.cat(each))
            target = clean + (1 + EXTENSION) * (proposal - clean)
            deviation = predict(target + level * noise, level) - clean
            share = min(1, end / level)
            clean = clean + (1 + share * EXTENSION) * deviation
            length = share * PUSH * deviation.norm(dim=1, keepdim=True)
            clean = clean + length * gradient(clean)
        z = clean + end * noise
    return z
