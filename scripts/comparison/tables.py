"""The comparison in files: every number as CSV and JSON, and tables in Markdown."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.comparison.candidates import UNGUIDED
from scripts.comparison.measures import FEATURES, KEPT, LOOKS, MEASURES
from scripts.comparison.plan import (
    ABLATION,
    FINAL,
    INTERLEAVED_FINAL,
    OTHER_BATCHES,
    OTHER_SAMPLERS,
    SWEEP,
)
from scripts.comparison.results import CONFIDENCE, LEVELS, Row, curves, gain
from vendi_guidance.storage.files import whole_file

FORMAT = "vendi-guidance study"
VERSION = 3

MAIN = (LOOKS, KEPT, "fidelity", "look_entropy", "probe_nearest_ratio", "pixels_nearest_ratio")
SHORT = MAIN[:3]
REST = ("in_batch_similarity", "conditional_vendi", "vendi")
CLOSENESS = (
    "nearest_distance",
    "nearest_named",
    "kernel_distance",
    "kernel_named",
    "kernel_noise",
    "recall",
    "coverage",
)
COSTS = ("evaluations", "seconds_per_image")


def save_csv(path: Path, rows: Sequence[Row]) -> None:
    """A line a row: its trial, and its measures with their intervals; None is empty."""
    text = io.StringIO()
    found = [row.as_dict() for row in rows]
    names = [name for name in found[0] if name != "scores"]
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in found:
        plain = {
            "prompts": len(record["prompts"]),
            "seeds": len(record["seeds"]),
            "settings": json.dumps(record["settings"]),
        }
        writer.writerow(record | plain)
    _write(path, text.getvalue())


def save_json(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> None:
    """Every number, those of single seeds and prompts too, and the settings that all share."""
    content = {"format": FORMAT, "version": VERSION, **about}
    content["rows"] = [row.as_dict() for row in rows]
    _write(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def save_tables(
    path: Path, rows: Sequence[Row], chosen: Sequence[Row], about: dict[str, Any]
) -> None:
    """Every table, as Markdown.

    Args:
        chosen: rows of the sweep.
    """
    of_kind = {kind: [row for row in rows if row.kind == kind] for kind in _KINDS}
    finals = of_kind[FINAL]
    mains = [row for row in finals if len(row.trials) > 1] or finals
    parts = [
        _heading(about, finals[0]),
        "## Final",
        _final(finals),
        "## Looks at a level",
        _gains(rows),
    ]
    parts += ["## Further measures", _numbers(mains, REST)]
    parts += [_numbers(mains, [f"{kind}_{m}" for m in CLOSENESS]) for kind in FEATURES]
    for kind, title in _KINDS.items():
        if kind != FINAL and of_kind[kind]:
            bold = chosen if kind == SWEEP else ()
            parts += [title, _numbers(of_kind[kind], (*MAIN[:5], *COSTS), bold)]
    _write(path, "\n\n".join(parts) + "\n")


_KINDS = {
    FINAL: "",
    INTERLEAVED_FINAL: "## Open and named prompts interleaved",
    OTHER_SAMPLERS: "## Other samplers and steps",
    OTHER_BATCHES: "## Other batch sizes",
    SWEEP: "## Sweep\n\nTuning prompts; chosen settings in bold.",
    ABLATION: "## Ablations\n\nTuning prompts.",
}


def _heading(about: dict[str, Any], final: Row) -> str:
    trial = final.trials[0]
    count = sum(prompt.is_open for prompt in trial.prompts)
    return (
        f"{count} prompts that leave the look open and {len(trial.prompts) - count} that name an "
        f"attribute x {trial.how.images_per_prompt} pictures, {trial.how.steps} steps, CFG scale "
        f"{about['guidance_scale']:g}, batches of {trial.how.batch_size}, {about['dtype']}, on "
        f"{about['machine']}. In brackets: {CONFIDENCE:.0%} bootstrap intervals over prompts, "
        "where there are at least 8. "
        f"Rows with {len(final.trials)} seeds say so; all others have one.\n\n"
        "*Nearest ratio*: a method's distance from the training pictures of the same emoji, "
        "divided by that of unguided images with the same looks, each asked for by name (the probe "
        f"sees what was named in {about['named_as_asked']:.1%} of them). Lower is closer."
    )


def _final(finals: Sequence[Row]) -> str:
    """A row a candidate; evaluations as a multiple of the unguided's."""
    plain = next(row for row in finals if row.method == UNGUIDED).mean("evaluations") or 1.0
    titles = [MEASURES[measure].title for measure in MAIN]
    titles = ["method", "setting", "seeds", *titles, "network evaluations", "seconds per image"]
    cells = [
        [
            row.method,
            row.candidate.in_words(),
            str(len(row.trials)),
            *(_cell(row, measure) for measure in MAIN),
            f"{(row.mean('evaluations') or 0) / plain:.2f} x",
            _cell(row, "seconds_per_image"),
        ]
        for row in finals
    ]
    return markdown(titles, cells, 2)


def _gains(rows: Sequence[Row]) -> str:
    """A row a level of named kept, and a column a method."""
    of_methods = curves(rows)
    cells = []
    for level in LEVELS:
        found = gain(of_methods, level)
        difference = "-"
        if found.difference is not None:
            difference = f"{found.difference:+.2f}" + _brackets(found.interval, "+.2f")
        values = ["-" if looks is None else f"{looks:.2f}" for looks in found.looks.values()]
        cells.append([f"{level:.2f}", *values, found.best_other or "-", difference])
    titles = ["named kept", *of_methods, "best other", "ours over it"]
    note = (
        "The most looks at this level of named kept or a higher one, by linear interpolation along "
        "each method's curve from the unguided; - is a level that it never keeps."
    )
    return note + "\n\n" + markdown(titles, cells, 1)


def _numbers(rows: Sequence[Row], measures: Sequence[str], bold: Sequence[Row] = ()) -> str:
    """A row a row and a column a measure; measures that are undefined for all are left out."""
    measures = [m for m in measures if any(row.mean(m) is not None for row in rows)]
    titles = ["method", "setting", *(MEASURES[measure].title for measure in measures)]
    cells = []
    for row in rows:
        name = row.name or row.method
        cells.append(
            [
                f"**{name}**" if any(row is one for one in bold) else name,
                _setting(row),
                *(_cell(row, measure) for measure in measures),
            ]
        )
    return markdown(titles, cells, 2)


def _setting(row: Row) -> str:
    """The candidate's settings, and how it was drawn where that differs between rows."""
    how = row.trials[0].how
    drawn = {
        OTHER_SAMPLERS: f"{how.sampler}, {how.steps} steps",
        OTHER_BATCHES: f"batches of {how.batch_size}",
    }.get(row.kind)
    return "; ".join(part for part in (row.candidate.in_words(), drawn) if part)


def _cell(row: Row, measure: str) -> str:
    return number(row.mean(measure), MEASURES[measure].form, row.interval(measure))


def number(value: float | None, form: str, interval: tuple[float, float] | None = None) -> str:
    """A value and its interval; "-" for None."""
    return "-" if value is None else format(value, form) + _brackets(interval, form)


def _brackets(interval: tuple[float, float] | None, form: str) -> str:
    return "" if interval is None else f" ({interval[0]:{form}} to {interval[1]:{form}})"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table whose first `words` columns are words, and the others numbers."""
    rules = ["---"] * words + ["--:"] * (len(titles) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in [titles, rules, *rows])


def _write(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
