"""Reports as files (a page, Markdown, JSON and figures), and as a table for the terminal."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.protocols import ProtocolTable
from vendi_guidance.evaluation.report.attributes import (
    ATTRIBUTE_TITLES,
    attribute_cell,
    attribute_title,
    calibration_lines,
    draw_attributes,
)
from vendi_guidance.evaluation.report.contact_sheet import save_contact_sheet
from vendi_guidance.evaluation.report.figures import draw_figures, save_png
from vendi_guidance.evaluation.report.html import as_page
from vendi_guidance.evaluation.report.markdown import cell, row
from vendi_guidance.evaluation.report.protocol import as_protocol_markdown
from vendi_guidance.evaluation.results import ComparisonData, ReportData
from vendi_guidance.storage.files import whole_folder

FORMAT = "vendi-guidance report"
PAGE, DATA = "report.html", "report.json"


def save_report(
    folder: Path,
    reports: Sequence[ReportData],
    comparison: ComparisonData | None = None,
    table: ProtocolTable | None = None,
    inputs: Sequence[Path] = (),
) -> Path:
    """Write `report.html`, `report.md`, `report.json` and PNG figures: all, or none if one fails.

    They replace files of these names; what an earlier report in the folder has besides is deleted.

    Args:
        reports: one, or two and their comparison.
        table: also written as `protocol.md`.
        inputs: the folders with the images, which `report.json` names.

    Returns:
        The path of the page, which needs none of the other files.

    Raises:
        OSError: the folder cannot be written.
    """
    earlier = read_report(folder) or {}
    figures = draw_figures(reports) | draw_attributes(reports)
    with whole_folder(folder) as new:
        for name, figure in figures.items():
            save_png(figure, new / f"{name}.png")
        save_contact_sheet(new / "comparison.png", reports)
        _write(new / "report.md", as_markdown(reports, comparison, list(figures)))
        if table is not None:
            _write(new / "protocol.md", as_protocol_markdown(table))
        _write(new / PAGE, as_page(reports, comparison, figures))
        written = sorted([*(file.name for file in new.iterdir()), DATA])
        content = as_json(reports, comparison, table)
        content |= {"inputs": relative(inputs, folder), "files": written}
        _write(new / DATA, json.dumps(content, indent=2, allow_nan=False) + "\n")
    for name in earlier.get("files", []):
        if name not in written and Path(name).name == name:
            (folder / name).unlink(missing_ok=True)
    return folder / PAGE


def read_report(folder: Path) -> dict[str, Any] | None:
    """The content of the `report.json` in a folder; None if there is none, or not of a report."""
    try:
        content = json.loads((folder / DATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_report = isinstance(content, dict) and content.get("format") == FORMAT
    return content if is_report else None


def relative(inputs: Sequence[Path], folder: Path) -> list[str]:
    """Folders as a report in `folder` names them: seen from there, so that both can be moved.

    On Windows, folders on another drive are named whole.
    """
    here = folder.resolve()
    places = [path.resolve() for path in inputs]
    return [str(p) if p.drive != here.drive else os.path.relpath(p, here) for p in places]


def as_json(
    reports: Sequence[ReportData],
    comparison: ComparisonData | None,
    table: ProtocolTable | None = None,
) -> dict[str, Any]:
    """Everything but the images and their features, as JSON values (see docs/evaluation.md)."""
    return {
        "format": FORMAT,
        "version": 3,
        "made_with": f"vendi-guidance {version('vendi-guidance')}",
        "runs": [_run(report) for report in reports],
        "comparison": None if comparison is None else _compared(comparison),
        "protocol": None if table is None else asdict(table),
    }


def _run(report: ReportData) -> dict[str, Any]:
    shown = report.analysis
    return {
        "name": report.name,
        "settings": report.settings,
        "skipped": [{"name": str(name), "reason": reason} for name, reason in report.skipped],
        "scores": {name: asdict(score) for name, score in report.scores.items()},
        "groups": [asdict(group) | {"label": str(group.label)} for group in shown.groups],
        "modes": [asdict(mode) for mode in shown.modes],
        "near_duplicates": [asdict(pair) for pair in shown.pairs],
        "looked_at": shown.looked_at,
        "attributes": [one.as_json() for one in report.attributes],
        "notes": report.notes,
        "eigenvalues": shown.spectra,
        "convergence": {
            name: {key: getattr(curve, key).tolist() for key in ("sizes", "mean", "low", "high")}
            for name, curve in shown.convergence.items()
        },
    }


def _compared(comparison: ComparisonData) -> dict[str, Any]:
    return {
        "first": comparison.first.name,
        "second": comparison.second.name,
        "headline": comparison.headline,
        "verdict": comparison.verdict(),
        "pictures_of_each": comparison.compared,
        "drawn": comparison.drawn,
        "paired": comparison.paired,
        "differences": {
            name: asdict(found) | {"significant": found.is_significant}
            for name, found in comparison.differences.items()
        },
    }


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
    """A table of each attribute's means over prompts."""
    if not any(report.attributes for report in reports):
        return []
    lines = ["", row(["attribute", "run", *ATTRIBUTE_TITLES.values()])]
    lines.append("|---" * (len(ATTRIBUTE_TITLES) + 2) + "|")
    for report in reports:
        for one in report.attributes:
            cells = [attribute_title(one.attribute), report.name]
            cells += [attribute_cell(one, name) for name in ATTRIBUTE_TITLES]
            lines.append(row(cells))
    return lines + [text for line in calibration_lines(reports) for text in ("", cell(line))]


def _write(path: Path, text: str) -> None:
    # a prompt may hold half a character, which no encoding has
    path.write_bytes(text.encode("utf-8", "replace"))
