"""Compare methods on the demo models: the tables of docs/results.md.

Each model generates two kinds of prompts, with the same seeds for every method. For those that
leave the look open, looks are counted; for those that name part of it, the images that show
everything named. Scores are means over seeds; intervals are over prompts.

\b
  python -m scripts.comparison --best --seed 0 --seed 1000 --seed 2000
  python -m scripts.comparison --model demo-sdxl --seed 0 --seed 1000 --seed 2000
  python -m scripts.comparison --method default --steps 4 --steps 16 --output out/steps
  python -m scripts.comparison --model demo-sdxl --method level --output out/level

Writes comparison.md, curves.png, dial.png and, for each model, an image grid. Every model, method,
value and seed is a run of its own. The same command resumes a stopped comparison, and one with more
methods or seeds generates only what is missing.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from scripts.benchmarks.measuring import device_option, save_text, several
from scripts.comparison.methods import METHODS, Entry, best_of, entries_of
from scripts.comparison.models import BATCH, IMAGES, MODELS, NAMED, OPEN, merged
from scripts.comparison.pages import Result, Row, save_curves, save_dial, save_grid, table_of
from scripts.comparison.scores import TASTE, scores
from scripts.comparison.taste import TASTE_FILE, Taste
from vendi_guidance.commands.cli import Command
from vendi_guidance.evaluation.report.html import evenly_spaced
from vendi_guidance.features.probe import TRAINING_FEATURES
from vendi_guidance.runs.plan import RunOptions
from vendi_guidance.runs.signals import Stop
from vendi_guidance.scores.subsampling import Estimate
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts
from vendi_guidance.tuning.dial import Sweep

COUNT = click.IntRange(1)
ALL = 10**6


@click.command(cls=Command, help=__doc__)
@several("--model", "models", click.Choice(list(MODELS)), MODELS, "Model to compare on.")
@several("--method", "methods", click.Choice(list(METHODS)), (), "Method.  [default: the usual]")
@click.option("--best", is_flag=True, help="Each method at its best value: see `choose`.")
@several("--seed", "seeds", click.IntRange(0), (0,), "Seed of a run's first image.")
@several("--steps", "steps", COUNT, (), "Number of steps.  [default: the model's]")
@several("--guidance-scale", "scales", click.FLOAT, (), "CFG scale.  [default: the model's]")
@click.option("--open", OPEN, type=COUNT, default=ALL, help="Use only this many open prompts.")
@click.option("--named", NAMED, type=COUNT, default=ALL, help="Use only this many named prompts.")
@device_option
@click.option("--output", type=click.Path(path_type=Path), default="out/comparison")
def main(
    models: Sequence[str],
    methods: Sequence[str],
    best: bool,
    seeds: Sequence[int],
    steps: Sequence[int],
    scales: Sequence[float],
    device: Any,
    output: Path,
    **counts: int,
) -> None:
    results = []
    for model in models:
        demo = MODELS[model]
        names = {OPEN: demo.prompts, NAMED: demo.named}
        prompts = save_spread(output / model, names, counts)
        own = best_of(model, methods) if best else entries_of(model, methods)
        entries = list(product(seeds, own))
        with Stop() as stop:
            runs = Sweep(options_of(model, str(device), output / model), stop)
            for called in product(steps or [demo.steps], scales or [demo.guidance_scale]):
                results.append(compare(model, runs, prompts, entries, *called))
        save_grid(output / f"{model}.webp", results[-1])
    save_curves(output / "curves.png", results)
    save_dial(output / "dial.png", results)
    click.echo(text := table_of(results))
    save_text(output / "comparison.md", text)


def save_spread(
    folder: Path, names: Mapping[str, str], counts: Mapping[str, int]
) -> dict[str, Path]:
    """Save up to so many prompts of each kind, evenly spaced in those of an asset."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = {}
    for kind, name in names.items():
        file = asset(f"prompts/{name}.txt")
        spread = evenly_spaced(open_prompts(str(file)).texts, counts[kind])
        saved[kind] = save_prompts(folder / f"{kind}.jsonl", spread)
    return saved


def options_of(model: str, device: str, output: Path) -> RunOptions:
    """Options of the runs of a demo model."""
    base = MODELS[model].base
    lora, folder = str(asset(model)) if base else None, asset(base or model)
    if base and MODELS[base].base:  # a student of a LoRA, which is merged
        folder = output / base
        merged(base, Path(str(asset(base))).parent).save_pretrained(folder)
    return RunOptions(model=str(folder), lora=lora, device=device, output=output)


def compare(
    model: str,
    runs: Sweep,
    prompts: dict[str, Path],
    entries: Sequence[tuple[int, Entry]],
    steps: int,
    scale: float,
    real: str = TRAINING_FEATURES,
) -> Result:
    """Generate the runs of all seeds and entries, or what is missing of them, and score them."""
    title = f"{model}, {steps} steps, CFG {scale:g}"
    found: dict[Entry, dict[str, list[Path]]] = {}
    for (seed, entry), kind in tqdm([*product(entries, prompts)], title, unit="run"):
        folder = runs.generate(
            f"{steps}-steps-cfg-{scale:g}/{seed}/{kind}/{entry.name}",
            entry.diversity,
            sampler=entry.sample,
            prompts=str(prompts[kind]),
            images_per_prompt=IMAGES[kind],
            batch_size=BATCH,
            seed=seed,
            steps=steps,
            guidance_scale=scale,
        )
        found.setdefault(entry, {}).setdefault(kind, []).append(folder)
    probe, taste = Path(str(asset(MODELS[model].probe))), taste_of(model)
    rows = [Row(entry, scores(own, probe, real, taste), own) for entry, own in found.items()]
    if TASTE in (unguided := rows[0].scores):
        gained = unguided[TASTE].value
        for row in rows:
            row.scores[TASTE] = Estimate(row.scores[TASTE].value / gained, None, None)
    return Result(title, rows)


def taste_of(model: str) -> Taste | None:
    """What a demo model, or the one it is a student of, was tuned on; None if neither was."""
    folders = [Path(str(asset(name))) for name in (model, MODELS[model].base)]
    return next((Taste.load(it) for it in folders if (it / TASTE_FILE).exists()), None)


if __name__ == "__main__":
    main(prog_name="python -m scripts.comparison")
