"""The tables and figures of a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from scripts.benchmarks.measuring import table
from scripts.comparison.methods import METHODS, OURS, UNGUIDED, Entry
from scripts.comparison.scores import COLUMNS
from scripts.docs import picture
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.report.html import in_words
from vendi_guidance.scores.subsampling import Estimate
from vendi_guidance.storage.files import whole_file

SHOWN, SHOWN_PROMPTS = ("unguided", "default-0.5", "ours-0.5", "ours-1"), 2  # of each kind
MARKERS = "os^DvPX*<"  # nine, as colours are ten: no two methods look alike


class Row(NamedTuple):
    """The scores of an entry, averaged over seeds, and its runs by the kind of prompts."""

    entry: Entry
    scores: dict[str, Estimate]
    runs: Mapping[str, Sequence[Path]]

    @property
    def point(self) -> tuple[float, float]:
        """The share of named details kept, and the looks."""
        return self.scores["named kept"].value, self.scores["looks"].value


class Result(NamedTuple):
    """The comparison of methods on a model: rows of all entries, the unguided one first."""

    title: str
    rows: list[Row]

    @property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """Each method's points, after that of the unguided run."""
        plain, *rows = self.rows
        points = {row.entry.method: [plain.point] for row in rows}
        for row in rows:
            points[row.entry.method].append(row.point)
        return points


def table_of(results: Sequence[Result]) -> str:
    """A table with a row for each model, method and value."""
    cells = []
    for result in results:
        for i, (entry, scores, _) in enumerate(result.rows):
            value = "" if entry.method == UNGUIDED else f"{entry.value:g}"
            own = [in_words(scores.get(title), column.spec) for title, column in COLUMNS.items()]
            cells.append(["" if i else result.title, entry.method, value, *own])
    return table(["model", "method", "value", *COLUMNS], cells, 3)


def save_curves(path: Path, results: Sequence[Result]) -> None:
    """Plot looks against the share of named details kept: a panel for each model, a line for each
    method."""
    figure = Figure(figsize=(3.4 * len(results) + 1.8, 4), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    legend: dict[str, Any] = {}
    for axes, result in zip(panels, results, strict=True):
        for method, curve in result.curves.items():
            kept, looks = zip(*curve, strict=True)
            place, size = [*METHODS].index(method), 10 if method == OURS else 6
            style = f"-C{place % 10}{MARKERS[place % len(MARKERS)]}"
            [line] = axes.plot(kept, looks, style, markersize=size, markevery=slice(1, None))
            legend.setdefault(method, line)
        least = min(row.point[0] for row in result.rows)
        axes.set(title=result.title, xlabel="named kept", xlim=(1.01, least - 0.02))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("looks per open prompt")
    beside: dict[str, Any] = {"loc": "outside right center", "frameon": False, "fontsize": 9}
    figure.legend(legend.values(), legend.keys(), **beside)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def save_dial(path: Path, results: Sequence[Result]) -> None:
    """Plot which share of the Vendi score that `diversity` 1 adds each value of it adds: a line for
    each model and method with this dial."""
    figure = Figure(figsize=(5.5, 3.6), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], ":", color="grey")
    for title, [plain, *rows] in results:
        begin = plain.scores["Vendi"].value
        for method in dict.fromkeys(row.entry.method for row in rows):
            own = {row.entry.value: row for row in rows if row.entry.method == method}
            if METHODS[method].setting != "diversity" or 1.0 not in own:
                continue
            added = [row.scores["Vendi"].value - begin for row in own.values()]
            name = title.split(",")[0] + (f", {method}" if method != OURS else "")
            axes.plot([0, *own], [0, *(it / (added[-1] or 1) for it in added)], "o-", label=name)
    axes.set(xlabel="diversity", ylabel="share of the Vendi score that 1 adds")
    axes.grid(alpha=0.3)
    if len(axes.lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def save_grid(path: Path, result: Result) -> None:
    """Save images of some prompts: unguided, by the default, and by ours at 0.5 and 1."""
    rows = [row for row in result.rows if row.entry.name in SHOWN]
    shown = [
        (kind, prompt)
        for kind, [run, *_] in rows[0].runs.items()
        for prompt in [*dict.fromkeys(as_batch(run).prompts or [])][:SHOWN_PROMPTS]
    ]
    strips = [[picture.strip(row.runs[kind][0], prompt) for kind, prompt in shown] for row in rows]
    titles = [row.entry.name.replace("-", " ") for row in rows]
    picture.save_grid(path, strips, [prompt for _, prompt in shown], titles, width=15)
