"""Generate and draw the README's picture.

\b
  python -m scripts.docs.picture      # about three minutes of one core
"""

import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from textwrap import fill, shorten

import click
import numpy as np
from matplotlib.figure import Figure

from scripts.comparison.models import MODELS
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.prompt_files import save_prompts

SHOWN = {
    "demo-photos-tuned-lora": (
        *("a photo of a handbag", "a photo of a cap", "a photo of a wallet"),
        "a photo of a red handbag",
    ),
    "demo-faces": ("portrait", "portrait, bun", "portrait, brown hair"),
    "demo-sdxl-turbo-lora": (
        *("thumbs down", "victory hand"),
        "left pointing backhand index, light skin tone",
    ),
}
"""Model -> prompts whose images are shown; the last one names what the others leave open."""
ROW = 6  # images in a row
DIALS = {"without guidance": 0.0, "with guidance, the default": 0.5, "diversity 1": 1.0}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--runs", type=click.Path(path_type=Path), default="out/picture")
@click.option("--output", type=click.Path(path_type=Path), default="docs/figures/demo.webp")
def main(runs: Path, output: Path) -> None:
    strips = []
    for model, prompts in SHOWN.items():
        folders = [generated(runs, model, dial) for dial in DIALS.values()]
        strips += [[strip(folder, prompt) for folder in folders] for prompt in prompts]
    save_grid(output, strips, [*DIALS], sum(SHOWN.values(), ()), 12)


def generated(runs: Path, model: str, diversity: float) -> Path:
    """The folder of 16 images of each prompt of a model."""
    runs.mkdir(parents=True, exist_ok=True)
    prompts, output = runs / f"{model}.jsonl", runs / f"{model}-{diversity}"
    about = MODELS[model]
    how = ["--images-per-prompt=16", "--batch-size=16", "--resume"]
    how += [f"--model=assets/{about.base or model}", *[f"--lora=assets/{model}"] * bool(about.base)]
    how += [f"--steps={about.steps}", f"--guidance-scale={about.guidance_scale}"]
    command = [sys.executable, "-m", "vendi_guidance", "generate", *how]
    command += [str(save_prompts(prompts, SHOWN[model])), f"--output={output}"]
    subprocess.run([*command, f"--diversity={diversity}"], check=True)
    return output


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
