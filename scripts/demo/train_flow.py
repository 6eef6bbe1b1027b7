"""Train the flow demo, a tiny Stable Diffusion 3 of letters, and its probe, from scratch.

Stages, each resumable: the probe, the autoencoder, the transformer with both text encoders.
Checkpoints are in --work; the same command resumes.
"""

from itertools import product
from pathlib import Path

import click
import torch

from scripts.demo import letters
from scripts.demo.flow import Flow, train_flow
from scripts.demo.letters import Letters
from scripts.demo.probing import make_probe
from scripts.demo.training import Training, encode, train_vae, training_options
from vendi_guidance.features.probe import Probe

VAE_WIDTHS = 8, 16, 32
SHAPE = Flow(heads=4, layers=4, patch=2, tokens=12, shift=3.0)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/letters", help="Typefaces.")
@training_options(9_000, batch=32, work="out/flow", vae_steps=900, probe_steps=900)
def main(data: Path, training: Training) -> None:
    letters.fetch(data)
    drawn = letters.load(data)
    make_letters_probe(training.assets / "demo-letters-probe", drawn, training.of_probe)
    vae = train_vae(drawn.images, VAE_WIDTHS, training.of_vae)
    shown = drawn.where(~drawn.held_out)
    means = encode(vae, shown.images, training.device).unflatten(0, shown.pixels.shape[:2])
    looks = product(letters.CONCEPTS, *letters.ATTRIBUTES.values())
    captions = (letters.caption(*look) for look in looks)
    train_flow("demo-flow", shown, captions, means, vae, SHAPE, training)


def make_letters_probe(folder: Path, drawn: Letters, training: Training) -> None:
    """A classifier of letter, class, weight and slant, tested on a tenth of the images of the
    families that it knows, and on families that it does not."""
    torch.manual_seed(2)
    probe = Probe(letters.CONCEPTS, list(letters.ATTRIBUTES.items()), letters.CAPTION)
    known, unseen = drawn.where(~drawn.held_out), drawn.where(drawn.held_out)
    tests = {"a tenth of the images": None, "unseen families": (unseen.images, unseen.labels)}
    mix = [(1.0, list(letters.SHARES.values()))]
    make_probe(folder, probe, (known.images, known.labels), tests, mix, training)


if __name__ == "__main__":
    main()
