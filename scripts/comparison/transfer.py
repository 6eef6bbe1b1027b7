"""Put the comparisons of several models on one page: docs/transfer.md.

Each folder is the output of `python -m scripts.comparison.compare --frozen --model MODEL`, named as
its model. Writes transfer.md, the page's tables, transfer-curves.png, and the grid of every model.

The share of the possible gain is (looks - unguided) / (even - unguided), where `even` is how many
looks as many independent draws show whose looks are all equally likely.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from matplotlib.figure import Figure
from PIL import Image

from scripts.comparison.candidates import OURS, OURS_DEFAULT, UNGUIDED
from scripts.comparison.figures import STYLES, save_figure
from scripts.comparison.measures import KEPT, LOOKS
from scripts.comparison.plan import FINAL, OTHER_BATCHES, OTHER_SAMPLERS
from scripts.comparison.tables import markdown, number
from vendi_guidance.commands.cli import Command
from vendi_guidance.storage.files import whole_file

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

Record = dict[str, Any]
"""A row of comparison.json."""


class Result(NamedTuple):
    """The comparison of a model.

    Attributes:
        name: of the model.
        about: what all rows share.
        rows: of comparison.json.
    """

    name: str
    about: Record
    rows: list[Record]

    def of(self, kind: str, method: str, **also: Any) -> list[Record]:
        """Rows of a kind and method that agree with `also`."""
        wanted = {"kind": kind, "method": method} | also
        return [row for row in self.rows if all(row[k] == v for k, v in wanted.items())]

    @property
    def unguided(self) -> Record:
        return self.of(FINAL, UNGUIDED)[0]

    def share(self, looks: float, unguided: float | None = None) -> float:
        """Of the possible gain over the unguided."""
        plain = self.unguided[LOOKS] if unguided is None else unguided
        return (looks - plain) / (self.about["even_looks"] - plain)


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/transfer"))
def main(folders: tuple[Path, ...], output: Path) -> None:
    results = [read(folder) for folder in folders]
    output.mkdir(parents=True, exist_ok=True)
    save_curves(output / "transfer-curves.png", results)
    for folder, result in zip(folders, results, strict=True):
        with (
            Image.open(folder / "pictures.png") as opened,
            whole_file(output / f"transfer-{result.name}.webp") as temporary,
        ):
            half = opened.convert("RGB").reduce(2)
            half.save(temporary, format="WEBP", quality=60, method=6)
    parts = {
        "With the frozen default": frozen(results),
        "Steps": steps(results),
        "Batches": batches(results),
        "Every method": methods(results),
    }
    text = "\n\n".join(f"## {title}\n\n{part}" for title, part in parts.items())
    with whole_file(output / "transfer.md") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    click.echo(f"wrote {output / 'transfer.md'} and {1 + len(results)} pictures")


def read(folder: Path) -> Result:
    """The result in a folder.

    Raises:
        FileNotFoundError: there is none.
    """
    file = folder / "comparison.json"
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: run scripts.comparison.compare first")
    content = json.loads(file.read_text(encoding="utf-8"))
    return Result(folder.name, content, content.pop("rows"))


def frozen(results: Sequence[Result]) -> str:
    """A row a model and strength."""
    titles = ["model", "strength", "looks", "share of the possible gain", "named kept"]
    titles += ["fidelity", "nearest ratio", "evaluations", "best other at equal named kept"]
    cells = []
    for result in results:
        plain = result.unguided
        for row in [plain, *result.of(FINAL, OURS)]:
            is_plain = row is plain
            best = result.about["best_other"].get(str(row["strength"]), "-")
            cells.append(
                [
                    f"{result.name}, {row['steps']} steps" if is_plain else "",
                    "unguided" if is_plain else f"{row['strength']:g}",
                    _with_interval(row, LOOKS, ".2f"),
                    "" if is_plain else f"{result.share(row[LOOKS]):.2f}",
                    _with_interval(row, KEPT, ".3f"),
                    f"{row['fidelity']:.3f}",
                    number(row["probe_nearest_ratio"], ".2f"),
                    f"{row['evaluations'] / plain['evaluations']:.2f} x",
                    "" if is_plain else best,
                ]
            )
    return markdown(titles, cells, 2)


def steps(results: Sequence[Result]) -> str:
    """A row a model, and a column a number of steps."""
    numbers = sorted({row["steps"] for result in results for row in _by_steps(result, OURS)})
    cells = []
    for result in results:
        for method in (UNGUIDED, OURS):
            found = {row["steps"]: row for row in _by_steps(result, method)}
            counts = [_brief(found[n]) if n in found else "-" for n in numbers]
            cells.append([result.name if method == UNGUIDED else "", method, *counts])
    note = "Looks / named kept / network evaluations an image, at so many steps."
    return note + "\n\n" + markdown(["model", "", *map(str, numbers)], cells, 2)


def batches(results: Sequence[Result]) -> str:
    """A row a model, and a column a batch size."""
    sizes = [16, 4, 1]
    cells = []
    for result in results:
        found = {row["batch_size"]: row for row in result.of(OTHER_BATCHES, OURS)}
        looks = [found[size][LOOKS] if size in found else None for size in sizes]
        cells.append([result.name, *("-" if n is None else f"{n:.1f}" for n in looks)])
    note = "Looks of 16 images of a prompt, ours at its default, drawn in batches of 16, 4 and 1."
    return note + "\n\n" + markdown(["model", *map(str, sizes)], cells, 1)


def methods(results: Sequence[Result]) -> str:
    """A row a model, method and strength."""
    titles = ["model", "method", "strength", "looks", "named kept", "fidelity", "evaluations"]
    cells = [
        [
            result.name if row is result.rows[0] else "",
            row["method"],
            str(row["strength"]),
            _with_interval(row, LOOKS, ".2f"),
            _with_interval(row, KEPT, ".3f"),
            f"{row['fidelity']:.3f}",
            f"{row['evaluations']:.1f}",
        ]
        for result in results
        for row in result.rows
        if row["kind"] == FINAL
    ]
    return markdown(titles, cells, 3)


def save_curves(path: Path, results: Sequence[Result]) -> None:
    """Plot the share of the possible gain over named kept: a panel a model, a line a method."""
    figure = Figure(figsize=(3.4 * len(results) + 1.8, 4), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    named: dict[str, Any] = {}
    for axes, result in zip(panels, results, strict=True):
        finals = [row for row in result.rows if row["kind"] == FINAL]
        for method in dict.fromkeys(row["method"] for row in finals):
            own = [row for row in finals if row["method"] == method]
            line = own if method == UNGUIDED else [result.unguided, *own]
            colour, marker = STYLES[method]
            points = [(row[KEPT], result.share(row[LOOKS])) for row in line]
            size = 11 if method == OURS else 6
            [drawn] = axes.plot(
                *zip(*points, strict=True), color=colour, marker=marker, markersize=size, lw=1.4
            )
            named.setdefault(method, drawn)
        lowest = min(row[KEPT] for row in finals)
        axes.set_xlim(1.01, max(0.7, lowest - 0.02))
        axes.axhline(1, color="grey", lw=0.8, ls=":")
        axes.set_title(f"{result.name}, {result.unguided['steps']} steps", fontsize=10)
        axes.set_xlabel("named kept")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("share of the possible gain in looks")
    figure.legend(
        named.values(), named.keys(), loc="outside right center", frameon=False, fontsize=9
    )
    save_figure(path, figure)


def _by_steps(result: Result, method: str) -> list[Record]:
    rows = result.of(OTHER_SAMPLERS, method, sampler=result.about["sampler"])
    return [row for row in rows if method == UNGUIDED or row["strength"] == OURS_DEFAULT]


def _brief(row: Record) -> str:
    return f"{row[LOOKS]:.1f} / {number(row[KEPT], '.2f')} / {row['evaluations']:g}"


def _with_interval(row: Record, measure: str, form: str) -> str:
    ends = row[f"{measure}_low"], row[f"{measure}_high"]
    return number(row[measure], form, None if ends[0] is None else ends)


if __name__ == "__main__":
    main()
