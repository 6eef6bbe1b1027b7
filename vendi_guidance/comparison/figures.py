"""The figures of a comparison, with a curve over the strength for each method."""

from collections.abc import Callable, Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vendi_guidance.comparison.entries import FAMILIES, OURS
from vendi_guidance.comparison.study import Compared, Results
from vendi_guidance.evaluation.judging import Outcome
from vendi_guidance.evaluation.report.figures import INK, WIDTH, style

GREY = "#808080"
DIVERSITY = "Conditional-Vendi, multiple of unguided"

# Distinguishable with color vision deficiencies, on white and on black; markers differ as well.
COLOURS = ("#d0670f", "#2f81c7", "#2c9a6b", "#b25fc0", "#9a8412", "#c2527d", "#5f8f9b", "#8c6d4f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FILLS = ("full", "none", "left", "top")
"""Marker fill styles of a method's curves, one for each choice of other settings."""
STYLES = dict(zip(FAMILIES, zip(COLOURS, MARKERS, strict=True), strict=True))


def draw_curves(results: Results) -> dict[str, Figure]:
    """Plot diversity over faithfulness ("curves") and over the network's evaluations ("costs")."""
    unguided = results.unguided.evaluations
    with style():
        curves, costs = (Figure(figsize=(WIDTH, 4), layout="constrained") for _ in range(2))
        axes = curves.subplots()
        mark_floor(axes, results.keep, [run.outcome for run in results.runs])
        _plot_curves(axes, results, lambda run: run.outcome.kept)
        for run in results.runs[1:]:
            heights = [run.outcome.diversity] * 2
            colour, _ = STYLES[run.entry.family]
            plot_interval(axes, run.outcome.kept_interval, heights, colour)
        axes = costs.subplots()
        _plot_curves(axes, results, lambda run: run.evaluations / unguided)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("evaluations of the network, multiple of unguided")
    return {"curves": curves, "costs": costs}


def _plot_curves(axes: Axes, results: Results, x_of: Callable[[Compared], float]) -> None:
    """Plot a line from the unguided run for each method, with intervals of the diversity."""
    start, plotted = (x_of(results.unguided), 1.0), list[str]()
    others = results.runs[1:]
    for curve in dict.fromkeys(run.entry.curve for run in others):
        runs = [run for run in others if run.entry.curve == curve]
        family = runs[0].entry.family
        colour, marker = STYLES[family]
        fill = FILLS[plotted.count(family) % len(FILLS)]
        plotted.append(family)
        points = [(x_of(run), run.outcome.diversity) for run in runs]
        width, size = (2, 8) if family == OURS else (1, 6)
        axes.plot(*zip(start, *points, strict=True), color=colour, lw=width)
        [marks] = axes.plot(*zip(*points, strict=True), marker, color=colour)
        marks.set(markersize=size, label=curve, fillstyle=fill)
        for run, (x, y) in zip(runs, points, strict=True):
            plot_interval(axes, [x, x], run.outcome.diversity_interval, colour)
            at: Any = {"xy": (x, y), "xytext": (5, 4), "textcoords": "offset points"}
            axes.annotate(f"{run.entry.strength:g}", **at, color=colour, fontsize=8)
    axes.plot(*start, "o", color=GREY, label="unguided")
    axes.set_ylabel(DIVERSITY)
    axes.figure.legend(loc="outside upper center", ncols=2, labelcolor=INK, fontsize=8)


def mark_floor(axes: Axes, keep: float, outcomes: Iterable[Outcome]) -> None:
    """Label the horizontal axis, faithfulness, and shade it below `keep`."""
    axes.axvspan(0, keep, color=GREY, alpha=0.12, lw=0)
    axes.axvline(keep, color=GREY, lw=1, ls="--")
    shares = [1.0, keep, *(outcome.kept for outcome in outcomes)]
    axes.set_xlim(min(shares) - 0.03, max(shares) + 0.03)
    axes.set_xlabel(f"faithfulness, share of unguided (floor {keep:g})")


def plot_interval(
    axes: Axes, xs: Iterable[float] | None, ys: Iterable[float] | None, colour: str
) -> None:
    """Plot an interval as a thin line, unless it is None."""
    if xs is not None and ys is not None:
        axes.plot([*xs], [*ys], color=colour, lw=1, alpha=0.4)
