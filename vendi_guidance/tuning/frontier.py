"""The figure of a search, and what every figure of diversity over faithfulness shows."""

from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vendi_guidance.evaluation.judging import Outcome
from vendi_guidance.evaluation.report.figures import COLOURS, save_png, style
from vendi_guidance.tuning.study import Search, Trial

GREY = "#808080"
DIVERSITY = "Conditional-Vendi, multiple of unguided"


def save_frontier(path: Path, search: Search, trials: list[Trial]) -> None:
    """Plot all trials as faithfulness kept against diversity gained, with their intervals."""
    best = search.best(trials)
    with style():
        figure = Figure(figsize=(6.4, 4.2))
        axes = figure.add_subplot()
        mark_floor(axes, search.keep, [one.outcome for one in trials])
        axes.plot([1], [1], "o", color=GREY)
        axes.annotate("unguided", (1, 1), (4, 6), textcoords="offset points", color=GREY)
        for one in trials:
            found, colour = one.outcome, COLOURS[one is best]
            plot_interval(axes, found.kept_interval, [found.diversity] * 2, colour)
            plot_interval(axes, [found.kept] * 2, found.diversity_interval, colour)
            point = (found.kept, found.diversity)
            axes.plot(*point, "*" if one is best else "o", color=colour)
            axes.annotate(
                f"{one.strength:.2g}", point, (4, 4), textcoords="offset points", color=colour
            )
        axes.set_ylabel(DIVERSITY)
        axes.set_title("Each point is a strength that was tried", loc="left")
        save_png(figure, path)


def mark_floor(axes: Axes, keep: float, outcomes: Iterable[Outcome]) -> None:
    """Shade what keeps less than `keep` of the unguided faithfulness, the horizontal axis."""
    axes.axvspan(0, keep, color=GREY, alpha=0.12, lw=0)
    axes.axvline(keep, color=GREY, lw=1, ls="--")
    shares = [1.0, keep, *(one.kept for one in outcomes)]
    axes.set_xlim(min(shares) - 0.03, max(shares) + 0.03)
    axes.set_xlabel(f"faithfulness, share of unguided (floor {keep:g})")


def plot_interval(
    axes: Axes, xs: Iterable[float] | None, ys: Iterable[float] | None, colour: str
) -> None:
    """Plot a thin line, unless one of its ends is unknown."""
    if xs is not None and ys is not None:
        axes.plot([*xs], [*ys], color=colour, lw=1, alpha=0.4)
