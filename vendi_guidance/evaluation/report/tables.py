"""The tables of a report, in the terminal and as Markdown: scores, attributes, a protocol's."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from vendi_guidance.evaluation.attribute_diversity import TITLES
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.protocols import ProtocolTable
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


def as_markdown(
    reports: Sequence[ReportData], comparison: ComparisonData | None, figures: Sequence[str]
) -> str:
    """The table, what each score depends on, and the figures, as Markdown."""
    head = ["score", *(report.name for report in reports)]
    head += ["change", "significant?"] if comparison else []
    lines = ["# " + cell(" and ".join(report.name for report in reports)), ""]
    lines += [cell(comparison.verdict()), ""] if comparison else []
    for one in reports:
        lines += [f"* {cell(one.name)}: {cell(note)}" for note in one.notes]
    lines += [""] if any(one.notes for one in reports) else []
    lines += [row(head), "|---" * len(head) + "|"]
    for cells in score_rows(reports, comparison):
        lines.append(row(f"{text} ({ends})" if ends else text for text, ends in cells))
    lines += _attribute_lines(reports)
    lines += ["", "In brackets: 95% confidence intervals. What each score depends on:", ""]
    for report in reports:
        lines += [
            f"* {cell(report.name)}, {MEASURES[name].title}: {cell(score.basis)}"
            for name, score in report.scores.items()
        ]
    lines += ["", *(f"![{name}]({name}.png)" for name in figures), ""]
    return "\n".join(lines)


def _attribute_lines(reports: Sequence[ReportData]) -> list[str]:
    rows = attribute_rows(reports)
    if not rows:
        return []
    lines = ["", row(["attribute", "run", *TITLES.values()]), "|---" * (len(TITLES) + 2) + "|"]
    lines += map(row, rows)
    if any(report.spreads for report in reports):
        heads = ("open attribute", "run", "effective values", "training images", "even draws")
        lines += ["", row(heads), "|---" * len(heads) + "|", *map(row, spread_rows(reports))]
    return lines + [text for line in calibration_lines(reports) for text in ("", cell(line))]


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


def calibration_lines(reports: Sequence[ReportData]) -> list[str]:
    """How well the judges agree with the labels that they were calibrated by: a line for each
    attribute, which all runs share."""
    lines = {}
    for report in reports:
        for one in report.attributes:
            if (found := one.calibration) is not None:
                before, after = found.before, found.after
                lines[one.attribute.name, one.attribute.values] = (
                    f"{one.attribute.name}: the judge is calibrated by {found.labelled} labelled "
                    f"images. It agrees with {after.accuracy:.0%} of their labels, log loss "
                    f"{after.log_loss:.2f}, by cross-validation; uncalibrated, with "
                    f"{before.accuracy:.0%}, log loss {before.log_loss:.2f}."
                )
    return list(lines.values())


def terminal_table(table: ProtocolTable) -> Table:
    """The table for the terminal."""
    found = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for place, heading in enumerate(table.headings):
        found.add_column(heading, justify="right" if place else "left")
    for name, *values in texts(table):
        found.add_row(Text(name), *values)
    return found


def as_protocol_markdown(table: ProtocolTable) -> str:
    """The table and what it depends on, as Markdown."""
    lines = [f"# {table.protocol}", "", row(table.headings)]
    lines.append("|---" + "|---:" * (len(table.headings) - 1) + "|")
    lines += [row(cells) for cells in texts(table)]
    for line in notes(table):
        lines += ["", cell(line)]
    return "\n".join([*lines, ""])


def texts(table: ProtocolTable) -> list[list[str]]:
    """The rows as text, "–" where a value is missing."""
    return [
        [name, *("–" if value is None else f"{value:.2f}".replace("-", "−") for value in values)]
        for name, values in table.rows
    ]


def notes(table: ProtocolTable) -> list[str]:
    """What the numbers depend on, a sentence each."""
    found = [f"After {table.source}.", f"Settings: {table.settings}."]
    if table.differs:
        found.append(f"Not comparable: {'; '.join(table.differs)}.")
    return found + table.remarks


def row(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(cell, cells))} |"


def cell(text: str) -> str:
    """Text without meaning to Markdown."""
    escaped = "".join("\\" + c if c in "\\`*_[]<>|#" else c for c in text)
    return " ".join(escaped.split())
