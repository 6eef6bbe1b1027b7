"""Measure the cost of a run apart from generating images (docs/scaling.md).

Sizes are SDXL's at 1024 pixels: latents of 4 x 128 x 128, pooled prompt embeddings of 1,280. Timed
are opening a long file of prompts, and the work after each batch of eight: samples are exchanged
between two processes (gloo, on this machine), appended to a window of 300 and saved as a
checkpoint, and images are saved as PNG. All times are CPU times of this process, which depend
little on what else the machine does.

\b
  python -m scripts.benchmarks.runs --prompts 1000000
"""

import json
import math
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path

import click
import torch
from PIL import Image, ImageFilter
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from scripts.benchmarks.measuring import machine, measure, random_samples
from vendi_guidance.guidance.window import Finished, SlidingWindow, counts_of, named
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.runs.folder import Checkpoints, Progress
from vendi_guidance.storage.imagefolder import save_image
from vendi_guidance.storage.images import open_image
from vendi_guidance.storage.prompt_files import open_prompts

BATCH, WINDOW = 8, 300


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--prompts", type=click.IntRange(1), default=100_000, help="Prompts in the file.")
def main(prompts: int) -> None:
    click.echo(machine(torch.device("cpu")))
    samples = random_samples(BATCH)
    with tempfile.TemporaryDirectory() as name:
        for suffix in ("txt", "jsonl", "csv"):
            time_prompt_file(Path(name, f"prompts.{suffix}"), prompts)
        time_checkpoints(Path(name), samples)
        time_image_file(Path(name, "image.png"))
    local = LaunchConfig(1, 1, 2, run_id="runs", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0")
    elastic_launch(local, time_exchange)(samples)


def print_time(title: str, function: Callable[[], object], most: int = 20) -> None:
    """Print the shortest of several CPU times."""
    [measured] = measure([function], torch.device("cpu"), math.inf, most=most)
    click.echo(f"{title}: {1e3 * measured.cpu:.1f} ms")


def time_prompt_file(path: Path, lines: int) -> None:
    """Write a file of prompts, and time opening and reading it."""
    with path.open("w", encoding="utf-8") as file:
        file.write("prompt\n" * (path.suffix == ".csv"))
        for number in range(lines):
            prompt = f"a photograph of object number {number}"
            line = json.dumps({"prompt": prompt}) if path.suffix == ".jsonl" else prompt
            file.write(f"{line}\n")
    size = path.stat().st_size / 1e6
    print_time(f"check {size:.1f} MB of {path.suffix}", lambda: open_prompts(str(path)), 1)
    opened = open_prompts(str(path))
    print_time("skip to the last prompt", lambda: next(opened.starting_at(lines - 1)), 1)
    tracemalloc.start()
    deque(open_prompts(str(path)), maxlen=0)
    click.echo(f"peak memory: {tracemalloc.get_traced_memory()[1] / 1e6:.2f} MB")
    tracemalloc.stop()


def time_checkpoints(folder: Path, samples: Finished) -> None:
    """Time appending a batch to a full window, writing its checkpoint and restoring the window."""
    window, checkpoints = SlidingWindow(WINDOW), Checkpoints(folder / "checkpoints", WINDOW)
    while len(window) < WINDOW:
        window.append(*samples)
    print_time("add a batch to a full window", lambda: window.append(*samples))
    numbers = count(1)

    def write() -> None:
        entered = counts_of([samples] * next(numbers))
        checkpoints.add(Progress(entered.total(), 0, BATCH, entered), [samples])

    print_time("write its checkpoint", write, -(-WINDOW // BATCH))
    length = max(file.stat().st_size for file in checkpoints.folder.iterdir())
    click.echo(f"its size: {length / 1e6:.2f} MB")
    print_time("restore the window", lambda: checkpoints.restore(SlidingWindow(WINDOW), "cpu"), 3)


def time_image_file(path: Path) -> None:
    """Time writing and reading blurred noise, which is about as compressible as a photograph."""
    noise = Image.effect_noise((512, 512), 80).resize((1024, 1024)).filter(ImageFilter.BoxBlur(2))
    image = Image.merge("RGB", [noise, noise.rotate(90), noise.rotate(180)])
    print_time("write an image", lambda: save_image(path, image), 3)
    size = path.stat().st_size / 1e6
    print_time(f"read its {size:.2f} MB", lambda: open_image(path.read_bytes()), 3)


def time_exchange(samples: Finished) -> None:
    """Time the exchange of a batch; each process runs this in the environment of `torchrun`."""
    torch.set_num_threads(1)
    with process_group("cpu") as group:
        print_time("exchange a batch", lambda: group.share(None, **named([samples])))


if __name__ == "__main__":
    main()
