"""The comparison's figures: methods as curves, and images of some of them."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill, shorten
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from scripts.comparison.cache import as_sheet
from scripts.comparison.candidates import METHODS, OURS, UNGUIDED
from scripts.comparison.measures import LOOKS, MEASURES
from scripts.comparison.results import CONFIDENCE, Row, curves
from scripts.comparison.trials import parts
from vendi_guidance.storage.files import whole_file

# Okabe and Ito's colours, told apart by all eyes; a marker for each too
COLOURS = ["#000000", "#999999", "#E69F00", "#56B4E9", "#0072B2", "#CC79A7", "#B8A800", "#009E73"]
COLOURS += ["#4B2E83", "#8C5A2B", "#D55E00"]
MARKERS = ("o", "s", "^", "v", "<", "P", "X", "D", "d", "h", "*")
STYLES = dict(zip(METHODS, zip(COLOURS, MARKERS, strict=True), strict=True))

LOWEST = 0.8
"""Less named kept is not shown."""

IN_A_LINE = 8  # pictures


def save_curves(path: Path, rows: Sequence[Row], x: str) -> None:
    """Plot looks over another measure: a line a method, with a mark for each of its strengths.

    Args:
        rows: of which the finals are shown.
        x: one of `MEASURES`; where more is better, it runs from right to left.
    """
    figure = Figure(figsize=(9, 6), dpi=120, layout="constrained")
    axes, measure = figure.subplots(), MEASURES[x]
    of_methods = curves(rows)
    for method, own in of_methods.items():
        _draw_curve(axes, method, own, x)
    plain = next(iter(of_methods.values()))[0]
    _draw_curve(axes, UNGUIDED, [plain], x)
    if measure.best == "high":
        values = [row.mean(x) or 0.0 for own in of_methods.values() for row in own]
        lowest = max(LOWEST, min(values) - 0.01)
        axes.set_xlim(1.005, lowest)
        hidden = sum(value < lowest for value in values)
        if hidden:
            axes.set_title(f"not shown, to the right: {hidden}", fontsize=9, loc="right")
    axes.set_xlabel(measure.title)
    axes.set_ylabel(MEASURES[LOOKS].title)
    axes.grid(alpha=0.3)
    axes.set_title(
        f"Each mark is a strength of its method; bars are {CONFIDENCE:.0%} intervals",
        fontsize=9,
        loc="left",
    )
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    save_figure(path, figure)


def save_grids(path: Path, strips: Sequence[tuple[str, Mapping[str, list[Image.Image]]]]) -> None:
    """Show images of some prompts, a row a method and a column a prompt.

    Args:
        strips: methods, with the images of the same prompts.
    """
    prompts = list(strips[0][1])
    lines = -(-len(strips[0][1][prompts[0]]) // IN_A_LINE)
    size = (2.0 + 4.2 * len(prompts), (0.55 * lines + 0.1) * len(strips) + 0.4)
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    grid = figure.subplots(len(strips), len(prompts), squeeze=False)
    for line, (method, of_prompts) in zip(grid, strips, strict=True):
        for axes, prompt in zip(line, prompts, strict=True):
            images = of_prompts[prompt]
            axes.imshow(as_sheet(parts(images, IN_A_LINE)), interpolation="lanczos")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
        name = fill(method, 16)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    for axes, prompt in zip(grid[0], prompts, strict=True):
        axes.set_title(shorten(prompt, 60), fontsize=12)
    save_figure(path, figure)


def _draw_curve(axes: Axes, method: str, rows: Sequence[Row], x: str) -> None:
    """A line through the rows with light intervals, and a name at its end."""
    colour, marker = STYLES[method]
    points = [(row.mean(x) or 0.0, row.mean(LOOKS) or 0.0) for row in rows]
    own = points if method == UNGUIDED else points[1:]
    size = 12 if method == OURS else 6
    axes.plot(*zip(*points, strict=True), color=colour, lw=2.4 if method == OURS else 1.2, zorder=2)
    axes.plot(
        *zip(*own, strict=True),
        color=colour,
        marker=marker,
        markersize=size,
        linestyle="none",
        label=method,
        zorder=3,
    )
    for row, (across, up) in zip(rows, points, strict=True):
        faint: dict[str, Any] = {"color": colour, "lw": 1, "alpha": 0.25, "zorder": 1}
        if ends := row.interval(x):
            axes.plot(ends, (up, up), **faint)
        if ends := row.interval(LOOKS):
            axes.plot((across, across), ends, **faint)
    axes.annotate(
        method,
        points[-1],
        xytext=(6, 4),
        textcoords="offset points",
        color=colour,
        fontsize=8,
        annotation_clip=True,
    )


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure in 128 colours, which takes a third of the space."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    few = Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    with whole_file(path) as temporary:
        few.save(temporary, format="PNG", optimize=True)
