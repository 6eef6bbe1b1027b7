"""Measure looks and kept details against the noise level of the rounds, at two latent sizes.

\b
  python -m scripts.comparison.levels --output out/levels

Each model generates prompts of assets/prompts with its default settings except `level`. Writes
levels.md and levels.png, which docs/theory.md shows. The same command resumes a stopped run.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import click
from matplotlib.figure import Figure

from scripts.benchmarks.measuring import save_text, several, table
from scripts.comparison.models import MODELS
from scripts.comparison.seeds import values_by_prompt
from scripts.comparison.transfer import COUNTS, NAMED, OPEN, save_spread
from scripts.experiments.convergence import save
from vendi_guidance.commands import generate
from vendi_guidance.commands.cli import Command
from vendi_guidance.comparison.figures import COLOURS, MARKERS
from vendi_guidance.features.probe import ProbeLabeler, load_probe
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.storage.assets import asset

SIZES = {"demo-sdxl": 16, "demo-faces": 32}
"""Height and width of the latents, which have 4 channels."""
LEVELS = (0.1, 0.15, 0.2, 0.3, 0.4)

Scores = dict[str, float]
"""Looks of 16 images of an open prompt, and the share of images that show everything named."""


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@several("--model", "models", click.Choice(list(SIZES)), SIZES, "Model to measure.")
@several("--level", "levels", click.FloatRange(0, min_open=True), LEVELS, "Noise level of rounds.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/levels"))
def main(models: Sequence[str], levels: Sequence[float], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    levels = sorted({*levels})
    scores: dict[str, dict[float, Scores]] = {}
    cells = []
    for model in models:
        scores[model] = {level: _measure(output, model, level) for level in levels}
        values = (f"{one[OPEN]:.1f} / {one[NAMED]:.3f}" for one in scores[model].values())
        cells.append([f"{model}, {SIZES[model]}x{SIZES[model]}", *values])
    text = table(["looks / named kept", *(f"{level:g}" for level in levels)], cells, 1)
    save_text(output / "levels.md", text)
    save(_plot(scores), output / "levels.png", dpi=90)


def _measure(output: Path, model: str, level: float) -> Scores:
    """Scores of a model guided with the default settings except the level."""
    demo, scores = MODELS[model], Scores()
    labeler = ProbeLabeler(load_probe(asset(demo.probe)))
    for kind, (count, each) in COUNTS.items():
        folder = output / f"{model}-{level:g}-{kind}"
        prompts = save_spread(demo, kind, count, output / f"{model}-{kind}.jsonl")
        words = [prompts, "--model", asset(model)]
        words += ["--images-per-prompt", each, "--steps", demo.steps, "--batch-size", 16]
        words += ["--guidance-scale", demo.guidance_scale, "--diversity-level", f"{level:g}"]
        words += ["--output", folder, "--resume"]
        generate.main([str(word) for word in words], standalone_mode=False)
        scores[kind] = fmean(values_by_prompt(kind, [folder], labeler))
    return scores


def _plot(scores: dict[str, dict[float, Scores]]) -> Figure:
    """Plot looks and the share of named details kept against the level."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels, titles = figure.subplots(1, 2), {OPEN: "looks of 16 images", NAMED: "named kept"}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        for (model, by_level), colour, marker in zip(
            scores.items(), COLOURS, MARKERS, strict=False
        ):
            label = f"{model}, {SIZES[model]}x{SIZES[model]} latents"
            values = [one[kind] for one in by_level.values()]
            axes.plot([*by_level], values, color=colour, marker=marker, label=label)
        axes.axvline(Rounds().level, color="grey", lw=0.8, ls=":")
        axes.set(xscale="log", title=title, xlabel="level: noise to signal / $\\sqrt{D}$")
        ticks = [*next(iter(scores.values()))]
        axes.set_xticks(ticks, labels=[f"{level:g}" for level in ticks])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
