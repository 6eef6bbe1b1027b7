"""Compare methods on all prompts of a demo model with several seeds (docs/comparison.md).

\b
  python -m scripts.comparison.seeds --output out/comparison
  python -m scripts.comparison.seeds --model demo-sdxl-turbo-lora --method ours=0.5,1 \\
      --output out/few-steps -- --undistilled adapters

Writes comparison.md, with a table of all methods and one of looks at equal details, and curves.png.
Options after -- are passed on to `vendi-guidance compare`. The same command resumes a stopped run.
Scores are means over seeds, with 95% bootstrap intervals over prompts.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from operator import eq
from pathlib import Path
from statistics import fmean

import click
import numpy as np
from scipy.stats import bootstrap

from scripts.benchmarks.measuring import save_text, several, table
from scripts.comparison import transfer
from scripts.comparison.models import MODELS
from scripts.comparison.transfer import NAMED, OPEN, Job, Record, Row
from vendi_guidance.commands.cli import Command
from vendi_guidance.comparison.entries import FAMILIES, UNDISTILLED
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.inputs import looks_by_group
from vendi_guidance.features.probe import ProbeLabeler, load_probe
from vendi_guidance.storage.assets import asset

SEEDS = (0, 1000, 2000)
"""Image i of a run has seed + i, so no two of these runs share a seed."""
SELECT = "select=4:guidance_scale=2"
"""Selection at a low guidance scale, the best one found on the tuning prompts of 0.3."""
LEVELS = (0.99, 0.98, 0.97, 0.95, 0.93, 0.90)
"""Shares of named details kept at which the methods' looks are compared."""


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", type=click.Choice(list(MODELS)), default="demo-sdxl", help="Demo model.")
@click.option("--method", "given", multiple=True, help="As for compare.  [default: all]")
@several("--seed", "seeds", click.INT, SEEDS, "Seed of a run's first image.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/comparison"))
def main(
    options: tuple[str, ...], model: str, given: tuple[str, ...], seeds: Sequence[int], output: Path
) -> None:
    methods = [name for name in transfer.methods_of(model, FAMILIES) if name != UNDISTILLED]
    if MODELS[model].guidance_scale > 1:
        methods.append(SELECT)
    counts = {kind: (None, images) for kind, (_, images) in transfer.COUNTS.items()}
    steps = MODELS[model].steps
    jobs = [
        Job(output / f"{seed}", model, counts, given or methods, steps, seed=seed, options=options)
        for seed in seeds
    ]
    for job in jobs:
        job.run()
    rows = mean_rows(jobs)
    result = transfer.Result(model, transfer.even_looks(model), output, rows, {}, {})
    transfer.save_curves(output / "curves.png", [result])
    text = f"{transfer.methods([result])}\n\n{at_equal_details(rows)}"
    save_text(output / "comparison.md", text)


def mean_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows of the same comparison, averaged over the jobs' seeds."""
    labeler = ProbeLabeler(load_probe(asset(MODELS[jobs[0].model].probe)))
    means = []
    for rows in zip(*(job.rows() for job in jobs), strict=True):
        name = rows[0].folder
        looks, kept = (
            _score(values_by_prompt(kind, [job.folder / kind / name for job in jobs], labeler))
            for kind in (OPEN, NAMED)
        )
        means.append(
            rows[0]._replace(
                looks=looks,
                kept=kept,
                fidelity=fmean(row.fidelity for row in rows),
                evaluations=fmean(row.evaluations for row in rows),
            )
        )
    return means


def values_by_prompt(kind: str, runs: Iterable[Path], labeler: ProbeLabeler) -> list[float]:
    """For each prompt its looks, or for named prompts the share of images that show everything
    named: means over `runs`."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for run in runs:
        batch = as_batch(run)
        prompts = batch.prompts or []
        labels = labeler(batch.images, prompts)
        pairs: Iterable[tuple[Hashable, float]]
        if kind == OPEN:
            pairs = looks_by_group(prompts, labels).items()
        else:
            pairs = zip(prompts, map(eq, labels.asked, labels.shown), strict=True)
        for prompt, value in pairs:
            values[prompt].append(value)
    return [fmean(own) for own in values.values()]


def _score(values: Sequence[float]) -> Record:
    """The mean of some values and its 95% confidence interval."""
    if len(set(values)) == 1:
        return {"value": values[0], "low": None, "high": None}
    resampled = bootstrap([values], np.mean, method="percentile", rng=np.random.default_rng(0))
    low, high = resampled.confidence_interval
    return {"value": fmean(values), "low": low, "high": high}


def at_equal_details(rows: Sequence[Row]) -> str:
    """A table of the most looks that each method reaches while it keeps a share of named details.

    Curves of looks over that share begin at the unguided run and are interpolated linearly.
    """
    families = list(dict.fromkeys(row.family for row in rows[1:]))
    cells = []
    for level in LEVELS:
        curves = [[rows[0], *(row for row in rows if row.family == name)] for name in families]
        most = [_most_looks(curve, level) for curve in curves]
        cells.append([f"{level:.2f}", *("-" if best is None else f"{best:.2f}" for best in most)])
    return table(["named kept", *families], cells, 1)


def _most_looks(curve: Sequence[Row], level: float) -> float | None:
    """The most looks with at least this share kept, or None if the curve never reaches it."""
    points = [(row.kept["value"], row.looks["value"]) for row in curve]
    reached = [looks for kept, looks in points if kept >= level]
    for (kept, looks), (next_kept, next_looks) in pairwise(points):
        if (kept - level) * (next_kept - level) < 0:
            share = (level - kept) / (next_kept - kept)
            reached.append(looks + share * (next_looks - looks))
    return max(reached, default=None)


if __name__ == "__main__":
    main()
