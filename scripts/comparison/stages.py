"""The stages of the comparison: what is chosen in one is drawn in the next."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
from tqdm import tqdm

from scripts.comparison.measures import Scores
from scripts.comparison.plan import ABLATION, FINAL, SWEEP, Plan
from scripts.comparison.results import Row, best_other, choose
from scripts.comparison.runner import Runner, minutes
from scripts.comparison.trials import Trial


def announce(runner: Runner, plan: Plan) -> None:
    """Print the size of the comparison, and fail now where a method cannot work."""
    # what is not chosen yet takes about as long as what stands in for it here
    is_swept = not runner.missing(plan.sweep())[0]
    curves = plan.curves(settings_of(tune(runner, plan)[1]) if is_swept else {})
    other = curves[min(1, len(curves) - 1)].candidate
    if not runner.missing(curves)[0]:
        other = best_other(measure(runner, FINAL, curves)).candidate
    mains = plan.mains(other)
    stages = {
        "sweep": plan.sweep(),
        "curves": curves,
        "further seeds": plan.further_seeds(),
        **plan.others(mains),
        "ablations": list(plan.ablations().values()),
    }
    for name, trials in stages.items():
        if trials:
            kept = sum(trial.pictures for trial in trials)
            full = sum(trial.steps for trial in trials) // plan.how.steps
            click.echo(f"{name}: {len(trials)} trials, {kept:,} pictures, drawn: {full:,}")
    pictures, steps = runner.missing(trial for trials in stages.values() for trial in trials)
    if pictures:
        firsts = {trial.candidate.method: trial.candidate for trial in reversed(curves)}
        each = runner.rehearse(firsts.values(), plan.reported.open[0])
        click.echo(
            f"about {pictures:,} pictures are missing, {steps:,} steps at {each * 1000:.1f} ms: "
            f"{minutes(steps, each):.0f} minutes; if interrupted, the same command continues"
        )


def compare(runner: Runner, plan: Plan) -> tuple[list[Row], list[Row], list[Row]]:
    """All rows, those of the sweep that were chosen, and the main finals."""
    swept, chosen = tune(runner, plan)
    finals = measure(runner, FINAL, plan.curves(settings_of(chosen)))
    mains = plan.mains(best_other(finals).candidate)
    more = measure(runner, FINAL, plan.further_seeds())
    finals = [
        merged([row, *(one for one in more if one.candidate == row.candidate)]) for row in finals
    ]
    shown = [row for main in mains for row in finals if row.candidate == main]
    others = [
        row for kind, some in plan.others(mains).items() for row in measure(runner, kind, some)
    ]
    changed = plan.ablations()
    found = measure(runner, ABLATION, list(changed.values()))
    changes = [replace(row, name=name) for name, row in zip(changed, found, strict=True)]
    return [*finals, *others, *swept, *changes], chosen, shown


def tune(runner: Runner, plan: Plan) -> tuple[list[Row], list[Row]]:
    """The rows of the sweep, the unguided's first, and those chosen of each method."""
    rows = measure(runner, SWEEP, plan.sweep())
    methods = dict.fromkeys(row.method for row in rows[1:])
    return rows, [choose([row for row in rows if row.method == one], rows[0]) for one in methods]


def settings_of(chosen: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The settings but the strength, by method."""
    return {row.method: row.candidate.other_settings for row in chosen}


def measure(runner: Runner, kind: str, trials: Sequence[Trial]) -> list[Row]:
    """A row a trial."""
    _, steps = runner.missing(trials)
    with tqdm(total=steps, desc=kind, unit="step", unit_scale=True, disable=not steps) as bar:
        found = []
        for trial in trials:
            bar.set_postfix_str(f"{trial.candidate.method} {trial.candidate.strength or ''}")
            found.append(Row(kind, (trial,), (runner.measure(trial, bar.update),)))
        return found


def merged(rows: Sequence[Row]) -> Row:
    """Rows of the same trial with different seeds as one."""
    trials = [trial for row in rows for trial in row.trials]
    scores: list[Scores] = [of for row in rows for of in row.scores]
    return replace(rows[0], trials=tuple(trials), scores=tuple(scores))
