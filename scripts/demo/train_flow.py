"""Train the flow demo, a tiny Stable Diffusion 3 of letters, and its probe, from scratch.

The stages are the probe, the autoencoder, and the transformer with both text encoders. Checkpoints
are written to --work; the same command resumes.
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
    dataset = letters.load(data)
    make_letters_probe(training.assets / "demo-letters-probe", dataset, training.of_probe)
    vae = train_vae(dataset.images, VAE_WIDTHS, training.of_vae)
    shown = dataset.select(~dataset.held_out)
    means = encode(vae, shown.images, training.device).unflatten(0, shown.pixels.shape[:2])
    looks = product(letters.CONCEPTS, *letters.ATTRIBUTES.values())
    captions = (letters.caption(*look) for look in looks)
    train_flow("demo-flow", shown, captions, means, vae, SHAPE, training)


def make_letters_probe(folder: Path, dataset: Letters, training: Training) -> None:
    """Train a classifier of letter, class, weight and slant, tested on a tenth of the images of its
    training families, and on held-out families."""
    torch.manual_seed(2)
    probe = Probe(letters.CONCEPTS, list(letters.ATTRIBUTES.items()), letters.CAPTION)
    known, unseen = dataset.select(~dataset.held_out), dataset.select(dataset.held_out)
    tests = {"a tenth of the images": None, "unseen families": (unseen.images, unseen.labels)}
    mix = [(1.0, list(letters.SHARES.values()))]
    make_probe(folder, probe, (known.images, known.labels), tests, mix, training)


if __name__ == "__main__":
    main()
