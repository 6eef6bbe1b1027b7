"""The comparison's figures: diversity against fidelity, and images of each method."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill, shorten

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from scripts.comparison.cache import as_sheet
from scripts.comparison.candidates import METHODS
from scripts.comparison.results import MOST_LOSS, Row, finals_by_kind
from scripts.comparison.scorer import MEASURES
from scripts.comparison.trials import parts
from vendi_guidance.storage.files import whole_file

# Okabe and Ito's colours, told apart by all eyes; a marker for each too
COLOURS = ["#000000", "#999999", "#E69F00", "#56B4E9", "#CC79A7", "#B8A800", "#009E73", "#0072B2"]
COLOURS.append("#D55E00")
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "<", "*")
STYLES = dict(zip(METHODS, zip(COLOURS, MARKERS, strict=True), strict=True))

LOWEST, ROOM = 0.9, 0.01
"""Settings with less fidelity than the first are not shown, finals always; the second is the
margin below."""

IN_A_LINE = 8  # pictures


def save_pareto(path: Path, rows: Sequence[Row], diversity: str) -> None:
    """Plot fidelity over a measure of diversity: settings of the sweep as faint marks, a line
    through each method's Pareto front, and the final as a large mark. The dashed line is the
    fidelity that may be lost.

    Args:
        rows: of the sweep and of the finals.
        diversity: one of `MEASURES`.
    """
    figure = Figure(figsize=(9, 5.6), dpi=120, layout="constrained")
    axes, measure = figure.subplots(), MEASURES[diversity]
    finals = next(iter(finals_by_kind(rows).values()))
    _draw_sweeps(axes, [row for row in rows if row.stage == "sweep"], diversity)
    for row in finals:
        colour, marker = STYLES[row.method]
        axes.errorbar(
            *_point(row, diversity),
            xerr=row.half_width(diversity),
            yerr=row.half_width("fidelity"),
            color=colour,
            marker=marker,
            markersize=16 if marker == "*" else 11,
            markeredgecolor="black",
            linestyle="none",
            elinewidth=1,
            label=f"{row.method}  {row.mean(diversity) or 0:{measure.form}}",
            zorder=3,
        )
    axes.axhline(
        _point(finals[0], diversity)[1] - MOST_LOSS, color="black", lw=1, ls="--", zorder=0
    )
    fidelities = [_point(row, diversity)[1] for row in rows]
    of_finals = [value for row in finals for value in row.known("fidelity")]
    lowest = min(max(LOWEST, min(fidelities)), *of_finals) - ROOM
    hidden = sum(value < lowest for value in fidelities)
    axes.set_ylim(lowest, 1 + (1 - lowest) / 20)
    if measure.best == "low":
        axes.invert_xaxis()
    axes.set_xlabel(f"{measure.title} (more variety to the right)")
    axes.set_ylabel("prompt fidelity")
    axes.grid(alpha=0.3)
    below = f"; {hidden} lie below" if hidden else ""
    axes.set_title(
        "Large, with its number: each method's best setting, on the reported prompts. "
        f"Small: its sweep, on the tuning prompts{below}.\n"
        f"Dashed: {MOST_LOSS:g} of fidelity less than the unguided.",
        fontsize=9,
        loc="left",
    )
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    _save(path, figure)


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
    _save(path, figure)


def front(points: Sequence[tuple[float, float]], most: bool) -> list[tuple[float, float]]:
    """The Pareto front of points (x, y), in the order of x.

    Args:
        most: whether more of x is better, rather than less; of y, more always is.
    """
    sign = 1 if most else -1
    kept: list[tuple[float, float]] = []
    for x, y in sorted(set(points), key=lambda point: (-sign * point[0], -point[1])):
        if not kept or y > kept[-1][1]:
            kept.append((x, y))
    return sorted(kept)


def _draw_sweeps(axes: Axes, rows: Sequence[Row], diversity: str) -> None:
    for method, (colour, marker) in STYLES.items():
        points = [_point(row, diversity) for row in rows if row.method == method]
        if not points:
            continue
        best = front(points, MEASURES[diversity].best == "high")
        for some, line, alpha in ((points, "none", 0.5), (best, "solid", 1.0)):
            x, y = zip(*some, strict=True)
            axes.plot(x, y, color=colour, marker=marker, markersize=4, linestyle=line, alpha=alpha)


def _point(row: Row, diversity: str) -> tuple[float, float]:
    """The coordinates of a row; 0 where undefined."""
    return row.mean(diversity) or 0.0, row.mean("fidelity") or 0.0


def _save(path: Path, figure: Figure) -> None:
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")
