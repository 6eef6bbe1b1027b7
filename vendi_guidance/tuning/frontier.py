"""The figure of a search, and the parts that all figures of diversity over faithfulness share."""

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
    """Plot diversity over faithfulness for all trials, with 95% confidence intervals."""
    best = search.best(trials)
    with style():
        figure = Figure(figsize=(6.4, 4.2))
        axes = figure.add_subplot()
        mark_floor(axes, search.keep, [trial.outcome for trial in trials])
        axes.plot([1], [1], "o", color=GREY)
        axes.annotate("unguided", (1, 1), (4, 6), textcoords="offset points", color=GREY)
        for trial in trials:
            outcome, colour = trial.outcome, COLOURS[trial is best]
            plot_interval(axes, outcome.kept_interval, [outcome.diversity] * 2, colour)
            plot_interval(axes, [outcome.kept] * 2, outcome.diversity_interval, colour)
            point = (outcome.kept, outcome.diversity)
            axes.plot(*point, "*" if trial is best else "o", color=colour)
            axes.annotate(
                f"{trial.strength:.2g}", point, (4, 4), textcoords="offset points", color=colour
            )
        axes.set_ylabel(DIVERSITY)
        axes.set_title("Each point is a strength that was tried", loc="left")
        save_png(figure, path)


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
