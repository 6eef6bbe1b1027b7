"""Train the faces demo, a small Stable Diffusion 3 of 128x128 portraits, and its probe, from
scratch.

The stages are the probe, the autoencoder, and the transformer with both text encoders. Checkpoints
are written to --work; the same command resumes, also on another machine that has them.
"""

from pathlib import Path

import click
import torch
from PIL import Image
from torch import Tensor

from scripts.demo import faces
from scripts.demo.faces import Faces
from scripts.demo.flow import train_flow
from scripts.demo.probing import make_probe
from scripts.demo.training import Training, encode, train_vae, training_options
from vendi_guidance.features.probe import Probe, probe_pixels

IMAGES = 40_000  # training images; many share a look
HELD_OUT = 1_000  # drawings of held-out looks, which test the probe
VAE_WIDTHS = 16, 32, 64


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(8_000, batch=32, work="out/faces", vae_steps=4_000, probe_steps=1_500)
def main(training: Training) -> None:
    shown = faces.sample_faces(IMAGES, seed=0)
    images = shown.images
    make_faces_probe(training.assets / "demo-faces-probe", shown, images, training.of_probe)
    vae = train_vae(images, VAE_WIDTHS, training.of_vae)
    looks = map(faces.values_of, shown.kinds)
    captions = sorted({faces.caption(look, [True] * len(look)) for look in looks})
    means = encode(vae, images, training.device)
    train_flow(shown, captions, means, vae, training)


def make_faces_probe(folder: Path, shown: Faces, images: Tensor, training: Training) -> None:
    """Train a classifier of all attributes at half the image size, tested on a tenth of the
    training looks and on looks that are in no training set."""
    torch.manual_seed(2)
    probe = Probe([faces.CONCEPT], list(faces.ATTRIBUTES.items()), faces.CAPTION)
    unseen = faces.sample_held_out(HELD_OUT, seed=1)
    tests = {
        "a tenth of the looks": None,
        "unseen looks": (half_size(unseen.images), unseen.labels),
    }
    known = half_size(images), shown.labels
    make_probe(folder, probe, known, tests, faces.open_shares(), training)


def half_size(images: Tensor) -> Tensor:
    """(n, 3, 128, 128) uint8 to (n, 3, 64, 64), resized as the probe resizes its input."""
    small = [probe_pixels(Image.fromarray(one.permute(1, 2, 0).numpy()), 64) for one in images]
    return ((torch.stack(small) + 1) * 127.5).round().byte()


if __name__ == "__main__":
    main()
