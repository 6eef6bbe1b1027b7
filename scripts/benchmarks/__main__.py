"""Measure all tables of docs/benchmarks.md on one device.

\b
  python -m scripts.benchmarks --device cuda --output out/benchmarks
  python -m scripts.benchmarks --quick                                small sizes, as a smoke test

Takes under five minutes on a GPU, half an hour on a laptop's CPU. Writes benchmarks.md after every
row; parts that it does not measure stay there.
"""

from pathlib import Path

import click
import torch

from scripts.benchmarks import calls, guidance, scores
from scripts.benchmarks.measuring import Page, device_option, several
from vendi_guidance.commands.cli import Command

SCORES = {
    4_000: [name for name in scores.METHODS if name != "fkea"],
    8_000: ["truncated", "lanczos"],
    10_000: ["rke", "conditional-rke"],
    50_000: ["rke", "conditional-rke", "fkea"],
}
"""Number of items -> methods to measure."""

ON_GPU, QUICK = {250_000: ["conditional-rke", "fkea"]}, {200: [*SCORES[4_000], "fkea"]}

PARTS = "scores", "guidance", "calls", "sdxl"


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@device_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/benchmarks"))
@click.option("--quick", is_flag=True, help="Small sizes, as a smoke test; the times mean nothing.")
@several(
    "--only", "names", click.Choice(PARTS), [], "Parts to measure. Default: all; sdxl on a GPU."
)
def main(device: torch.device, output: Path, quick: bool, names: tuple[str, ...]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    on_gpu = device.type == "cuda"
    items = QUICK if quick else SCORES | ON_GPU if on_gpu else SCORES
    windows, batches = ((8,), (1, 2)) if quick else (guidance.WINDOWS, guidance.BATCHES)
    demo, sdxl = (calls.tables(name, device, quick) for name in calls.MODELS)
    versions = scores.tables(items, device), guidance.tables(windows, batches, device), demo, sdxl
    page = Page(output / "benchmarks.md", device)
    for part, tables in zip(PARTS, versions, strict=True):
        if part in names or (not names and (on_gpu or part != "sdxl")):
            page.write(part, tables)


if __name__ == "__main__":
    main(prog_name="python -m scripts.benchmarks")
