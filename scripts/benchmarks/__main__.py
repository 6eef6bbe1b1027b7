"""Measure every table of docs/benchmarks.md on one device, within ten minutes.

The time is divided evenly among the remaining rows; rows that it does not suffice for stay empty.
On a CPU the largest rows take longer: give more --minutes there.

\b
  python -m scripts.benchmarks --device cuda --output out/benchmarks
  python -m scripts.benchmarks --quick                                small sizes, to see it work

Writes benchmarks.md into the output folder.
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import click
import torch
from tqdm import tqdm

from scripts.benchmarks import guidance, scores
from scripts.benchmarks.measuring import device_option, machine
from vendi_guidance.commands.cli import Command
from vendi_guidance.storage.files import whole_file

T = TypeVar("T")

LONGEST = 10.0
"""Seconds after which a row begins no further round."""

SCORES = {
    4_000: [name for name in scores.METHODS if name not in ("nystrom", "fkea")],
    8_000: ["truncated", "lanczos"],
    10_000: ["rke", "conditional-rke"],
    50_000: ["rke", "conditional-rke", "nystrom", "fkea"],
}
"""Methods by number of items."""

ON_GPU, QUICK = {250_000: ["conditional-rke", "fkea"]}, {200: [*SCORES[4_000], "fkea"]}
FOURIER_FEATURES = {250_000: 16_000, 200: 50}
"""By number of items; 4,000 for all others."""


class Clock:
    """Divides seconds evenly among rows."""

    def __init__(self, seconds: float, rows: int) -> None:
        self.end = perf_counter() + seconds
        self.bar = tqdm(total=rows, unit="row", leave=False)

    def run(self, measure: Callable[[float], T]) -> T | None:
        """What `measure` returns, given the seconds for one row; None where none are left."""
        left = self.end - perf_counter()
        found = measure(min(LONGEST, left / (self.bar.total - self.bar.n))) if left > 0 else None
        self.bar.update()
        return found


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@device_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/benchmarks"))
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=9.0)
@click.option("--quick", is_flag=True, help="Small sizes, whose times say nothing.")
def main(device: torch.device, output: Path, minutes: float, quick: bool) -> None:
    on_gpu = device.type == "cuda"
    items = QUICK if quick else SCORES | ON_GPU if on_gpu else SCORES
    windows, batches = ((8,), (1, 2)) if quick else (guidance.WINDOWS, guidance.BATCHES)
    beside_model = on_gpu and not quick
    steps = len(guidance.KERNELS) * len(windows) * len(batches) * sum(map(len, guidance.PAIRS))
    rows = sum(map(len, items.values())) + steps + 1 + beside_model
    clock = Clock(60 * minutes, rows)
    # first, because nothing can cut it short
    model = clock.run(lambda _: guidance.model_lines(device)) if beside_model else None
    demo = clock.run(lambda _: guidance.demo_lines(device)) or []
    lines = scores.lines(items, lambda n: FOURIER_FEATURES.get(n, 4_000), device, clock.run)
    parts = [f"{machine(device)}.", "## Scores", "\n".join(lines)]
    parts += ["## Guidance", *guidance.tables(windows, batches, device, clock.run)]
    parts += ["Whole calls:", "\n".join([*guidance.HEAD, *demo, *(model or [])])]
    output.mkdir(parents=True, exist_ok=True)
    with whole_file(output / "benchmarks.md") as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    click.echo(f"wrote {output / 'benchmarks.md'}")


if __name__ == "__main__":
    main(prog_name="python -m scripts.benchmarks")
