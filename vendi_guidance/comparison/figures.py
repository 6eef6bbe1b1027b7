"""The figures of a comparison: each method as a curve over its strength."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vendi_guidance.comparison.entries import FAMILIES, OURS
from vendi_guidance.comparison.study import Compared, Results
from vendi_guidance.evaluation.report.figures import INK, WIDTH, style
from vendi_guidance.tuning.frontier import DIVERSITY, GREY, mark_floor, plot_interval

# distinct in any colour vision, on white and on black, with a marker for each too
COLOURS = ("#d0670f", "#2f81c7", "#2c9a6b", "#b25fc0", "#9a8412", "#c2527d", "#5f8f9b", "#8c6d4f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FILLS = ("full", "none", "left", "top")
"""Of a method's marks at its first settings, its second, ..."""
STYLES = dict(zip(FAMILIES, zip(COLOURS, MARKERS, strict=True), strict=True))


def draw_curves(results: Results) -> dict[str, Figure]:
    """Diversity over faithfulness, and over the network's evaluations, by name."""
    plain = results.unguided.evaluations
    with style():
        kept, cost = (Figure(figsize=(WIDTH, 4), layout="constrained") for _ in range(2))
        of_kept, of_cost = kept.subplots(), cost.subplots()
        mark_floor(of_kept, results.keep, [run.outcome for run in results.runs])
        _plot_curves(of_kept, results, lambda run: run.outcome.kept)
        for run in results.runs[1:]:
            heights = [run.outcome.diversity] * 2
            colour, _ = STYLES[run.entry.family]
            plot_interval(of_kept, run.outcome.kept_interval, heights, colour)
        _plot_curves(of_cost, results, lambda run: run.evaluations / plain)
        of_cost.set_xscale("log", base=2)
        of_cost.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        of_cost.set_xlabel("evaluations of the network, multiple of unguided")
    return {"curves": kept, "costs": cost}


def _plot_curves(axes: Axes, results: Results, across: Callable[[Compared], float]) -> None:
    """A line for each method from the unguided on, with the intervals of diversity."""
    start, drawn = (across(results.unguided), 1.0), list[str]()
    others = results.runs[1:]
    for curve in dict.fromkeys(run.entry.curve for run in others):
        runs = [run for run in others if run.entry.curve == curve]
        family = runs[0].entry.family
        colour, marker = STYLES[family]
        drawn.append(family)
        fill = FILLS[(drawn.count(family) - 1) % len(FILLS)]
        points = [start, *((across(run), run.outcome.diversity) for run in runs)]
        width, size = (2, 8) if family == OURS else (1, 6)
        axes.plot(*zip(*points, strict=True), color=colour, lw=width)
        [marks] = axes.plot(*zip(*points[1:], strict=True), marker, color=colour)
        marks.set(markersize=size, label=curve, fillstyle=fill)
        for run, (x, y) in zip(runs, points[1:], strict=True):
            plot_interval(axes, [x, x], run.outcome.diversity_interval, colour)
            at: Any = {"xy": (x, y), "xytext": (5, 4), "textcoords": "offset points"}
            axes.annotate(f"{run.entry.strength:g}", **at, color=colour, fontsize=8)
    axes.plot(*start, "o", color=GREY, label="unguided")
    axes.set_ylabel(DIVERSITY)
    axes.figure.legend(loc="outside upper center", ncols=2, labelcolor=INK, fontsize=8)
