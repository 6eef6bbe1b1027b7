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

from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import ReportData
from vendi_guidance.storage.files import whole_file

WIDTH = 4.8  # inches
COLOURS = ("#2f81c7", "#d0670f")
"""Of the first and the second run: distinct in any colour vision, on white and on black."""

INK = "#010203"
"""A placeholder for the text colour of the page, which depends on the reader's settings."""

HEAT_UP_TO = 400  # rows of a heat map

STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    "font.size": 10,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}


def draw_figures(reports: Sequence[ReportData]) -> dict[str, Figure]:
    """The figures by the name of their file without its suffix."""
    with style():
        drawn = {
            "decomposition": _decomposition(reports),
            "convergence": _convergence(reports),
            "spectrum": _spectrum(reports),
        }
        drawn |= {f"similarities-{i}": _heat_map(report) for i, report in enumerate(reports, 1)}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all."""
    with style(), whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160, facecolor="white", bbox_inches="tight")


def as_svg(figure: Figure, name: str) -> str:
    """A figure as an <svg> element in the colour of the text around it."""
    written = StringIO()
    with style(), mpl.rc_context({"svg.hashsalt": name}):  # ids that no other figure has
        figure.savefig(written, format="svg", transparent=True, bbox_inches="tight")
    text = written.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


@contextmanager
def style() -> Iterator[None]:
    """The style of all figures, as a context."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # prompts may be in any script; the page has the reader's own fonts
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        yield


def _decomposition(reports: Sequence[ReportData]) -> Figure | None:
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
    name_rows(axes, range(len(reports)), [one_line(report.name, 16) for report in reports])
    axes.invert_yaxis()
    axes.set_ylim(len(reports) - 0.6, -0.65)
    axes.set_xlabel("entropy of the images, nats")
    return figure


def _convergence(reports: Sequence[ReportData]) -> Figure | None:
    curves = [report.analysis.convergence for report in reports]
    names = [name for name in ("conditional_vendi", "vendi") if any(name in of for of in curves)]
    if not names:
        return None
    figure = Figure(figsize=(WIDTH, 0.6 + 2 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        for of, colour in zip(curves, COLOURS, strict=False):
            axes.set_prop_cycle(color=[colour])
            if name in of:
                of[name].plot(axes)
        axes.set_ylabel(MEASURES[name].title)
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("images")
    _name_runs(panels[0], reports)
    return figure


def _spectrum(reports: Sequence[ReportData]) -> Figure:
    figure = Figure(figsize=(WIDTH, 3), layout="constrained")
    axes = figure.subplots()
    for place, report in enumerate(reports):
        for name, dashes in (("pictures", "-"), ("joint", "--"), ("prompts", ":")):
            values = report.analysis.spectra.get(name, [])
            [line] = axes.plot(range(1, len(values) + 1), values, dashes, color=COLOURS[place])
            line.set(marker="o" if len(values) == 1 else "", label=None if place else name)
    axes.set(xscale="log", yscale="log", xlabel="rank", ylabel="eigenvalue")
    if "joint" in reports[0].analysis.spectra:
        axes.legend(loc="lower left", labelcolor=INK, fontsize=9)
    _name_runs(axes, reports)
    return figure


def _heat_map(report: ReportData) -> Figure:
    """Similarities of images in order of their prompts, evenly spread where there are many."""
    k = report.analysis.similarities
    kept = torch.linspace(0, len(k) - 1, min(len(k), HEAT_UP_TO)).round().long()
    figure = Figure(figsize=(WIDTH, WIDTH * 0.8), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(k[kept][:, kept].numpy(), vmin=0, vmax=1, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("similarity")
    bar.outline.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])
    labels = report.inputs.groups
    if labels is not None:
        shown = [labels[report.analysis.rows[i]] for i in kept.tolist()]
        starts = [i for i in range(len(shown)) if i == 0 or shown[i] != shown[i - 1]]
        if 1 < len(starts) <= 16:  # for more names there is no room
            ends = [*starts[1:], len(shown)]
            middles = [(a + b - 1) / 2 for a, b in zip(starts, ends, strict=True)]
            name_rows(axes, middles, [one_line(str(shown[i]), 22) for i in starts], fontsize=8)
            axes.tick_params(length=0)
    return figure


def name_rows(axes: Axes, ticks: Sequence[float], names: Sequence[str], **style: Any) -> None:
    """Label the vertical axis with names, which may hold signs of mathematics."""
    axes.set_yticks(ticks, names, **style)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)


def _name_runs(axes: Axes, reports: Sequence[ReportData]) -> None:
    """The runs' names in their colours, above the axes."""
    if len(reports) == 2:
        style: dict[str, Any] = {"transform": axes.transAxes, "weight": "bold", "parse_math": False}
        for x, (report, side) in enumerate(zip(reports, ("left", "right"), strict=True)):
            axes.text(x, 1.03, one_line(report.name, 24), color=COLOURS[x], ha=side, **style)


def one_line(text: str, width: int) -> str:
    """Text in one line of at most `width` characters."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return shorten(printable, width, placeholder="…") or printable[: width - 1] + "…"
