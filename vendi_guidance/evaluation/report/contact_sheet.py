"""Runs side by side in one figure: for some of their prompts, the first images of each."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure, SubFigure
from PIL import Image

from vendi_guidance.evaluation.analysis import Group
from vendi_guidance.evaluation.report.figures import one_line, style
from vendi_guidance.evaluation.results import ReportData
from vendi_guidance.spacing import evenly_spaced
from vendi_guidance.storage.images import fitted

TILE = 72  # pixels per image
COLUMNS = 8
SHOWN_PROMPTS = 8
SHOWN_PICTURES = 16  # of one prompt


def save_contact_sheet(path: Path, reports: Sequence[ReportData]) -> bool:
    """Write a PNG of prompts that are spread evenly over all of them.

    Returns:
        False if there is nothing to draw, because no two images share a prompt.

    Raises:
        OSError: the file cannot be written.
    """
    by_label = [{str(group.label): group for group in one.analysis.groups} for one in reports]
    labels = list(dict.fromkeys(str(g) for one in reports for g in one.inputs.groups or []))
    labels = [label for label in labels if any(label in groups for groups in by_label)]
    if not labels:
        return False
    chosen = evenly_spaced(labels, SHOWN_PROMPTS)
    grids = [
        [_grid(report, groups.get(label)) for label in chosen]
        for report, groups in zip(reports, by_label, strict=True)
    ]
    tallest = max(grid.height for column in grids for grid in column)
    size = (len(reports) * (COLUMNS * TILE + 30), len(chosen) * (tallest + 30) + 50)
    figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100, layout="constrained")
    parts = figure.subfigures(1, len(reports), squeeze=False, wspace=0.06)[0]
    for part, report, groups, column in zip(parts, reports, by_label, grids, strict=True):
        _draw_column(part, report, [(label, groups.get(label)) for label in chosen], column)
    with style():
        figure.savefig(path, format="png")
    return True


def _draw_column(
    part: SubFigure,
    report: ReportData,
    groups: Sequence[tuple[str, Group | None]],
    grids: Sequence[Image.Image],
) -> None:
    looks = report.scores.get("looks_per_prompt")
    title = one_line(report.name, 60)
    title += "" if looks is None else f": {looks.value:.1f} looks per prompt"
    part.suptitle(title, fontsize=14, fontweight="bold", parse_math=False)
    panels = part.subplots(len(groups), 1, squeeze=False)[:, 0]
    for axes, (label, group), grid in zip(panels, groups, grids, strict=True):
        axes.imshow(grid, interpolation="lanczos")
        axes.set_axis_off()
        axes.set_title(one_line(label, 60), loc="left", fontsize=10, parse_math=False)
        if group is not None and group.looks is not None:
            axes.set_title(f"looks: {group.looks}", loc="right", fontsize=10)


def _grid(report: ReportData, group: Group | None) -> Image.Image:
    """The first images of a group, in rows of `COLUMNS`."""
    shown = [] if group is None else group.rows[:SHOWN_PICTURES]
    rows = -(-max(1, len(shown)) // COLUMNS)
    grid = Image.new("RGB", (COLUMNS * TILE, rows * TILE), "white")
    for place, row in enumerate(shown):
        tile = fitted(report.images[row], TILE - 4)
        grid.paste(tile, (place % COLUMNS * TILE + 2, place // COLUMNS * TILE + 2))
    return grid
