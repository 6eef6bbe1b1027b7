"""Compare methods on every demo model with `vendi-guidance compare` (docs/transfer.md).

Each model generates two kinds of prompts: for those that leave the look open, looks are counted;
for those that name part of it, the images that show everything named. Other numbers of steps and
batch sizes follow, for our method at its default only.

\b
  python -m scripts.comparison.transfer --output out/transfer

Writes the tables (transfer.md), the curves (transfer-curves.png) and an image grid of every model;
each comparison has its own folder with a report. The same command resumes a stopped run.

The share of the possible gain is (looks - unguided) / (even - unguided), where `even` is the
expected number of looks if each image showed a look drawn uniformly at random.
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

from scripts.benchmarks.measuring import save_text, several, table
from scripts.comparison.models import MODELS, DemoModel
from scripts.docs.picture import ROW, strip
from vendi_guidance.commands import compare
from vendi_guidance.commands.cli import Command
from vendi_guidance.comparison.entries import FAMILIES, OURS, UNGUIDED, USUAL
from vendi_guidance.comparison.figures import GREY, STYLES as LINES
from vendi_guidance.features.probe import load_probe
from vendi_guidance.guidance.settings import DIVERSITY
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts

OPEN, NAMED = "open", "named"
COUNTS = {OPEN: (8, 16), NAMED: (16, 8)}
"""Number of prompts, and of images per prompt."""
FEWER = {OPEN: (4, 16), NAMED: (8, 8)}
"""The same for other numbers of steps and batch sizes."""
STEPS = (2, 4, 8, 25)
BATCH, BATCHES = 16, (4, 1)
SHOWN = 2  # prompts of each kind in a grid

Record = dict[str, Any]
"""A score in comparison.json: its value, and the ends of its interval."""


class Row(NamedTuple):
    """Scores of a method at one strength on both kinds of prompts.

    Attributes:
        family: the method, with settings other than its defaults.
        folder: name of the run's folder.
        looks, kept: looks per open prompt, and fidelity to named prompts.
    """

    family: str
    strength: float | None
    folder: str
    looks: Record
    kept: Record
    fidelity: float
    evaluations: float


class Job(NamedTuple):
    """A comparison of methods on one model, with both kinds of prompts.

    Attributes:
        folder: contains a folder for each kind of prompts.
        model: a name in `MODELS`.
        counts: like `COUNTS`; None for all prompts.
        methods, steps, batch_size, seed: as for `vendi-guidance compare`.
        options: further options of that command.
    """

    folder: Path
    model: str
    counts: Mapping[str, tuple[int | None, int]]
    methods: Sequence[str]
    steps: int
    batch_size: int = BATCH
    seed: int = 0
    options: Sequence[str] = ()

    def run(self) -> list[Row]:
        """Run the comparison, or what is missing of it; returns `rows`."""
        demo = MODELS[self.model]
        model = asset(demo.base or self.model)
        text = model if (model / "text_encoder_2").is_dir() else asset("demo-sdxl")
        for kind, (count, each) in self.counts.items():
            self.folder.mkdir(parents=True, exist_ok=True)
            prompts = save_spread(demo, kind, count, self.folder / f"{kind}.jsonl")
            words: list[Any] = [prompts, "--model", model, "--images-per-prompt", each]
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
        return self.rows()

    def rows(self) -> list[Row]:
        """The results, the unguided run first."""
        open_runs, named_runs = (
            json.loads((self.folder / kind / "comparison.json").read_text(encoding="utf-8"))["runs"]
            for kind in (OPEN, NAMED)
        )
        return [
            Row(
                ", ".join([run["family"], *(f"{k} {v:g}" for k, v in run["settings"].items())]),
                run["strength"],
                run["folder"],
                run["scores"]["looks_per_prompt"],
                named["scores"]["fidelity"],
                run["scores"]["fidelity"]["value"],
                run["evaluations_per_image"],
            )
            for run, named in zip(open_runs, named_runs, strict=True)
        ]


def save_spread(demo: DemoModel, kind: str, count: int | None, path: Path) -> Path:
    """Save `count` evenly spaced prompts of a kind; returns the file of all prompts for None."""
    source = asset(demo.prompts if kind == OPEN else demo.named)
    return source if count is None else save_prompts(path, open_prompts(str(source)).spread(count))


class Result(NamedTuple):
    """All comparisons of a model.

    Attributes:
        even: expected looks if all looks were equally likely: see `even_looks`.
        folder, rows: folder and results of the main comparison.
        by_steps, by_batch: results by number of steps, and by batch size.
    """

    model: str
    even: float
    folder: Path
    rows: list[Row]
    by_steps: dict[int, list[Row]]
    by_batch: dict[int, list[Row]]

    def share(self, row: Row) -> float:
        """Share of the possible gain over the unguided run."""
        plain = self.rows[0].looks["value"]
        return (row.looks["value"] - plain) / (self.even - plain)

    def best_other(self, ours: Row) -> Row | None:
        """The other method with the most looks that keeps at least as many named details."""
        others = [row for row in self.rows[1:] if row.family != OURS]
        kept = [row for row in others if row.kept["value"] >= ours.kept["value"]]
        return max(kept, key=lambda row: row.looks["value"], default=None)


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@several("--model", "models", click.Choice(list(MODELS)), MODELS, "Model to compare on.")
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
    save_text(output / "transfer.md", text)


def measure(model: str, folder: Path) -> Result:
    """Run or resume every comparison of a model in a folder."""
    steps, default = MODELS[model].steps, [f"{OURS}={DIVERSITY:g}"]
    main = Job(folder / "methods", model, COUNTS, methods_of(model, USUAL), steps)
    rows = main.run()
    by_steps = {
        count: Job(folder / f"steps-{count}", model, FEWER, default, count).run()
        for count in sorted({*STEPS, steps})
    }
    by_batch = {BATCH: by_steps[steps]}
    for size in BATCHES:
        job = Job(folder / f"batches-{size}", model, FEWER, default, steps, size)
        by_batch[size] = job.run()
    return Result(model, even_looks(model), main.folder, rows, by_steps, by_batch)


def methods_of(model: str, names: Iterable[str]) -> list[str]:
    """The methods among `names` that work with a model."""
    has_cfg = MODELS[model].guidance_scale > 1
    return [name for name in names if has_cfg or name != "limited-interval"]


def even_looks(model: str) -> float:
    """Expected looks among the images of an open prompt if all looks were equally likely."""
    looks = prod(map(len, load_probe(asset(MODELS[model].probe)).attributes.values()))
    return looks * (1 - (1 - 1 / looks) ** COUNTS[OPEN][1])


def by_strength(results: Sequence[Result]) -> str:
    """A table with a row for each model and strength."""
    titles = ["model", "strength", "looks", "share of the possible gain", "named kept", "fidelity"]
    titles += ["evaluations", "best other that keeps as much"]
    cells = []
    for result in results:
        plain, *rest = result.rows
        name = f"{result.model}, {MODELS[result.model].steps} steps"
        looks, *others = _scores(plain)
        cells.append([name, UNGUIDED, looks, "", *others, "1.00 x", ""])
        for row in (row for row in rest if row.family == OURS):
            looks, *others = _scores(row)
            cost = f"{row.evaluations / plain.evaluations:.2f} x"
            best = result.best_other(row)
            rival = "" if best is None else f"{best.folder}: {best.looks['value']:.2f}"
            gain = f"{result.share(row):.2f}"
            cells.append(["", f"{row.strength:g}", looks, gain, *others, cost, rival])
    return table(titles, cells, 2)


def steps(results: Sequence[Result]) -> str:
    """A table with a row for each model, and a column for each number of steps."""
    counts = sorted({count for result in results for count in result.by_steps})
    cells = []
    for result in results:
        for i, name in enumerate((UNGUIDED, OURS)):
            line = ["" if i else result.model, name]
            for count in counts:
                row = result.by_steps[count][i] if count in result.by_steps else None
                line.append("-" if row is None else _short(row))
            cells.append(line)
    note = "Looks / named kept / network evaluations per image, by number of steps."
    return note + "\n\n" + table(["model", "", *map(str, counts)], cells, 2)


def _short(row: Row) -> str:
    return f"{row.looks['value']:.1f} / {row.kept['value']:.2f} / {row.evaluations:.0f}"


def batches(results: Sequence[Result]) -> str:
    """A table with a row for each model, and a column for each batch size."""
    sizes = [BATCH, *BATCHES]
    cells = [
        [result.model, *(f"{result.by_batch[n][1].looks['value']:.1f}" for n in sizes)]
        for result in results
    ]
    note = "Looks of 16 images per prompt, ours at its default, by batch size."
    return note + "\n\n" + table(["model", *map(str, sizes)], cells, 1)


def methods(results: Sequence[Result]) -> str:
    """A table with a row for each model, method and strength."""
    titles = ["model", "method", "strength", "looks", "named kept", "fidelity", "evaluations"]
    cells = [
        [
            "" if i else result.model,
            row.family,
            "" if row.strength is None else f"{row.strength:g}",
            *_scores(row),
            f"{row.evaluations:.1f}",
        ]
        for result in results
        for i, row in enumerate(result.rows)
    ]
    return table(titles, cells, 3)


def save_curves(path: Path, results: Sequence[Result]) -> None:
    """Plot the share of the possible gain against the share of named details kept.

    Each model has a panel, each method a line.
    """
    figure = Figure(figsize=(3.4 * len(results) + 1.8, 4), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    legend: dict[str, Any] = {}
    for axes, result in zip(panels, results, strict=True):
        plain = result.rows[0]
        for family in dict.fromkeys(row.family for row in result.rows):
            own = [row for row in result.rows if row.family == family]
            colour, marker = LINES.get(family.partition(",")[0], (GREY, "o"))
            rows = own if family == UNGUIDED else [plain, *own]
            kept, shares = [row.kept["value"] for row in rows], [*map(result.share, rows)]
            size = 10 if family == OURS else 6
            [line] = axes.plot(kept, shares, color=colour, marker=marker, markersize=size, lw=1.4)
            legend.setdefault(FAMILIES[family].title if family in FAMILIES else family, line)
        axes.set_xlim(1.01, min(row.kept["value"] for row in result.rows) - 0.02)
        axes.axhline(1, color="grey", lw=0.8, ls=":")
        axes.set_title(f"{result.model}, {MODELS[result.model].steps} steps", fontsize=10)
        axes.set_xlabel("named kept")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("share of the possible gain in looks")
    place: dict[str, Any] = {"loc": "outside right center", "frameon": False, "fontsize": 9}
    figure.legend(legend.values(), legend.keys(), **place)
    rendered = BytesIO()
    figure.savefig(rendered, format="png")
    reduced = Image.open(rendered).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    with whole_file(path) as temporary:  # 128 colours take a third of the space
        reduced.save(temporary, format="PNG", optimize=True)


def save_grid(path: Path, result: Result) -> None:
    """Save images of some prompts: unguided, the best other method, ours at 0.5 and at 1."""
    rows, folder = result.rows, result.folder
    ours = [row for row in rows if row.family == OURS and row.strength in (DIVERSITY, 1.0)]
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
    for line, row, own in zip(grid, shown, strips, strict=True):
        for axes, images in zip(line, own, strict=True):
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


def _with_interval(score: Record, spec: str) -> str:
    low, high = score["low"], score["high"]
    interval = "" if low is None else f" ({low:{spec}} to {high:{spec}})"
    return f"{score['value']:{spec}}{interval}"


if __name__ == "__main__":
    main()
