"""Plot diversity scores against the number of items, for items with known modes.

Items are drawn from Gaussians of unit variance around random centres. The untruncated Vendi score
with a Gaussian kernel keeps growing. The truncated score, its random Fourier (FKEA) version, RKE,
and all scores with a cosine kernel converge (Ospanov & Farnia, UAI 2025, figure 1).

\b
  python -m scripts.experiments convergence --output docs/figures/convergence.png
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from vendi_guidance import Cosine, Gaussian, rke, vendi
from vendi_guidance.commands.cli import Command
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.scores import RandomFourier, convergence
from vendi_guidance.storage.files import whole_file

# The colours of Okabe and Ito, which colour-blind readers can distinguish.
PALETTE = "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#000000"
VERMILION, BLUE, GREEN, PURPLE, BLACK = PALETTE
CENTRES_APART = 3.0
"""Standard deviation of the modes' centres in each dimension; that of the items is 1."""

ITEMS, MODES, DIMENSION, SIGMA, REPEATS = 3000, 20, 64, 9.0, 8
KEPT = 300
"""Number of eigenvalues and of random Fourier features."""

Curves = dict[str, tuple[str, Callable[..., Tensor], dict[str, Any]]]
PANELS: dict[str, tuple[Kernel, Curves]] = {
    f"Gaussian kernel, σ = {SIGMA:g}": (
        Gaussian(SIGMA),
        {
            "Vendi": (VERMILION, vendi, {}),
            f"Vendi, truncated to {KEPT}": (GREEN, vendi, {"truncation": KEPT}),
            f"Vendi, FKEA of {KEPT}": (PURPLE, vendi, {"spectrum": RandomFourier(KEPT)}),
            "RKE": (BLACK, rke, {}),
        },
    ),
    "cosine kernel": (Cosine(), {"Vendi": (VERMILION, vendi, {}), "RKE": (BLACK, rke, {})}),
}
"""Title -> kernel, and name of a curve -> its colour, score and options."""


def score_of(x: np.ndarray, score: Callable[..., Tensor], rows: Tensor) -> Tensor:
    return score(x[rows])


output_option = click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="The figure, PNG."
)


@click.command(cls=Command, help=__doc__)
@output_option
@click.option("--items", type=click.IntRange(min=100), default=ITEMS, help="Largest sample size.")
def main(output: Path, items: int) -> None:
    r = np.random.default_rng(0)
    centres = CENTRES_APART * r.normal(size=(MODES, DIMENSION))
    x = centres[r.integers(MODES, size=items)] + r.normal(size=(items, DIMENSION))
    sizes = np.unique(np.geomspace(items / 60, items, 12).round().astype(int)).tolist()
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=[3, 2])
    for ax, (title, (kernel, curves)) in zip(panels, PANELS.items(), strict=True):
        ax.set_prop_cycle(color=[colour for colour, _, _ in curves.values()])
        for name, (_, score, options) in tqdm(curves.items(), title, leave=False, disable=None):
            of_rows = partial(score_of, x, partial(score, kernel=kernel, **options))
            curve = convergence(of_rows, items, sizes=sizes, repeats=REPEATS)
            curve.plot(ax, name)
        ax.set(xlim=(0, None), ylim=(0, None), xlabel="items")
        ax.set_title(title, loc="left", fontsize=11)
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    dotted = [population_rke(centres, SIGMA)] * 2
    panels[0].plot([0, items], dotted, ":", color=BLACK, linewidth=1.2)
    panels[0].set_ylabel("score")
    figure.supxlabel(
        f"{MODES} modes in {DIMENSION} dimensions. Lines: {REPEATS} random orders of the items "
        "(thin) and their mean; dotted: RKE of the population.",
        fontsize=9,
        color="0.35",
    )
    save(figure, output, dpi=150)


def save(figure: Figure, output: Path, dpi: int = 120) -> None:
    """Write a figure as PNG, and print its path."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as file:
        figure.savefig(file, format="png", dpi=dpi)
    click.echo(f"wrote {output}")


def population_rke(centres: np.ndarray, sigma: float) -> float:
    """1 / E k^2 in closed form: k^2 is Gaussian in the difference of two items, which is itself
    Gaussian around the difference of their centres, with variance 2 in each dimension."""
    distances = ((centres[:, None] - centres) ** 2).sum(axis=-1)
    scale = sigma**2 + 4
    expected = (sigma**2 / scale) ** (centres.shape[1] / 2) * np.exp(-distances / scale)
    return float(1 / expected.mean())
