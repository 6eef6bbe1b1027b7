"""Looks and named details kept by the noise level of the rounds, at two sizes: docs/theory.md.

\b
  python -m scripts.comparison.levels --output out/levels

Each model generates prompts of assets/prompts at its default but for `level`. Writes levels.md and
levels.png. A stopped run goes on with the same command.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import click
from matplotlib.figure import Figure

from scripts.benchmarks.measuring import several, table
from scripts.comparison.models import MODELS
from scripts.comparison.seeds import of_prompts
from scripts.comparison.transfer import COUNTS, NAMED, OPEN
from vendi_guidance.commands import generate
from vendi_guidance.commands.cli import Command
from vendi_guidance.comparison.figures import COLOURS, MARKERS
from vendi_guidance.features.probe import ProbeLabeler, load_probe
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts

SIZES = {"demo-sdxl": 16, "demo-flow": 16, "demo-faces": 32}
"""Of the latents, which have 4 channels."""
LEVELS = (0.1, 0.15, 0.2, 0.3, 0.4)

Found = dict[str, float]
"""Looks of 16 images of an open prompt, and the share of images that show all that is named."""


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@several("--model", "models", click.Choice(list(SIZES)), SIZES, "Which.")
@several("--level", "levels", click.FloatRange(0, min_open=True), LEVELS, "Noise level of rounds.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/levels"))
def main(models: Sequence[str], levels: Sequence[float], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    levels = sorted({*levels})
    rows = {model: {level: _measured(output, model, level) for level in levels} for model in models}
    cells = [
        [
            f"{model}, {SIZES[model]}x{SIZES[model]}",
            *(f"{one[OPEN]:.1f} / {one[NAMED]:.3f}" for one in found.values()),
        ]
        for model, found in rows.items()
    ]
    text = table(["looks / named kept", *(f"{level:g}" for level in levels)], cells, 1)
    with whole_file(output / "levels.md") as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")
    with whole_file(output / "levels.png") as temporary:
        _drawn(rows).savefig(temporary, format="png", dpi=90)
    click.echo(f"wrote {output / 'levels.md'} and, beside it, levels.png")


def _measured(output: Path, model: str, level: float) -> Found:
    """Ours at its default but for the level."""
    demo, found = MODELS[model], Found()
    labeler = ProbeLabeler(load_probe(asset(demo.probe)))
    for kind, (count, each) in COUNTS.items():
        folder = output / f"{model}-{level:g}-{kind}"
        few = open_prompts(str(asset(demo.prompts if kind == OPEN else demo.named))).spread(count)
        words = [save_prompts(output / f"{model}-{kind}.jsonl", few), "--model", asset(model)]
        words += ["--images-per-prompt", each, "--steps", demo.steps, "--batch-size", 16]
        words += ["--guidance-scale", demo.guidance_scale, "--diversity-level", f"{level:g}"]
        words += ["--output", folder, "--resume"]
        generate.main([str(word) for word in words], standalone_mode=False)
        found[kind] = fmean(of_prompts(kind, [folder], labeler))
    return found


def _drawn(rows: dict[str, dict[float, Found]]) -> Figure:
    """Looks, and named kept, over the level."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels, titles = figure.subplots(1, 2), {OPEN: "looks of 16 images", NAMED: "named kept"}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        for (model, found), colour, marker in zip(rows.items(), COLOURS, MARKERS, strict=False):
            name = f"{model}, {SIZES[model]}x{SIZES[model]} latents"
            values = [one[kind] for one in found.values()]
            axes.plot([*found], values, color=colour, marker=marker, label=name)
        axes.axvline(Rounds().level, color="grey", lw=0.8, ls=":")
        axes.set(xscale="log", title=title, xlabel="level: noise to signal / $\\sqrt{D}$")
        shown = [*next(iter(rows.values()))]
        axes.set_xticks(shown, labels=[f"{level:g}" for level in shown])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
