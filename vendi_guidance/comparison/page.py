"""Writes a comparison to files: a self-contained HTML page, all numbers as JSON, and figures."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vendi_guidance.comparison.figures import draw_curves
from vendi_guidance.comparison.study import Compared, Results
from vendi_guidance.evaluation.judging import faithfulness_in
from vendi_guidance.evaluation.measures import between
from vendi_guidance.evaluation.report.figures import save_png
from vendi_guidance.evaluation.report.html import Run, render
from vendi_guidance.runs.manifest import write_json
from vendi_guidance.spacing import evenly_spaced
from vendi_guidance.storage.files import whole_file

FORMAT = "vendi-guidance comparison"
JSON_FILE = "comparison.json"
PAGE = "comparison.html"
SHOWN_PROMPTS = 4
EXTRA_SCORES = ("looks_per_prompt", "fidelity")
"""Further scores in the table, if the judges provide them."""


def save_comparison(folder: Path, results: Results, settings: dict[str, Any]) -> Path:
    """Write `comparison.html`, `comparison.json`, `curves.png` and `costs.png`.

    Args:
        settings: the settings shared by all runs, JSON values.

    Returns:
        The path of the page, which does not depend on the other files.

    Raises:
        OSError: the folder cannot be written.
    """
    figures = draw_curves(results)
    for name, figure in figures.items():
        save_png(figure, folder / f"{name}.png")
    write_json(folder / JSON_FILE, FORMAT, as_json(results, settings))
    text = render(
        PAGE,
        [run.report for run in results.runs],
        figures,
        "vendi_guidance.comparison",
        [run.entry.title for run in results.runs],
        results=results,
        runs=[(run, Run(run.report)) for run in results.runs],
        faithfulness=faithfulness_in(results.unguided.report),
        extra=[name for name in EXTRA_SCORES if name in results.unguided.report.scores],
        prompts=_prompts(results),
        settings=settings,
        between=between,
    )
    with whole_file(folder / PAGE) as temporary:
        # prompts may contain unpaired surrogates, which UTF-8 cannot encode
        temporary.write_bytes(text.encode("utf-8", "replace"))
    return folder / PAGE


def as_json(results: Results, settings: dict[str, Any]) -> dict[str, Any]:
    """All numbers of a comparison, as JSON values."""
    return {
        "made_with": f"vendi-guidance {version('vendi-guidance')}",
        "verdict": results.verdict(),
        "settings": settings | {"keep": results.keep},
        "runs": [
            {
                "folder": run.entry.name,
                **asdict(run.entry),
                "settings": dict(run.entry.settings),
                **asdict(run.outcome),
                "evaluations_per_image": run.evaluations,
                "seconds_per_image": run.seconds,
                "scores": {name: asdict(score) for name, score in run.report.scores.items()},
                "attributes": [one.as_json() for one in run.report.attributes],
                "effective_values": [asdict(one) for one in run.report.spreads],
            }
            for run in results.runs
        ],
    }


def _prompts(results: Results) -> list[tuple[str, list[tuple[Compared, Sequence[int]]]]]:
    """Some evenly spaced prompts, each with the rows of its images in every run."""
    rows_by_prompt: list[tuple[Compared, dict[str, Sequence[int]]]] = [
        (run, {str(group.label): group.rows for group in run.report.analysis.groups})
        for run in results.runs
    ]
    return [
        (prompt, [(run, rows.get(prompt, [])) for run, rows in rows_by_prompt])
        for prompt in evenly_spaced(list(rows_by_prompt[0][1]), SHOWN_PROMPTS)
    ]
