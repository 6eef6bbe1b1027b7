"""Compare methods on every demo model with `vendi-guidance compare`: docs/transfer.md.

Each model draws prompts that leave the look open, of which looks are counted, and prompts that name
some of it, of which those images are counted that show all that was named. Then come other numbers
of steps and batch sizes, for ours at its default alone.

\b
  python -m scripts.comparison.transfer --output out/transfer

Writes transfer.md, the page's tables, transfer-curves.png, and the grid of every model; each
comparison has a folder with a page of its own. A stopped run goes on with the same command.

The share of the possible gain is (looks - unguided) / (even - unguided), where `even` is how many
looks as many independent draws show whose looks are all equally likely.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import islice
from math import prod
from pathlib import Path
from textwrap import fill, shorten
from typing import Any, NamedTuple

import click
from matplotlib.figure import Figure
from PIL import Image

from scripts.benchmarks.measuring import several, table
from scripts.comparison.models import MODELS
from scripts.docs.picture import ROW, strip
from vendi_guidance.commands import compare
from vendi_guidance.commands.cli import Command
from vendi_guidance.comparison.entries import FAMILIES, OURS, UNGUIDED, USUAL
from vendi_guidance.comparison.figures import STYLES as LINES
from vendi_guidance.features.probe import load_probe
from vendi_guidance.guidance.settings import STRENGTH
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts
from vendi_guidance.tuning.frontier import GREY

OPEN, NAMED = "open", "named"
COUNTS = {OPEN: (8, 16), NAMED: (16, 8)}
"""Number of prompts, and of images of each."""
FEWER = {OPEN: (4, 16), NAMED: (8, 8)}
"""For other steps and batches."""
STEPS = (2, 4, 8, 25)
BATCH, BATCHES = 16, (4, 1)
SHOWN = 2  # open prompts, and as many named ones

Record = dict[str, Any]
"""A run of comparison.json."""


class Row(NamedTuple):
    """A method at a strength on both kinds of prompts.

    Attributes:
        family: with its settings that are not the family's own.
        folder: of its run, beside the others.
        looks, kept: the scores of open prompts' looks and of named prompts' fidelity.
    """

    family: str
    strength: float | None
    folder: str
    looks: Record
    kept: Record
    fidelity: float
    evaluations: float


class Job(NamedTuple):
    """A comparison of a model by both kinds of prompts.

    Attributes:
        folder: of its two folders.
        model: a name of `MODELS`.
        counts: as `COUNTS`; None for all prompts.
        methods, steps, batch_size, seed: as of `vendi-guidance compare`.
        options: further ones of it.
    """

    folder: Path
    model: str
    counts: Mapping[str, tuple[int | None, int]]
    methods: Sequence[str]
    steps: int
    batch_size: int = BATCH
    seed: int = 0
    options: Sequence[str] = ()

    def run(self) -> None:
        """Make it, or what is missing of it."""
        demo = MODELS[self.model]
        model = asset(demo.base or self.model)
        text = model if (model / "text_encoder_2").is_dir() else asset("demo-sdxl")
        for kind, (count, each) in self.counts.items():
            source = asset(demo.prompts if kind == OPEN else demo.named)
            self.folder.mkdir(parents=True, exist_ok=True)
            if count is not None:
                few = open_prompts(str(source)).spread(count)
                source = save_prompts(self.folder / f"{kind}.jsonl", few)
            words: list[Any] = [source, "--model", model, "--images-per-prompt", each]
            words += ["--lora", asset(self.model)] if demo.base else []
            words += ["--steps", self.steps, "--guidance-scale", demo.guidance_scale]
            words += ["--batch-size", self.batch_size, "--seed", self.seed, *self.options]
            for option in ("image-embedder", "faithfulness"):
                words += [f"--{option}", f"probe:{asset(demo.probe)}"]
            words += ["--prompt-embedder", f"sdxl:{text}", "--probe", asset(demo.probe)]
            for method in self.methods:
                words += ["--method", method]
            words += ["--output", self.folder / kind]
            compare.main([str(word) for word in words], standalone_mode=False)

    def rows(self) -> list[Row]:
        """What was measured, the unguided first."""
        of_open, of_named = (
            json.loads((self.folder / kind / "comparison.json").read_text(encoding="utf-8"))["runs"]
            for kind in (OPEN, NAMED)
        )
        return [
            Row(
                ", ".join([one["family"], *(f"{k} {v:g}" for k, v in one["settings"].items())]),
                one["strength"],
                one["folder"],
                one["scores"]["looks_per_prompt"],
                other["scores"]["fidelity"],
                one["scores"]["fidelity"]["value"],
                one["evaluations_per_image"],
            )
            for one, other in zip(of_open, of_named, strict=True)
        ]


class Result(NamedTuple):
    """All comparisons of a model.

    Attributes:
        even: looks of independent draws that are all equally likely.
        folder, rows: of the main one.
        of_steps, of_batches: rows by number of steps, and by size of batches.
    """

    model: str
    even: float
    folder: Path
    rows: list[Row]
    of_steps: dict[int, list[Row]]
    of_batches: dict[int, list[Row]]

    def share(self, row: Row) -> float:
        """Of the possible gain over the unguided."""
        plain = self.rows[0].looks["value"]
        return (row.looks["value"] - plain) / (self.even - plain)

    def best_other(self, ours: Row) -> Row | None:
        """The other method with most looks of those that keep as much of what is named."""
        others = [row for row in self.rows[1:] if row.family != OURS]
        kept = [row for row in others if row.kept["value"] >= ours.kept["value"]]
        return max(kept, key=lambda row: row.looks["value"], default=None)


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@several("--model", "models", click.Choice(list(MODELS)), MODELS, "Which.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/transfer"))
def main(models: tuple[str, ...], output: Path) -> None:
    results = [measure(model, output / model) for model in models]
    save_curves(output / "transfer-curves.png", results)
    for result in results:
        save_grid(output / f"transfer-{result.model}.webp", result)
    parts = {
        "With the default settings": by_strength(results),
        "Steps": steps(results),
        "Batches": batches(results),
        "Every method": methods(results),
    }
    text = "\n\n".join(f"## {title}\n\n{part}" for title, part in parts.items())
    with whole_file(output / "transfer.md") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    click.echo(f"wrote {output / 'transfer.md'} and {1 + len(results)} figures")


def measure(model: str, folder: Path) -> Result:
    """Every comparison of a model, made or finished in a folder."""
    steps, default = MODELS[model].steps, [f"{OURS}={STRENGTH:g}"]
    main = Job(folder / "methods", model, COUNTS, methods_of(model, USUAL), steps)
    of_steps = {
        count: Job(folder / f"steps-{count}", model, FEWER, default, count)
        for count in sorted({*STEPS, steps})
    }
    of_batches = {
        size: Job(folder / f"batches-{size}", model, FEWER, default, steps, size)
        for size in BATCHES
    }
    for job in (main, *of_steps.values(), *of_batches.values()):
        job.run()
    by_steps = {count: job.rows() for count, job in of_steps.items()}
    by_batch = {BATCH: by_steps[steps]} | {size: job.rows() for size, job in of_batches.items()}
    return Result(model, even_looks(model), main.folder, main.rows(), by_steps, by_batch)


def methods_of(model: str, names: Iterable[str]) -> list[str]:
    """Those methods that a model can be sampled by."""
    has_cfg = MODELS[model].guidance_scale > 1
    return [name for name in names if has_cfg or name != "limited-interval"]


def even_looks(model: str) -> float:
    """How many looks the images of an open prompt have on average, if all are equally likely."""
    looks = prod(map(len, load_probe(asset(MODELS[model].probe)).attributes.values()))
    return looks * (1 - (1 - 1 / looks) ** COUNTS[OPEN][1])


def by_strength(results: Sequence[Result]) -> str:
    """A row a model and strength."""
    titles = ["model", "strength", "looks", "share of the possible gain", "named kept", "fidelity"]
    titles += ["evaluations", "best other that keeps as much"]
    cells = []
    for result in results:
        plain, *rest = result.rows
        name = f"{result.model}, {MODELS[result.model].steps} steps"
        shown = [*_scores(plain), "1.00 x", ""]
        cells.append([name, UNGUIDED, shown[0], "", *shown[1:]])
        for row in (row for row in rest if row.family == OURS):
            looks, *shown = _scores(row)
            times = f"{row.evaluations / plain.evaluations:.2f} x"
            best = result.best_other(row)
            other = "" if best is None else f"{best.folder}: {best.looks['value']:.2f}"
            gain = f"{result.share(row):.2f}"
            cells.append(["", f"{row.strength:g}", looks, gain, *shown, times, other])
    return table(titles, cells, 2)


def steps(results: Sequence[Result]) -> str:
    """A row a model, and a column a number of steps."""
    counts = sorted({count for result in results for count in result.of_steps})
    cells = []
    for result in results:
        for place, name in enumerate((UNGUIDED, OURS)):
            rows = {count: of[place] for count, of in result.of_steps.items()}
            found = {
                count: f"{row.looks['value']:.1f} / {row.kept['value']:.2f} / {row.evaluations:.0f}"
                for count, row in rows.items()
            }
            cells.append(
                ["" if place else result.model, name, *(found.get(n, "-") for n in counts)]
            )
    note = "Looks / named kept / evaluations of the network an image, at so many steps."
    return note + "\n\n" + table(["model", "", *map(str, counts)], cells, 2)


def batches(results: Sequence[Result]) -> str:
    """A row a model, and a column a batch size."""
    sizes = [BATCH, *BATCHES]
    cells = [
        [result.model, *(f"{result.of_batches[n][1].looks['value']:.1f}" for n in sizes)]
        for result in results
    ]
    note = "Looks of 16 images of a prompt, ours at its default, generated in batches of so many."
    return note + "\n\n" + table(["model", *map(str, sizes)], cells, 1)


def methods(results: Sequence[Result]) -> str:
    """A row a model, method and strength."""
    titles = ["model", "method", "strength", "looks", "named kept", "fidelity", "evaluations"]
    cells = [
        [
            "" if place else result.model,
            row.family,
            "" if row.strength is None else f"{row.strength:g}",
            *_scores(row),
            f"{row.evaluations:.1f}",
        ]
        for result in results
        for place, row in enumerate(result.rows)
    ]
    return table(titles, cells, 3)


def save_curves(path: Path, results: Sequence[Result]) -> None:
    """Plot the share of the possible gain over named kept: a panel a model, a line a method."""
    figure = Figure(figsize=(3.4 * len(results) + 1.8, 4), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    named: dict[str, Any] = {}
    for axes, result in zip(panels, results, strict=True):
        plain = result.rows[0]
        for family in dict.fromkeys(row.family for row in result.rows):
            own = [row for row in result.rows if row.family == family]
            colour, marker = LINES.get(family.partition(",")[0], (GREY, "o"))
            line = own if family == UNGUIDED else [plain, *own]
            points = [(row.kept["value"], result.share(row)) for row in line]
            size = 10 if family == OURS else 6
            [drawn] = axes.plot(
                *zip(*points, strict=True), color=colour, marker=marker, markersize=size, lw=1.4
            )
            named.setdefault(FAMILIES[family].title if family in FAMILIES else family, drawn)
        axes.set_xlim(1.01, min(row.kept["value"] for row in result.rows) - 0.02)
        axes.axhline(1, color="grey", lw=0.8, ls=":")
        axes.set_title(f"{result.model}, {MODELS[result.model].steps} steps", fontsize=10)
        axes.set_xlabel("named kept")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("share of the possible gain in looks")
    figure.legend(
        named.values(), named.keys(), loc="outside right center", frameon=False, fontsize=9
    )
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    few = Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    with whole_file(path) as temporary:  # 128 colours take a third of the space
        few.save(temporary, format="PNG", optimize=True)


def save_grid(path: Path, result: Result) -> None:
    """Images of some prompts: unguided, the best other method, ours by default and in full."""
    rows, folder = result.rows, result.folder
    ours = [row for row in rows if row.family == OURS and row.strength in (STRENGTH, 1.0)]
    shown = [row for row in (rows[0], result.best_other(ours[0]), *ours) if row is not None]
    prompts = [
        (kind, prompt)
        for kind in (OPEN, NAMED)
        for prompt in islice(open_prompts(str(folder / f"{kind}.jsonl")), SHOWN)
    ]
    strips = [
        [strip(folder / kind / row.folder, prompt, ROW) for kind, prompt in prompts]
        for row in shown
    ]
    size = (2.0 + 4.2 * len(strips[0]), 0.65 * len(strips) + 0.4)
    figure = Figure(figsize=size, dpi=65, layout="constrained")
    grid = figure.subplots(len(strips), len(strips[0]), squeeze=False)
    for line, row, some in zip(grid, shown, strips, strict=True):
        for axes, images in zip(line, some, strict=True):
            axes.imshow(images, interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        name = fill(row.folder.replace("-", " "), 16)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    for axes, (_, prompt) in zip(grid[0], prompts, strict=True):
        axes.set_title(shorten(prompt, 60), fontsize=12)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="webp", pil_kwargs={"quality": 60, "method": 6})


def _scores(row: Row) -> list[str]:
    """Looks, named kept and fidelity."""
    looks, kept = _with_interval(row.looks, ".2f"), _with_interval(row.kept, ".3f")
    return [looks, kept, f"{row.fidelity:.3f}"]


def _with_interval(score: Record, form: str) -> str:
    low, high = score["low"], score["high"]
    ends = "" if low is None else f" ({low:{form}} to {high:{form}})"
    return f"{score['value']:{form}}{ends}"


if __name__ == "__main__":
    main()
