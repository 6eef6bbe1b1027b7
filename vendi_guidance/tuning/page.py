"""The page of a sweep: a row of images for each value and prompt, and a table of scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vendi_guidance.evaluation.report.html import Run, evenly_spaced, render
from vendi_guidance.storage.files import whole_file
from vendi_guidance.tuning.dial import Point, choose, verdict

PAGE = "tune.html"
PROMPTS, IMAGES = 12, 16  # most prompts shown, most images of each


def save_page(folder: Path, points: Sequence[Point], keep: float, settings: dict[str, Any]) -> Path:
    """Write `tune.html`, which is self-contained, with the settings that all runs share; returns
    its path. OSError if the folder cannot be written."""
    rows = [{str(one.label): one.rows for one in point.report.analysis.groups} for point in points]
    runs = [Run(point.report) for point in points]
    labels = [*dict.fromkeys(map(str, points[0].report.inputs.groups or []))]
    prompts = {
        label: [(run, of_run[label][:IMAGES]) for run, of_run in zip(runs, rows, strict=True)]
        for label in evenly_spaced(labels, PROMPTS)
    }
    given: dict[str, Any] = {"points": points, "prompts": prompts, "settings": settings}
    given |= {"chosen": choose(points, keep), "verdict": verdict(points, keep)}
    text = render(PAGE, "vendi_guidance.tuning", **given)
    with whole_file(folder / PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return folder / PAGE
