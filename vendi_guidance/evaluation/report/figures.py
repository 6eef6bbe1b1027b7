"""The figures of a report, for one run or for two side by side."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from math import log
from pathlib import Path
from textwrap import shorten
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vendi_guidance.evaluation.evaluator import Report
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.storage.files import whole_file

WIDTH = 4.8  # inches
COLOURS = ("#2f81c7", "#d0670f")
"""Of the first and the second run: told apart in any colour vision, on white and on black."""

INK = "#010203"
"""Stands for the colour of the page's text, which is not known before the page is shown."""

HEAT_UP_TO = 400
"""A heat map has so many rows at most."""

NAMED_GROUPS = 16
"""With more groups than this, a heat map has no room for their names."""

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}


def draw_figures(reports: Sequence[Report]) -> dict[str, Figure]:
    """All figures that there is something for, by the name of their file without its ending."""
    with style():
        drawn = {
            "decomposition": _decomposition(reports),
            "convergence": _convergence(reports),
            "spectrum": _spectrum(reports),
        }
        for number, report in enumerate(reports, start=1):
            drawn[f"similarities-{number}"] = _heat_map(report)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all."""
    with style(), whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160, facecolor="white", bbox_inches="tight")


def as_svg(figure: Figure, name: str) -> str:
    """A figure as an <svg> element that takes on the colour of the text around it."""
    written = StringIO()
    with style(), mpl.rc_context({"svg.hashsalt": name}):  # ids that no other figure has
        figure.savefig(
            written, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None}
        )
    text = written.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


@contextmanager
def style() -> Iterator[None]:
    """How all figures are drawn."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # prompts may be in any script; the page has the reader's own fonts
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        yield


def _decomposition(reports: Sequence[Report]) -> Figure | None:
    """H(X) = H(X|T) + I(X;T), a bar for each run."""
    names = ("conditional_vendi", "information_vendi")
    if not all(name in report.scores for report in reports for name in names):
        return None
    figure = Figure(figsize=(WIDTH, 0.9 + 0.75 * len(reports)), layout="constrained")
    axes = figure.subplots()
    for place, report in enumerate(reports):
        start = 0.0
        for name, alpha, word in zip(names, (1.0, 0.4), ("the model", "prompts"), strict=True):
            length = log(report.scores[name].value)
            axes.barh(place, length, left=start, color=COLOURS[place], alpha=alpha, height=0.5)
            side, x = ("right", start + length) if start else ("left", 0)
            axes.text(x, place - 0.42, f"{word} {length:.2f}", ha=side, va="center", fontsize=9)
            start += length
    axes.set_yticks(range(len(reports)), [one_line(report.name, 16) for report in reports])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.invert_yaxis()
    axes.set_ylim(len(reports) - 0.6, -0.65)
    axes.set_xlabel("entropy of the pictures, nats")
    return figure


def _convergence(reports: Sequence[Report]) -> Figure | None:
    names = [
        name
        for name in ("conditional_vendi", "vendi")
        if any(name in report.analysis.convergence for report in reports)
    ]
    if not names:
        return None
    figure = Figure(figsize=(WIDTH, 0.6 + 2 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        for place, report in enumerate(reports):
            if name in report.analysis.convergence:
                curve = report.analysis.convergence[name]
                axes.plot(curve.sizes, curve.mean, color=COLOURS[place])
                axes.fill_between(
                    curve.sizes,
                    curve.low,
                    curve.high,
                    color=COLOURS[place],
                    alpha=0.25,
                    linewidth=0,
                )
        axes.set_ylabel(MEASURES[name].title)
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("pictures")
    _name_runs(panels[0], reports)
    return figure


def _spectrum(reports: Sequence[Report]) -> Figure:
    figure = Figure(figsize=(WIDTH, 3), layout="constrained")
    axes = figure.subplots()
    for place, report in enumerate(reports):
        for name, dashes in (("pictures", "-"), ("joint", "--"), ("prompts", ":")):
            values = report.analysis.spectra.get(name, [])
            marker = "o" if len(values) == 1 else ""
            axes.plot(
                range(1, len(values) + 1),
                values,
                dashes,
                marker=marker,
                color=COLOURS[place],
                label=None if place else name,
            )
    axes.set(xscale="log", yscale="log", xlabel="rank", ylabel="eigenvalue")
    if "joint" in reports[0].analysis.spectra:
        axes.legend(loc="lower left", labelcolor=INK, fontsize=9)
    _name_runs(axes, reports)
    return figure


def _heat_map(report: Report) -> Figure:
    """Similarities of pictures in order of their prompts, evenly spread where there are many."""
    k = report.analysis.similarities
    kept = torch.linspace(0, len(k) - 1, min(len(k), HEAT_UP_TO)).round().long()
    figure = Figure(figsize=(WIDTH, WIDTH * 0.8), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        k[kept][:, kept].numpy(),
        vmin=0,
        vmax=1,
        cmap="viridis",
        interpolation="nearest",
        aspect="equal",
    )
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("similarity")
    bar.outline.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])
    labels = report.inputs.groups
    if labels is not None:
        shown = [labels[report.analysis.rows[i]] for i in kept.tolist()]
        starts = [i for i in range(len(shown)) if i == 0 or shown[i] != shown[i - 1]]
        if 1 < len(starts) <= NAMED_GROUPS:
            middles = [
                (a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(shown)], strict=True)
            ]
            axes.set_yticks(middles, [one_line(str(shown[i]), 22) for i in starts], fontsize=8)
            axes.tick_params(length=0)
            for label in axes.get_yticklabels():
                label.set_parse_math(False)
    return figure


def _name_runs(axes: Axes, reports: Sequence[Report]) -> None:
    """The runs' names in their colours, above the axes."""
    if len(reports) == 2:
        for report, colour, x, side in zip(
            reports, COLOURS, (0, 1), ("left", "right"), strict=True
        ):
            axes.text(
                x,
                1.03,
                one_line(report.name, 24),
                color=colour,
                ha=side,
                transform=axes.transAxes,
                weight="bold",
                parse_math=False,
            )


def one_line(text: str, width: int) -> str:
    """Text in one line of so many characters."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return shorten(printable, width, placeholder="…") or printable[: width - 1] + "…"
