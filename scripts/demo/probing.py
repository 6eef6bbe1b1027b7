"""Trains, tests and saves the probes of the demos."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from scripts.demo.training import Training, to_model_range, train
from vendi_guidance.evaluation.attributes import ATTRIBUTES
from vendi_guidance.features.probe import Probe
from vendi_guidance.storage.tensors import save_tensors

Looks = tuple[Tensor, Tensor]
"""(n, 3, size, size) uint8 images, and (n, heads) indices of their classes."""


def make_probe(
    folder: Path,
    probe: Probe,
    known: Looks,
    tests: Mapping[str, Looks | None],
    mixture: Sequence[tuple[float, Sequence[Sequence[float]]]],
    training: Training,
) -> None:
    """Train all heads at once, print their accuracy, and save the probe in half precision, with its
    mixture.

    Args:
        folder: where the probe is saved.
        known: training images; a random tenth is held out if a test is None.
        tests: name -> images to measure accuracy on; None for the held-out tenth.
        mixture: distribution of the attributes that captions leave open: each component's share,
            and its distribution of each attribute's values.
    """
    images, looks = known
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(3))
    tenth = len(images) // 10 if None in tests.values() else 0
    held_out, kept = order.split([tenth, len(images) - tenth])
    train_probe(probe, (images[kept], looks[kept]), training)
    for name, given in tests.items():
        tested = given or (images[held_out], looks[held_out])
        for head, share in accuracy(probe, tested, training.device).items():
            click.echo(f"{folder.name}: {head} is right in {share:.1%} of {name}")
    probe.half().save_pretrained(folder)
    mix = {
        name: {
            value: round(sum(share * shares[i][j] for share, shares in mixture), 12)
            for j, value in enumerate(values)
        }
        for i, (name, values) in enumerate(probe.attributes.items())
    }
    (folder / ATTRIBUTES).write_text(json.dumps(mix, indent=2) + "\n", encoding="utf-8")


def train_probe(probe: Probe, known: Looks, training: Training) -> None:
    """Train all heads at once."""
    images, looks = known

    def loss(step: int) -> Tensor:
        chosen = torch.randint(len(images), (training.batch,))
        scores = probe(augment(to_model_range(images[chosen].to(training.device))))
        targets = looks[chosen].to(training.device).T
        losses = [F.cross_entropy(s, t) for s, t in zip(scores, targets, strict=True)]
        return torch.stack(losses).sum()

    train("probe", [probe], loss, 2e-3, training)


@torch.no_grad()
def accuracy(probe: Probe, tested: Looks, device: str) -> dict[str, float]:
    """The accuracy of each head on images that it was not trained on; heads with a single class
    are left out."""
    images, looks = tested
    parts = [probe(to_model_range(part.to(device))) for part in images.split(256)]
    found = (torch.cat(logits).cpu() for logits in zip(*parts, strict=True))
    heads = zip(("concept", *probe.attributes), found, looks.T, strict=True)
    return {
        name: (logits.argmax(1) == targets).float().mean().item()
        for name, logits, targets in heads
        if logits.shape[1] > 1
    }


def save_features(probe: Probe, images: Sequence[Image.Image], file: Path) -> None:
    """Write the probe's (n, 128) float16 "features" of real images, the reference for scores of
    generated ones."""
    save_tensors(file, {"features": probe.embed(images).half()}, {})


def augment(x: Tensor) -> Tensor:
    """Random shifts, scales, blur, noise and slight colour changes, like a generator's errors."""
    n = len(x)
    scale = 1 + 0.1 * (2 * torch.rand(n) - 1)
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    theta[:, :, 2] = 0.12 * (2 * torch.rand(n, 2) - 1)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False).to(x)
    x = 1 - F.grid_sample(1 - x, grid, align_corners=False)  # the border is filled with white
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    amount = torch.rand(n, 1, 1, 1).to(x)
    x = x + amount * (blurred - x) + 0.15 * torch.rand(n, 1, 1, 1).to(x) * torch.randn_like(x)
    return x * (1 + 0.05 * (2 * torch.rand(n, 3, 1, 1).to(x) - 1))
