"""The figures of a comparison: each method as a curve over its strength."""

from collections.abc import Callable, Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vendi_guidance.comparison.entries import FAMILIES, OURS
from vendi_guidance.comparison.study import Compared, Results
from vendi_guidance.evaluation.report.figures import INK, WIDTH, style

# distinct in any colour vision, on white and on black, with a marker for each too
COLOURS = ("#d0670f", "#2f81c7", "#2c9a6b", "#b25fc0", "#9a8412", "#c2527d", "#5f8f9b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES = dict(zip(FAMILIES, zip(COLOURS, MARKERS, strict=True), strict=True))
GREY = "#808080"


def draw_curves(results: Results) -> dict[str, Figure]:
    """Diversity over faithfulness, and over the network's evaluations, by name."""
    plain = results.unguided.evaluations
    with style():
        kept, of_kept = _panel()
        of_kept.axvspan(0, results.keep, color=GREY, alpha=0.12, lw=0)
        of_kept.axvline(results.keep, color=GREY, lw=1, ls="--")
        _draw(of_kept, results, lambda run: run.outcome.kept)
        for run in results.runs[1:]:
            if (ends := run.outcome.kept_interval) is not None:
                colour, _ = STYLES[run.entry.family]
                of_kept.plot(ends, [run.outcome.diversity] * 2, color=colour, lw=1, alpha=0.4)
        shares = [1.0, results.keep, *(run.outcome.kept for run in results.runs)]
        of_kept.set_xlim(min(shares) - 0.03, max(shares) + 0.03)
        of_kept.set_xlabel(f"faithfulness, share of unguided (floor {results.keep:g})")
        cost, of_cost = _panel()
        _draw(of_cost, results, lambda run: run.evaluations / plain)
        of_cost.set_xscale("log", base=2)
        of_cost.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        of_cost.set_xlabel("evaluations of the network, multiple of unguided")
    return {"curves": kept, "costs": cost}


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel("Conditional-Vendi, multiple of unguided")
    return figure, axes


def _draw(axes: Axes, results: Results, across: Callable[[Compared], float]) -> None:
    """A line for each method from the unguided on, with the intervals of diversity."""
    start = (across(results.unguided), 1.0)
    for family, runs in _families(results):
        colour, marker = STYLES[family]
        points = [start, *((across(run), run.outcome.diversity) for run in runs)]
        axes.plot(*zip(*points, strict=True), color=colour, lw=2 if family == OURS else 1)
        axes.plot(
            *zip(*points[1:], strict=True),
            marker,
            color=colour,
            markersize=8 if family == OURS else 6,
            label=FAMILIES[family].title,
        )
        for run, (x, y) in zip(runs, points[1:], strict=True):
            if run.outcome.diversity_interval is not None:
                axes.plot([x, x], run.outcome.diversity_interval, color=colour, lw=1, alpha=0.4)
            axes.annotate(
                f"{run.entry.strength:g}",
                (x, y),
                (5, 4),
                textcoords="offset points",
                color=colour,
                fontsize=8,
            )
    axes.plot(*start, "o", color=GREY, label="unguided")
    figure = axes.figure
    figure.legend(loc="outside upper center", ncols=2, labelcolor=INK, fontsize=8)


def _families(results: Results) -> Iterator[tuple[str, list[Compared]]]:
    for family in FAMILIES:
        runs = [run for run in results.runs if run.entry.family == family]
        if runs:
            yield family, runs
