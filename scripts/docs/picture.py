"""Make the README's image from the runs of `make demo`.

\b
  python -m scripts.docs.picture
"""

from pathlib import Path

import click
import numpy as np
from matplotlib.figure import Figure

from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.storage.files import whole_file

SHOWN = {
    "open": ("waving hand", "thumbs up", "victory hand"),
    "faces": ("portrait", "portrait, dark skin"),
    "named": ("left pointing backhand index, light skin tone",),
}
"""Pair of runs -> prompts whose images are shown."""
ROW = 8  # images in a row
TITLES = ("without guidance", "with guidance")


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--runs", type=click.Path(path_type=Path, exists=True), default="out/demo")
@click.option("--output", type=click.Path(path_type=Path), default="docs/figures/demo.webp")
def main(runs: Path, output: Path) -> None:
    strips = [
        (prompt, [strip(runs / f"{kind}-{suffix}", prompt) for suffix in ("without", "with")])
        for kind, prompts in SHOWN.items()
        for prompt in prompts
    ]
    heights = [both[0].shape[0] / both[0].shape[1] for _, both in strips]
    figure = Figure(figsize=(11, 5.6 * sum(heights)), dpi=110, layout="constrained")
    grid = figure.subplots(len(strips), 2, squeeze=False, height_ratios=heights)
    for line, (prompt, both) in zip(grid, strips, strict=True):
        for axes, images in zip(line, both, strict=True):
            axes.imshow(images, interpolation="lanczos")
            axes.set_axis_off()
        line[0].set_title(prompt, loc="left", fontsize=11)
    for axes, title in zip(grid[0], TITLES, strict=True):
        axes.set_title(title, loc="right", fontsize=11, color="grey")
    with whole_file(output) as temporary:
        figure.savefig(temporary, format="webp", pil_kwargs={"quality": 70, "method": 6})


def strip(run: Path, prompt: str, most: int | None = None) -> np.ndarray:
    """The first `most` images of a prompt, by default all, in rows: (height, width, 3) uint8."""
    batch = as_batch(run)
    own = [i for i, one in enumerate(batch.prompts or []) if one == prompt]
    images = np.stack([np.asarray(image) for image in batch.images.take(own[:most])])
    rows = images.reshape(-1, min(ROW, len(images)), *images.shape[1:])
    return np.concatenate([np.concatenate([*row], axis=1) for row in rows])


if __name__ == "__main__":
    main()
