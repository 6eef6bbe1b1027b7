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
from scripts.demo.emoji import VENDORS, Emoji, caption, load_sheets
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.imagefolder import METADATA, image_name

SHIFT, SHADE = 4, 0.3
"""Pixels, and share of the brightness."""


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pictures", type=click.IntRange(1), default=10_000)
@click.option("--runs", type=click.IntRange(1, 2), default=1, help="2 are compared.")
@click.option("--threads", type=click.IntRange(1), default=2)
def main(pictures: int, runs: int, threads: int) -> None:
    torch.set_num_threads(threads)
    click.echo(machine(torch.device("cpu")))
    emoji = load_sheets(asset("demo-pictures"))
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, f"run-{number}") for number in range(runs)]
        for seed, folder in enumerate(folders):
            draw(emoji, folder, pictures, np.random.default_rng(seed))
        words = [sys.executable, "-m", "vendi_guidance", "evaluate", *folders]
        words += ["--output", Path(name, "report")]
        command = [str(word) for word in words]
        begun = perf_counter()
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
        wall = perf_counter() - begun
        size = Path(name, "report", "report.html").stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    click.echo(
        f"{runs} x {pictures:,} pictures: {wall:.0f} s on the wall, "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU, {used.ru_maxrss / 2**20:.2f} GiB at most; "
        f"a page of {size / 2**20:.1f} MiB"
    )


def draw(emoji: Emoji, folder: Path, count: int, rng: np.random.Generator) -> None:
    """Write a run of images, each in a random look of its vendor."""
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
