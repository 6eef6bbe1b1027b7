"""Make the README's image, from the runs of `make demo EVERY=1`.

\b
  python -m scripts.docs.picture
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from textwrap import fill, shorten

import click
import numpy as np
from matplotlib.figure import Figure

from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.storage.files import whole_file

SHOWN = {
    "photos-open": ("a photo of a handbag", "a photo of a cap", "a photo of a wallet"),
    "photos-named": ("a photo of a red handbag",),
    "open": ("thumbs down", "victory hand"),
    "named": ("left pointing backhand index, light skin tone",),
}
"""Pair of runs -> prompts whose images are shown."""
ROW = 8  # images in a row


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--runs", type=click.Path(path_type=Path, exists=True), default="out/demo")
@click.option("--output", type=click.Path(path_type=Path), default="docs/figures/demo.webp")
def main(runs: Path, output: Path) -> None:
    strips = [
        [strip(runs / f"{kind}-{suffix}", prompt) for suffix in ("without", "with")]
        for kind, prompts in SHOWN.items()
        for prompt in prompts
    ]
    titles = "without guidance", "with guidance"
    save_grid(output, strips, titles, sum(SHOWN.values(), ()), 11)


def save_grid(
    path: Path,
    strips: Sequence[Sequence[np.ndarray]],
    columns: Sequence[str],
    rows: Sequence[str],
    width: float,
) -> None:
    """Save lines of images of one width, with titles over columns and beside rows.

    Args:
        strips: (height, width, 3) uint8 of each row and column.
        width: of the figure, in inches.
    """
    heights = [line[0].shape[0] / line[0].shape[1] for line in strips]
    each = (width - 1.5) / len(columns)
    size = (width, each * sum(heights) * 1.05 + 0.4)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False, height_ratios=heights)
    for axes, images in zip(grid.flat, chain.from_iterable(strips), strict=True):
        axes.imshow(images, interpolation="lanczos")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for axes, title in zip(grid[0], columns, strict=True):
        axes.set_title(shorten(title, 60), fontsize=11)
    for axes, title in zip(grid[:, 0], rows, strict=True):
        axes.set_ylabel(fill(title, 16), rotation=0, ha="right", va="center", fontsize=11)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="webp", pil_kwargs={"quality": 70, "method": 6})


def strip(run: Path, prompt: str) -> np.ndarray:
    """The first images of a prompt, at most `ROW`, in a row: (height, width, 3) uint8."""
    batch = as_batch(run)
    own = [i for i, one in enumerate(batch.prompts or []) if one == prompt]
    images = batch.images.take(own[:ROW])
    return np.concatenate([np.asarray(image) for image in images], axis=1)


if __name__ == "__main__":
    main()
