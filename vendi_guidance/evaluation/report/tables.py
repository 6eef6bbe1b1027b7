"""The tables of a report: scores, in the terminal too, and attributes."""

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from vendi_guidance.evaluation.attribute_diversity import TITLES
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import ComparisonData, ReportData


def score_table(reports: Sequence[ReportData], comparison: ComparisonData | None = None) -> Table:
    """The scores for the terminal, two runs of short names in 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("score", min_width=18)
    for report in reports:
        table.add_column(Text(report.name), justify="right", min_width=14)
    if comparison is not None:
        table.add_column("change", justify="right", min_width=15)
        table.add_column("significant?", min_width=12)
    for title, *cells in score_rows(reports, comparison):
        texts = (Text(text).append(f"\n{ends}" if ends else "", "dim") for text, ends in cells)
        table.add_row(Text(title.text), *texts)
    return table


class Cell(NamedTuple):
    """A cell of the table of scores: its text, and a confidence interval, "" if there is none."""

    text: str
    interval: str = ""


def score_rows(
    reports: Sequence[ReportData], comparison: ComparisonData | None = None
) -> list[list[Cell]]:
    """The table of scores: their titles, each run's, the change and whether it is significant."""
    rows = []
    for name, measure in MEASURES.items():
        scores = [report.scores.get(name) for report in reports]
        if not any(scores):
            continue
        cells = [Cell(measure.title)]
        cells += [
            Cell(measure.format(one.value), measure.format_interval(one.low, one.high))
            if one
            else Cell("–")
            for one in scores
        ]
        found = None if comparison is None else comparison.differences.get(name)
        if found is not None:
            cells.append(Cell(found.format_change(measure), found.format_interval(measure)))
            cells.append(Cell(found.significance(measure)))
        elif comparison is not None:
            cells += [Cell("–"), Cell("–")]
        rows.append(cells)
    return rows


def spread_rows(reports: Sequence[ReportData]) -> list[list[str]]:
    """Of each open attribute, and of looks: how many values a prompt's images show, by run."""
    titles = dict.fromkeys(one.title for report in reports for one in report.spreads)
    rows = []
    for title in titles:
        for report in reports:
            for one in report.spreads:
                if one.title == title:
                    low, high = one.interval or (None, None)
                    ends = "" if low is None else f" ({low:.2f} to {high:.2f})"
                    training = "–" if one.training is None else f"{one.training:.2f}"
                    value = f"{one.value:.2f}{ends}"
                    rows.append([title, report.name, value, training, f"{one.even:.2f}"])
    return rows


def attribute_rows(
    reports: Sequence[ReportData], names: Sequence[str] | None = None
) -> list[list[str]]:
    """The table of attributes: for each its title, then a run's name and means over prompts.

    Args:
        names: of the runs; None is the reports' own.
    """
    of_runs = zip(reports, names or [report.name for report in reports], strict=True)
    found = [(one, name) for report, name in of_runs for one in report.attributes]
    titles = [*dict.fromkeys(one.attribute.title for one, _ in found)]
    rows = []
    for one, name in sorted(found, key=lambda pair: titles.index(pair[0].attribute.title)):
        cells = [one.attribute.title, name]
        for value, low, high in (one.means.get(score, (None,) * 3) for score in TITLES):
            ends = "" if low is None else f" ({low:.0%} to {high:.0%})"
            cells.append("–" if value is None else f"{value:.0%}{ends}")
        rows.append(cells)
    return rows
