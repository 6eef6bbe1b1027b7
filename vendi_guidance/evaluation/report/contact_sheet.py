"""Runs side by side in one figure: for some of their prompts, the first images of each."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from vendi_guidance.evaluation.analysis import Group
from vendi_guidance.evaluation.report.figures import one_line, style
from vendi_guidance.evaluation.results import Report
from vendi_guidance.spacing import evenly_spaced
from vendi_guidance.storage.images import fitted

TILE, COLUMNS = 72, 8  # pixels of an image, images in a row
PROMPTS, IMAGES = 8, 16  # at most, and of one prompt


def save_contact_sheet(path: Path, reports: Sequence[Report]) -> bool:
    """Write a PNG of prompts that are spread evenly over all of them.

    Returns:
        False if there is nothing to draw, because no two images share a prompt.

    Raises:
        OSError: the file cannot be written.
    """
    by_label = [{str(group.label): group for group in one.analysis.groups} for one in reports]
    labels = dict.fromkeys(str(g) for one in reports for g in one.inputs.groups or [])
    known = [label for label in labels if any(label in groups for groups in by_label)]
    if not known:
        return False
    chosen = evenly_spaced(known, PROMPTS)
    columns = [[groups.get(label) for label in chosen] for groups in by_label]
    most = max(len(group.rows[:IMAGES]) for column in columns for group in column if group)
    height = -(-most // COLUMNS) * TILE
    size = (len(reports) * (COLUMNS * TILE + 30), len(chosen) * (height + 30) + 50)
    figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100, layout="constrained")
    parts = figure.subfigures(1, len(reports), squeeze=False, wspace=0.06)[0]
    for part, report, column in zip(parts, reports, columns, strict=True):
        looks = report.scores.get("looks_per_prompt")
        title = one_line(report.name, 60)
        title += "" if looks is None else f": {looks.value:.1f} looks per prompt"
        part.suptitle(title, fontsize=14, fontweight="bold", parse_math=False)
        panels = part.subplots(len(chosen), 1, squeeze=False)[:, 0]
        for axes, label, group in zip(panels, chosen, column, strict=True):
            axes.imshow(_grid(report, group), interpolation="lanczos")
            axes.set_axis_off()
            axes.set_title(one_line(label, 60), loc="left", fontsize=10, parse_math=False)
            if group is not None and group.looks is not None:
                axes.set_title(f"looks: {group.looks}", loc="right", fontsize=10)
    with style():
        figure.savefig(path, format="png")
    return True


def _grid(report: Report, group: Group | None) -> Image.Image:
    shown = [] if group is None else group.rows[:IMAGES]
    rows = -(-max(1, len(shown)) // COLUMNS)
    grid = Image.new("RGB", (COLUMNS * TILE, rows * TILE), "white")
    for place, row in enumerate(shown):
        tile = fitted(report.images[row], TILE - 4)
        grid.paste(tile, (place % COLUMNS * TILE + 2, place // COLUMNS * TILE + 2))
    return grid
