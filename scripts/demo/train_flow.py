"""Train the flow demo, a tiny Stable Diffusion 3 of letters, and its probe, from scratch.

Stages, each resumable: the probe, the autoencoder, the transformer with both text encoders.
Checkpoints are in --work; the same command resumes.
"""

from itertools import product
from pathlib import Path

import click
import torch

from scripts.demo.flow import SAMPLING, Flow, train_flow
from scripts.demo.held_out import save_measured
from scripts.demo.letters import (
    ATTRIBUTES,
    CAPTION,
    CONCEPTS,
    SHARES,
    Letters,
    caption,
    fetch,
    load,
)
from scripts.demo.probing import make_probe
from scripts.demo.training import Training, encode, train_vae, training_options
from vendi_guidance.features.probe import Probe

VAE_WIDTHS = 8, 16, 32
SHAPE = Flow(heads=4, layers=4, patch=2, tokens=12, shift=3.0)
FILES = "letters.txt", "letters-named.txt"  # of prompts


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/letters", help="Typefaces.")
@training_options("--flow-steps", 9_000, batch=32, work="out/flow")
@click.option("--output", type=click.Path(path_type=Path), default="assets", help="The results.")
@click.option("--prompts", type=click.Path(path_type=Path), default="assets/prompts")
@click.option("--vae-steps", type=click.IntRange(1), default=900)
@click.option("--probe-steps", type=click.IntRange(1), default=900)
@click.option("--stage", type=click.Choice(["all", "diffusion", "probe"]), default="all")
def main(
    data: Path,
    training: Training,
    output: Path,
    prompts: Path,
    vae_steps: int,
    probe_steps: int,
    stage: str,
) -> None:
    fetch(data)
    letters = load(data)
    judge = output / "demo-letters-probe"
    if stage in ("all", "probe"):
        of_probe = training._replace(steps=probe_steps, batch=2 * training.batch)
        make_letters_probe(judge, letters, of_probe)

    if stage in ("all", "diffusion"):
        of_vae = training._replace(steps=vae_steps, batch=training.batch // 2)
        vae = train_vae(letters.images, VAE_WIDTHS, of_vae)
        shown = letters.where(~letters.held_out)
        means = encode(vae, shown.images, training.device).unflatten(0, shown.pixels.shape[:2])
        captions = (caption(*words) for words in product(CONCEPTS, *ATTRIBUTES.values()))
        pipeline, _ = train_flow(shown, captions, means, vae, SHAPE, training)
        folder = output / "demo-flow"
        save_measured(
            pipeline, folder, SAMPLING, prompts, judge, training, FILES, images=shown, of_vae=of_vae
        )


def make_letters_probe(folder: Path, letters: Letters, training: Training) -> None:
    """A classifier of letter, class, weight and slant, tested on a tenth of the images of the
    families that it knows, and on families that it does not."""
    torch.manual_seed(2)
    probe = Probe(CONCEPTS, list(ATTRIBUTES.items()), CAPTION)
    known = letters.where(~letters.held_out)
    unseen = letters.where(letters.held_out)
    tests = {"a tenth of the images": None, "unseen families": (unseen.images, unseen.labels)}
    mix = [(1.0, list(SHARES.values()))]
    make_probe(folder, probe, (known.images, known.labels), tests, mix, training)


if __name__ == "__main__":
    main()
