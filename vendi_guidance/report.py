"""Reports made visible: a table, a JSON file and a picture."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from matplotlib.figure import Figure, SubFigure
from PIL import Image, ImageOps
from rich.table import Table

from vendi_guidance.evaluator import Report
from vendi_guidance.files import whole_file
from vendi_guidance.runs import Run

FORMAT = "vendi-guidance report"
VERSION = 1

TILE = 72  # pixels a picture gets
COLUMNS = 8
SHOWN_PROMPTS = 8
SHOWN_PICTURES = 16  # of one prompt

SCORES = (  # attribute of Report, its name for people, how it is written, whether runs are a ratio
    ("fidelity", "prompt fidelity", ".3f", False),
    ("looks_per_prompt", "looks per prompt", ".2f", True),
    ("conditional_vendi", "Conditional-Vendi", ".3f", True),
    ("conditional_rke", "Conditional-RKE", ".3f", True),
    ("vendi", "Vendi", ".2f", True),
    ("rke", "RKE", ".2f", True),
    ("in_batch_similarity", "in-batch similarity", ".3f", False),
    ("seconds_per_image", "seconds per image", ".3f", True),
)


@dataclass(frozen=True)
class Evaluated:
    """A run and what was found, under the name it is shown by."""

    name: str
    run: Run
    report: Report


def score_table(evaluated: Sequence[Evaluated]) -> Table:
    """The scores, one column a run; for two runs also how the second differs from the first."""
    table = Table("score")
    for item in evaluated:
        table.add_column(item.name, justify="right")
    if len(evaluated) == 2:
        table.add_column("change", justify="right")
    for attribute, label, form, is_ratio in SCORES:
        values = [getattr(item.report, attribute) for item in evaluated]
        if all(value is None for value in values):
            continue
        cells = ["-" if value is None else format(value, form) for value in values]
        if len(evaluated) == 2:
            cells.append(_change(values[0], values[1], form, is_ratio))
        table.add_row(label, *cells)
    return table


def _change(before: float | None, after: float | None, form: str, is_ratio: bool) -> str:
    if before is None or after is None or (is_ratio and not before):
        return "-"
    return f"x {after / before:.2f}" if is_ratio else format(after - before, "+" + form)


def save_json(path: Path, evaluated: Sequence[Evaluated], origins: dict[str, Any]) -> None:
    """Write scores and settings, whole or not at all.

    Args:
        path: of the JSON file.
        evaluated: the runs.
        origins: where embedders came from, JSON values.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        **origins,
        "runs": [{"name": item.name, **item.report.as_dict()} for item in evaluated],
    }
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_picture(path: Path, evaluated: Sequence[Evaluated]) -> None:
    """Draw runs side by side as a PNG: for some of their prompts, the first pictures of each.

    The prompts are spread evenly over all of them, so they are no selection of the best.
    """
    prompts = list(dict.fromkeys(p for item in evaluated for p in item.run.prompts))
    step = max(1, len(prompts) / SHOWN_PROMPTS)
    chosen = [prompts[int(i * step)] for i in range(min(SHOWN_PROMPTS, len(prompts)))]
    grids = [[_grid(item.run, prompt) for prompt in chosen] for item in evaluated]
    tallest = max(grid.height for column in grids for grid in column)
    size = (len(evaluated) * (COLUMNS * TILE + 30), len(chosen) * (tallest + 30) + 50)
    figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100, layout="constrained")
    for part, item, column in zip(
        figure.subfigures(1, len(evaluated), squeeze=False, wspace=0.06)[0],
        evaluated,
        grids,
        strict=True,
    ):
        _draw_column(part, item, chosen, column)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def _draw_column(
    part: SubFigure, item: Evaluated, prompts: Sequence[str], grids: Sequence[Image.Image]
) -> None:
    looks = item.report.looks_per_prompt
    title = item.name if looks is None else f"{item.name}: {looks:.1f} looks per prompt"
    part.suptitle(title, fontsize=14, fontweight="bold", parse_math=False)
    for axes, prompt, grid in zip(
        part.subplots(len(prompts), 1, squeeze=False)[:, 0], prompts, grids, strict=True
    ):
        axes.imshow(grid, interpolation="lanczos")
        axes.set_axis_off()
        axes.set_title(shorten(prompt, 60), loc="left", fontsize=10, parse_math=False)
        found = item.report.looks_by_prompt.get(prompt)
        if found is not None:
            axes.set_title(f"looks: {found}", loc="right", fontsize=10)


def _grid(run: Run, prompt: str) -> Image.Image:
    """The first pictures of a prompt, in rows of `COLUMNS`."""
    images = [
        image for image, words in zip(run.images, run.prompts, strict=True) if words == prompt
    ][:SHOWN_PICTURES]
    rows = -(-max(1, len(images)) // COLUMNS)
    grid = Image.new("RGB", (COLUMNS * TILE, rows * TILE), "white")
    for place, image in enumerate(images):
        tile = ImageOps.contain(image, (TILE - 4, TILE - 4), Image.Resampling.LANCZOS)
        grid.paste(tile, (place % COLUMNS * TILE + 2, place // COLUMNS * TILE + 2))
    return grid
