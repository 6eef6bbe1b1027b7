"""The tables of a report: scores for the terminal, and attributes for the page."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from vendi_guidance.evaluation.attributes import AttributeScores, change
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.scores.subsampling import Estimate

if TYPE_CHECKING:
    from vendi_guidance.evaluation.results import Comparison, Report

NOTHING = ("–", "")
ATTRIBUTE_TITLES = ("effective values", "change", "training images", "even draws", "named kept")


def score_table(reports: Sequence["Report"], comparison: "Comparison | None" = None) -> Table:
    """The scores as a table for the terminal; two runs fit into 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("score", width=None if comparison is None else 18)
    for report in reports:
        table.add_column(Text(report.name), justify="right")
    if comparison is not None:
        table.add_column("change", justify="right")
        table.add_column("significant?", no_wrap=True)
    for name, measure in MEASURES.items():
        scores = [report.scores.get(name) for report in reports]
        if not any(scores):
            continue
        cells = [
            (measure.format(s.value), measure.format_interval(s.low, s.high)) if s else NOTHING
            for s in scores
        ]
        if comparison is not None:
            found = comparison.differences.get(name)
            if found is None:
                cells += [NOTHING] * 2
            else:
                cells.append((found.format_change(measure), found.format_interval(measure)))
                cells.append((found.significance(measure), ""))
        texts = (Text(text).append(f"\n{ends}" if ends else "", "dim") for text, ends in cells)
        table.add_row(Text(measure.title), *texts)
    return table


def attribute_rows(reports: Sequence["Report"]) -> list[list[str]]:
    """The rows of the table of attributes: title, run, and the `ATTRIBUTE_TITLES`."""
    rows: dict[str, list[list[str]]] = {}
    firsts: dict[str, AttributeScores] = {}
    for report in reports:
        for one in report.attributes:
            title, kept = one.attribute.name, in_words(one.named_kept, ".0%")
            first, ratio = firsts.setdefault(title, one), None
            if first is not one:
                ratio = change(first, one)
            changed = "" if ratio is None else f"×{in_words(ratio, '.2f')}"
            draws = ["–" if mean is None else f"{mean:.2f}" for mean in (one.training, one.even)]
            effective = in_words(one.effective_values, ".2f")
            row = [title, report.name, effective, changed, *draws, kept]
            rows.setdefault(title, []).append(row)
    return list(chain(*rows.values()))


def in_words(found: Estimate | None, form: str) -> str:
    """A score and its interval, if it has one: "0.95 (0.90 to 0.99)"."""
    if found is None:
        return "–"
    value, low, high = found
    return f"{value:{form}}" + ("" if low is None else f" ({low:{form}} to {high:{form}})")
