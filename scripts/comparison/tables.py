"""The comparison in files: every number as CSV and JSON, and tables in Markdown."""

import csv
import io
import json
from collections.abc import Sequence
from math import inf, isfinite
from pathlib import Path
from typing import Any

from scripts.comparison.results import (
    CONFIDENCE,
    MOST_LOSS,
    MOST_RATIO,
    NOISE,
    Choice,
    Row,
    finals_by_kind,
    used,
    used_of,
)
from scripts.comparison.scorer import FEATURES, MEASURES, RATIOS
from vendi_guidance.storage.files import whole_file

FORMAT = "vendi-guidance comparison"
VERSION = 1

DIVERSITY = (
    "fidelity",
    "looks",
    "look_entropy",
    "in_batch_similarity",
    "conditional_vendi",
    "vendi",
    "seconds_per_image",
    "tones_as_named",
)
CLOSENESS = (
    "nearest_distance",
    "nearest_named",
    "nearest_ratio",
    "kernel_distance",
    "kernel_named",
    "kernel_ratio",
    "kernel_noise",
    "recall",
    "coverage",
)


def records(rows: Sequence[Row], choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Each row as JSON values; for the sweep also the limit used and whether it was chosen."""
    unguided = next(row for row in rows if row.stage == "sweep")
    chosen = [choice.row for choice in choices]
    found = []
    for row in rows:
        limit = used(row, unguided) if row.stage == "sweep" else inf
        known = limit if isfinite(limit) else None
        found.append(row.as_dict() | {"limit_used": known, "chosen": row in chosen})
    return found


def save_csv(path: Path, found: Sequence[dict[str, Any]]) -> None:
    """A line a row: all of `records` but the values of single seeds; None is empty."""
    text = io.StringIO()
    names = [name for name in found[0] if name != "values"]
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in found:
        seeds = " ".join(map(str, record["seeds"]))
        settings = json.dumps(record["settings"])
        writer.writerow(record | {"seeds": seeds, "settings": settings})
    _write(path, text.getvalue())


def save_json(path: Path, found: Sequence[dict[str, Any]], about: dict[str, Any]) -> None:
    """All of `records`, and the settings that they share."""
    content = {"format": FORMAT, "version": VERSION, **about, "rows": found}
    _write(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def save_tables(
    path: Path, rows: Sequence[Row], choices: Sequence[Choice], about: dict[str, Any]
) -> None:
    """Every table, as Markdown."""
    sweep = [row for row in rows if row.stage == "sweep"]
    parts = [_heading(about, rows)]
    for (protocol, sampler), finals in finals_by_kind(rows).items():
        parts += [f"## {protocol.capitalize()}, {sampler}", _numbers(finals, DIVERSITY)]
        parts += [_numbers(finals, [f"{kind}_{m}" for m in CLOSENESS]) for kind in FEATURES]
    parts += ["## The settings", _choices(choices, sweep[0])]
    parts += ["## The sweep", _sweep(sweep, choices)]
    _write(path, "\n\n".join(parts) + "\n")


def _heading(about: dict[str, Any], rows: Sequence[Row]) -> str:
    final = next(row for row in rows if row.stage == "final")
    trial, seeds = final.trials[0], len(final.trials)
    spread = (
        f"Means of {seeds} seeds, and half the width of their {CONFIDENCE:.0%} t-interval."
        if seeds > 1
        else "One seed."
    )
    return (
        f"{len(trial.prompts)} prompts x {trial.images_per_prompt} pictures, "
        f"{about['steps']} steps, classifier-free scale {about['guidance_scale']:g}, "
        f"batches of {about['batch_size']}, {about['dtype']}, on {about['machine']}. {spread}\n\n"
        "Distances are those from the training pictures of the same concepts, in the probe's "
        "features and in pixels. A ratio is that to the distance of named pictures, which have the "
        "same looks, each asked for by name, without a push: the probe sees what was named in "
        f"{about['named_as_asked']:.1%} of them. Bold is more than {MOST_RATIO:g} times "
        f"as far, of kernel distances by more than {NOISE:g} standard deviations of chance."
    )


def _numbers(rows: Sequence[Row], measures: Sequence[str]) -> str:
    """A row a method and a column a measure; measures that are undefined for all are left out."""
    measures = [measure for measure in measures if any(row.known(measure) for row in rows)]
    titles = ["method", *(MEASURES[measure].title for measure in measures)]
    cells = [[row.method, *(_cell(row, measure) for measure in measures)] for row in rows]
    return _markdown(titles, cells)


def _choices(choices: Sequence[Choice], unguided: Row) -> str:
    limits = (
        f"Of each method's settings in the sweep, the one with most looks that loses at most "
        f"{MOST_LOSS:g} of fidelity against the unguided and whose nearest and kernel distance, in "
        f"both kinds of features, are at most {MOST_RATIO:g} times those of named pictures (kernel "
        f"distances: plus {NOISE:g} standard deviations of chance). "
        '"Limit used" is the worst of these, 1 at the limit; where no setting keeps within it, the '
        "one that comes closest is taken."
    )
    cells = [
        [
            choice.row.method,
            choice.row.candidate.in_words(),
            str(choice.tried),
            _cell(choice.row, "fidelity"),
            _cell(choice.row, "looks"),
            format(used(choice.row, unguided), ".2f"),
            "yes" if choice.qualifies else "**none does**",
        ]
        for choice in choices
    ]
    titles = ["method", "best setting", "of", "prompt fidelity", "looks per prompt", "limit used"]
    return limits + "\n\n" + _markdown([*titles, "within limits"], cells)


def _sweep(rows: Sequence[Row], choices: Sequence[Choice]) -> str:
    chosen = [choice.row for choice in choices]
    measures = (*DIVERSITY[:5], *RATIOS)
    titles = ["method", "setting", *(MEASURES[measure].title for measure in measures), "limit used"]
    cells = [
        [
            f"**{row.method}**" if row in chosen else row.method,
            row.candidate.in_words(),
            *(_cell(row, measure) for measure in measures),
            format(used(row, rows[0]), ".2f"),
        ]
        for row in rows
    ]
    return "Tuning prompts, one seed; chosen settings in bold.\n\n" + _markdown(titles, cells)


def _cell(row: Row, measure: str) -> str:
    mean, half_width = row.mean(measure), row.half_width(measure)
    form = MEASURES[measure].form
    if mean is None:
        return "-"
    number = format(mean, form) + ("" if half_width is None else f" ± {half_width:{form}}")
    too_far = measure in RATIOS and used_of(row, measure.removesuffix("_ratio")) > 1
    return f"**{number}**" if too_far else number


def _markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] + ["--:"] * (len(titles) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _write(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
