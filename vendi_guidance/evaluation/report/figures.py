"""The figures of a report, for one run or for two side by side."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from textwrap import shorten
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.scores.intervals import Convergence

WIDTH = 4.8  # inches
PANELS = {"conditional_vendi": "images", "vendi": "images", "within_prompt": "images of a prompt"}
"""Each convergence curve, and the label of its horizontal axis."""
COLOURS = ("#2f81c7", "#d0670f")  # distinct to colour-blind readers, on white and on black
INK = "#010203"  # stands for the page's text colour, which follows the reader's colour scheme

STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    "font.size": 10,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}


def convergence_figure(
    curves: Sequence[Mapping[str, Convergence]], runs: Sequence[str]
) -> Figure | None:
    """The convergence curves of all runs, which have these names; None if they have none."""
    names = [name for name in PANELS if any(name in run for run in curves)]
    if not names:
        return None
    with style():
        figure = Figure(figsize=(WIDTH, 0.6 + 2 * len(names)), layout="constrained")
        panels = figure.subplots(len(names), 1, squeeze=False)[:, 0]
        for axes, name in zip(panels, names, strict=True):
            for run, colour in zip(curves, COLOURS, strict=False):
                axes.set_prop_cycle(color=[colour])
                if name in run:
                    run[name].plot(axes)
            title = MEASURES.get(name, MEASURES["vendi"]).title
            axes.set(xlabel=PANELS[name], ylabel=title, ylim=(0, None))
        _name_runs(panels[0], runs)
    return figure


def as_svg(figure: Figure) -> str:
    """A figure as an <svg> element that takes the colour of the surrounding text."""
    file = StringIO()
    with style(), mpl.rc_context({"svg.hashsalt": "convergence"}):  # the same ids each time
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight")
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)


@contextmanager
def style() -> Iterator[None]:
    """Context with the style of all figures, independent of the user's matplotlib settings."""
    with mpl.style.context(["default", STYLE]), warnings.catch_warnings():
        # prompts may be in any script, and the page uses the reader's own fonts
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        yield


def _name_runs(axes: Axes, runs: Sequence[str]) -> None:
    """Print the names of two runs in their colours above the axes."""
    if len(runs) == 2:
        style: dict[str, Any] = {"transform": axes.transAxes, "weight": "bold", "parse_math": False}
        for x, (run, side) in enumerate(zip(runs, ("left", "right"), strict=True)):
            printable = "".join(c if c.isprintable() else " " for c in run)
            name = shorten(printable, 24, placeholder="…") or printable[:23] + "…"  # one long word
            axes.text(x, 1.03, name, color=COLOURS[x], ha=side, **style)
