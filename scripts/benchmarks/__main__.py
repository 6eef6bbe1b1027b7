"""Measure all tables of docs/benchmarks.md on one device.

\b
  python -m scripts.benchmarks --device cuda --output out/benchmarks
  python -m scripts.benchmarks --quick                                small sizes, as a smoke test

Takes under ten minutes on a GPU, half an hour on a laptop's CPU. Writes benchmarks.md.
"""

from pathlib import Path

import click
import torch

from scripts.benchmarks import guidance, scores
from scripts.benchmarks.measuring import device_option, machine, save_text
from vendi_guidance.commands.cli import Command

SCORES = {
    4_000: [name for name in scores.METHODS if name not in ("nystrom", "fkea")],
    8_000: ["truncated", "lanczos"],
    10_000: ["rke", "conditional-rke"],
    50_000: ["rke", "conditional-rke", "nystrom", "fkea"],
}
"""Number of items -> methods to measure."""

ON_GPU, QUICK = {250_000: ["conditional-rke", "fkea"]}, {200: [*SCORES[4_000], "fkea"]}


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@device_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/benchmarks"))
@click.option("--quick", is_flag=True, help="Small sizes, as a smoke test; the times mean nothing.")
def main(device: torch.device, output: Path, quick: bool) -> None:
    output.mkdir(parents=True, exist_ok=True)
    on_gpu = device.type == "cuda"
    items = QUICK if quick else SCORES | ON_GPU if on_gpu else SCORES
    windows, batches = ((8,), (1, 2)) if quick else (guidance.WINDOWS, guidance.BATCHES)
    parts = [f"{machine(device)}.", "## Scores", scores.all_methods(items, device)]
    parts += ["## Guidance", *guidance.tables(windows, batches, device)]
    parts += ["Whole calls at the default:", guidance.calls(device)]
    save_text(output / "benchmarks.md", "\n\n".join(parts))


if __name__ == "__main__":
    main(prog_name="python -m scripts.benchmarks")
