"""Writes reports as files: a page, JSON and figures."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vendi_guidance.evaluation.report.figures import convergence_figure, save_png
from vendi_guidance.evaluation.report.html import as_page
from vendi_guidance.storage.files import whole_folder

if TYPE_CHECKING:
    from vendi_guidance.evaluation.results import Comparison, Report

FORMAT = "vendi-guidance report"
PAGE, DATA = "report.html", "report.json"


def save_report(
    folder: Path, reports: Sequence["Report"], comparison: "Comparison | None" = None
) -> Path:
    """Write `report.html`, `report.json` and PNG figures: all of them, or none on OSError.

    Files of these names are replaced; other files of an earlier report in the folder are deleted.
    Returns the path of the page.
    """
    earlier = read_report(folder) or {}
    curves = convergence_figure(reports)
    with whole_folder(folder) as new:
        if curves is not None:
            save_png(curves, new / "convergence.png")
        (new / PAGE).write_text(as_page(reports, comparison, curves), encoding="utf-8")
        written = sorted([*(file.name for file in new.iterdir()), DATA])
        content = {
            "format": FORMAT,
            "version": 6,
            "made_with": f"vendi-guidance {version('vendi-guidance')}",
            "runs": [_run(report) for report in reports],
            "comparison": None if comparison is None else _compared(comparison),
            "files": written,
        }
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        (new / DATA).write_text(text, encoding="utf-8")
    for name in earlier.get("files", []):
        if name not in written and Path(name).name == name:
            (folder / name).unlink(missing_ok=True)
    return folder / PAGE


def read_report(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's `report.json`; None if it is missing or not that of a report."""
    try:
        content = json.loads((folder / DATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_report = isinstance(content, dict) and content.get("format") == FORMAT
    return content if is_report else None


def _run(report: "Report") -> dict[str, Any]:
    analysis = report.analysis
    return {
        "name": report.name,
        "settings": report.settings,
        "skipped": [{"name": str(name), "reason": reason} for name, reason in report.skipped],
        "scores": {name: asdict(score) for name, score in report.scores.items()},
        "groups": [asdict(group) | {"label": str(group.label)} for group in analysis.groups],
        "modes": [asdict(mode) for mode in analysis.modes],
        "looked_at": analysis.looked_at,
        "near_duplicates": analysis.near_duplicates,
        "attributes": [asdict(one) for one in report.attributes],
        "notes": report.notes,
        "convergence": {
            name: {key: getattr(curve, key).tolist() for key in ("sizes", "scores", "mean")}
            for name, curve in analysis.convergence.items()
        },
    }


def _compared(comparison: "Comparison") -> dict[str, Any]:
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
