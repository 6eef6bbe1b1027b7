"""The picture of a search: what was tried, how diverse and how faithful it is."""

from pathlib import Path

from matplotlib.figure import Figure

from vendi_guidance.evaluation.report.figures import COLOURS, save_png, style
from vendi_guidance.tuning.study import Search, Tried

GREY = "#808080"


def save_frontier(path: Path, search: Search, tried: list[Tried]) -> None:
    """Draw all trials as faithfulness kept against diversity gained, with their intervals."""
    best = search.best(tried)
    with style():
        figure = Figure(figsize=(6.4, 4.2))
        axes = figure.add_subplot()
        axes.axvspan(0, search.keep, color=GREY, alpha=0.12, lw=0)
        axes.axvline(search.keep, color=GREY, lw=1, ls="--")
        axes.plot([1], [1], "o", color=GREY)
        axes.annotate("unguided", (1, 1), (4, 6), textcoords="offset points", color=GREY)
        for one in tried:
            found, colour = one.outcome, COLOURS[one is best]
            for interval, across in (
                (found.kept_interval, True),
                (found.diversity_interval, False),
            ):
                if interval is not None:
                    low, high = interval
                    ends = ([low, high], [found.diversity] * 2)
                    axes.plot(
                        *(ends if across else ([found.kept] * 2, [low, high])),
                        color=colour,
                        lw=1,
                        alpha=0.4,
                    )
            axes.plot([found.kept], [found.diversity], "*" if one is best else "o", color=colour)
            axes.annotate(
                f"{one.settings['strength']:.2g}",
                (found.kept, found.diversity),
                (4, 4),
                textcoords="offset points",
                color=colour,
            )
        shares = [1.0, search.keep, *(one.outcome.kept for one in tried)]
        axes.set_xlim(min(shares) - 0.03, max(shares) + 0.03)
        axes.set_xlabel(f"faithfulness, share of unguided (floor {search.keep:g})")
        axes.set_ylabel("Conditional-Vendi, multiple of unguided")
        axes.set_title("Each point is a strength that was tried", loc="left")
        save_png(figure, path)
