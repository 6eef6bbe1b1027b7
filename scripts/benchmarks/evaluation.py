"""Time and memory of evaluating many images of 64 pixels and writing their report.

Makes a run of the demo's emoji, each shifted and shaded at random, whose prompts name emoji and
vendor; then starts `evaluate` on it and prints its time and memory.

\b
  python -m scripts.benchmarks.evaluation --pictures 10000
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import click
import numpy as np
import torch
from PIL import Image

from scripts.benchmarks.measuring import machine
from scripts.demo.emoji import VENDORS, caption, load_sheets
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.imagefolder import METADATA, image_name

SHIFT, SHADE = 4, 0.3
"""Pixels, and share of the brightness."""


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pictures", type=click.IntRange(1), default=10_000)
@click.option("--threads", type=click.IntRange(1), default=2)
def main(pictures: int, threads: int) -> None:
    torch.set_num_threads(threads)
    click.echo(machine(torch.device("cpu")))
    with tempfile.TemporaryDirectory() as name:
        run, report = Path(name, "run"), Path(name, "report")
        save_run(run, pictures)
        words = ["-m", "vendi_guidance", "evaluate", str(run), "--output", str(report)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        begun = perf_counter()
        subprocess.run([sys.executable, *words], check=True, env=environment)
        wall = perf_counter() - begun
        size = (report / "report.html").stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    click.echo(
        f"{pictures:,} images: {wall:.0f} s on the wall, {used.ru_utime + used.ru_stime:.0f} s of "
        f"CPU, {used.ru_maxrss / 2**20:.2f} GiB at most; a page of {size / 2**20:.1f} MiB"
    )


def save_run(folder: Path, count: int) -> None:
    """Write a run of images, each in a random look of its vendor."""
    emoji, rng = load_sheets(asset("demo-pictures")), np.random.default_rng(0)
    folder.mkdir()
    with (folder / METADATA).open("w") as metadata:
        for number in range(count):
            concept, vendor = number % len(emoji.concepts), int(rng.integers(len(VENDORS)))
            pixels = emoji.pixels[concept, vendor, int(rng.integers(emoji.pixels.shape[2]))]
            ink = 255 - pixels.permute(1, 2, 0).numpy()
            moved = np.roll(ink, rng.integers(-SHIFT, SHIFT + 1, size=2), axis=(0, 1))
            shaded = 255 - moved * (1 - SHADE * rng.random())
            name = image_name(number)
            Image.fromarray(shaded.astype(np.uint8)).save(folder / name)
            prompt = caption(emoji.concepts[concept], VENDORS[vendor])
            metadata.write(json.dumps({"file_name": name, "prompt": prompt}) + "\n")


if __name__ == "__main__":
    main()
