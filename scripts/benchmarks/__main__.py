"""Measure every table of docs/benchmarks.md on one device: under ten minutes on a GPU, and half an
hour on a laptop's CPU.

\b
  python -m scripts.benchmarks --device cuda --output out/benchmarks
  python -m scripts.benchmarks --quick                                small sizes, to see it work

Writes benchmarks.md into the output folder.
"""

from pathlib import Path

import click
import torch

from scripts.benchmarks import guidance, scores
from scripts.benchmarks.measuring import device_option, machine
from vendi_guidance.commands.cli import Command
from vendi_guidance.storage.files import whole_file

SCORES = {
    4_000: [name for name in scores.METHODS if name not in ("nystrom", "fkea")],
    8_000: ["truncated", "lanczos"],
    10_000: ["rke", "conditional-rke"],
    50_000: ["rke", "conditional-rke", "nystrom", "fkea"],
}
"""Methods by number of items."""

ON_GPU, QUICK = {250_000: ["conditional-rke", "fkea"]}, {200: [*SCORES[4_000], "fkea"]}


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@device_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/benchmarks"))
@click.option("--quick", is_flag=True, help="Small sizes, whose times say nothing.")
def main(device: torch.device, output: Path, quick: bool) -> None:
    output.mkdir(parents=True, exist_ok=True)
    on_gpu = device.type == "cuda"
    items = QUICK if quick else SCORES | ON_GPU if on_gpu else SCORES
    windows, batches = ((8,), (1, 2)) if quick else (guidance.WINDOWS, guidance.BATCHES)
    lines = scores.lines(items, device)
    parts = [f"{machine(device)}.", "## Scores", "\n".join(lines)]
    parts += ["## Guidance", *guidance.tables(windows, batches, device)]
    parts += ["Whole calls at the default:", "\n".join(guidance.calls(device))]
    with whole_file(output / "benchmarks.md") as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    click.echo(f"wrote {output / 'benchmarks.md'}")


if __name__ == "__main__":
    main(prog_name="python -m scripts.benchmarks")
