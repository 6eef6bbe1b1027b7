"""Train the demo SDXL and its probe on emoji artwork, from scratch, and save them under assets/.

The stages are the probe, the autoencoder, and the UNet with both text encoders. Checkpoints are
written to --work; the same command resumes.
"""

from pathlib import Path

import click
import numpy as np
import torch

from scripts.demo import emoji
from scripts.demo.emoji import SIZE, Emoji
from scripts.demo.probing import make_probe, save_features
from scripts.demo.sdxl import Shape, train_sdxl
from scripts.demo.training import (
    Training,
    latents_of,
    noise_schedule,
    save_half,
    train_vae,
    training_options,
)
from vendi_guidance.features.probe import TRAINING_FEATURES, Probe

SHAPE = Shape(size=SIZE, widths=(64, 128, 128), heads=(2, 4, 4), texts=(64, 128), groups=16)


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(4_000, batch=64, work="out/train", vae_steps=1_500, probe_steps=1_200)
def main(training: Training) -> None:
    shown = emoji.load_sheets(training.assets / "demo-pictures")
    make_emoji_probe(training.assets / "demo-probe", shown, training.of_probe)
    vae = train_vae(shown.pixels.flatten(0, 2), (16, 32, 64), training.of_vae)
    latents, given = latents_of(vae, shown.pixels, training.device), (noise_schedule(), SHAPE)
    pipeline = train_sdxl(vae, shown, shown.captions, latents, *given, training)
    save_half(pipeline, training.assets / "demo-sdxl")


def make_emoji_probe(folder: Path, shown: Emoji, training: Training) -> None:
    """Train a classifier of concept, vendor and tone, and save its training-image features."""
    torch.manual_seed(2)
    attributes = [("vendor", emoji.VENDORS), ("tone", emoji.TONES)]
    probe = Probe(shown.concepts, attributes, emoji.CAPTION)
    looks = torch.tensor(list(np.ndindex(*shown.pixels.shape[:3])))
    known = shown.pixels.flatten(0, 2), looks
    mix = [(1.0, [emoji.VENDOR_SHARES, emoji.TONE_SHARES])]
    make_probe(folder, probe, known, {"a tenth of the images": None}, mix, training)
    save_features(probe.float().cpu(), shown.images(shown.concepts), folder / TRAINING_FEATURES)


if __name__ == "__main__":
    main()
