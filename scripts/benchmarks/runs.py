"""The cost of a run besides generating images, and of scoring many besides their features.

Sizes are SDXL's at 1024 pixels: latents of 4 x 128 x 128, pooled prompt embeddings of 1,280. Timed
are opening a long file of prompts, and what follows each batch: samples are exchanged with other
processes (gloo, on this machine), appended to the window and saved as a checkpoint, and images are
saved as PNG; then reading images and listing their files, and the sums of a score by random Fourier
features. Times are CPU time of this process, so that a busy machine changes little; where it waits
for a disk or another process, wall-clock time is printed too.

\b
  python -m scripts.benchmarks.runs --prompts 1000000
"""

import json
import math
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path

import click
import torch
from PIL import Image, ImageFilter
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from scripts.benchmarks.measuring import Measured, machine, measure
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.checkpoints import Checkpoint, Checkpoints, Progress, RunWindow
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.scores.metrics import VendiScore
from vendi_guidance.scores.spectra import RandomFourier
from vendi_guidance.storage.imagefolder import image_name, save_image
from vendi_guidance.storage.images import open_image
from vendi_guidance.storage.prompt_files import open_prompts

LATENTS, PROMPT = (4, 128, 128), 1280
WIDTH, RANDOM_FEATURES = 1024, 2000
"""Of DINOv2's features, and of a score by random Fourier features."""


REPEATS = 20


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--prompts", type=click.IntRange(1), default=100_000, help="Lines of the file.")
@click.option("--batch-size", type=click.IntRange(1), default=8)
@click.option("--window", type=click.IntRange(1), default=300)
@click.option("--processes", type=click.IntRange(2), default=2)
def main(prompts: int, batch_size: int, window: int, processes: int) -> None:
    click.echo(machine(torch.device("cpu")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("txt", "jsonl", "csv"):
            prompt_file(folder / f"prompts.{kind}", prompts)
        samples = torch.randn(batch_size, *LATENTS), torch.randn(batch_size, PROMPT)
        batches(folder, samples, window)
        exchange(samples, processes)
        picture(folder / "picture.png")
    paths()
    sums()


def prompt_file(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as lines:
        lines.write("prompt\n" * (path.suffix == ".csv"))
        for number in range(count):
            prompt = f"a photograph of object number {number}"
            line = json.dumps({"prompt": prompt}) if path.suffix == ".jsonl" else prompt
            lines.write(f"{line}\n")
    checking = shortest(lambda: open_prompts(str(path)), 1).cpu
    opened = open_prompts(str(path))
    skipping = shortest(lambda: next(opened.starting_at(count - 1)), 1).cpu
    tracemalloc.start()
    deque(open_prompts(str(path)), maxlen=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    click.echo(
        f"{path.name}, {count:,} lines, {path.stat().st_size / 1e6:.1f} MB: {checking:.2f} CPU "
        f"seconds to check, {skipping:.2f} to reach the last, {peak / 1e6:.2f} MB at most"
    )


def batches(folder: Path, samples: tuple[torch.Tensor, torch.Tensor], size: int) -> None:
    """Append a batch to a full window, write its checkpoint, restore the window."""
    latents, prompts = samples
    window, checkpoints = RunWindow(size), Checkpoints(folder / "checkpoints", size)
    while window.entered < size:
        window.append(latents, prompts)
    entering = shortest(lambda: window.append(latents, prompts))
    number = 0

    def write() -> None:
        nonlocal number
        number += 1
        entered = number * len(latents)
        progress = Progress(entered, 0, len(latents), entered - len(latents), entered)
        checkpoints.add(Checkpoint(progress, latents, prompts))

    writing = shortest(write, max(REPEATS, -(-size // len(latents))))
    files = list(checkpoints.folder.iterdir())
    length = max(file.stat().st_size for file in files)
    restoring = shortest(lambda: checkpoints.restore(RunWindow(size), "cpu"), 3)
    click.echo(
        f"a batch of {len(latents)}: {1e3 * entering.cpu:.1f} ms to enter a window of {size}, "
        f"{1e3 * writing.cpu:.1f} ms ({1e3 * writing.seconds:.1f} on the wall) to write "
        f"{length / 1e6:.2f} MB; {len(files)} files are kept, {1e3 * restoring.cpu:.0f} ms to go "
        "on from them"
    )


def picture(path: Path) -> None:
    """Write and read blurred noise, about as hard to compress as a photograph."""
    noise = Image.effect_noise((512, 512), 80).resize((1024, 1024)).filter(ImageFilter.BoxBlur(2))
    image = Image.merge("RGB", [noise, noise.rotate(90), noise.rotate(180)])
    writing = shortest(lambda: save_image(path, image), 3)
    reading = shortest(lambda: open_image(path.read_bytes()), 3)
    click.echo(
        f"a picture: {1e3 * writing.cpu:.0f} ms ({1e3 * writing.seconds:.0f} on the wall) to write "
        f"{path.stat().st_size / 1e6:.2f} MB, {1e3 * reading.cpu:.0f} ms to read it"
    )


def exchange(samples: tuple[torch.Tensor, torch.Tensor], processes: int) -> None:
    here = LaunchConfig(
        *(1, 1, processes),
        run_id="runs",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        start_method="spawn",
    )
    elastic_launch(here, share)(samples)


def share(samples: tuple[torch.Tensor, torch.Tensor]) -> None:
    """What each process does, in the environment that `torchrun` sets."""
    torch.set_num_threads(1)
    with process_group("cpu") as group:
        latents, prompts = samples
        sharing = shortest(lambda: group.share(None, latents=latents, prompts=prompts))
    if group.is_first:
        size = sum(part.nbytes for part in samples)
        click.echo(
            f"{group.count} processes: {1e3 * sharing.cpu:.1f} ms "
            f"({1e3 * sharing.seconds:.1f} on the wall) until each has the {size / 1e6:.2f} MB of "
            "every other"
        )


def paths(count: int = 100_000) -> None:
    tracemalloc.start()
    kept = [Path(f"out/many/{image_name(number)}") for number in range(count)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    click.echo(f"the path of a picture: {size / len(kept):.0f} bytes of memory")


def sums(count: int = 10_000) -> None:
    features = torch.randn(count, WIDTH)
    score = VendiScore(Gaussian(25.0), spectrum=RandomFourier(RANDOM_FEATURES))
    adding = shortest(lambda: score.update(features), 3)
    click.echo(
        f"{RANDOM_FEATURES} random features of {WIDTH} numbers: {1e6 * adding.cpu / count:.0f} us "
        f"to add a picture to sums of {8 * RANDOM_FEATURES**2 / 1e6:.0f} MB"
    )


def shortest(act: Callable[[], object], repeats: int = REPEATS) -> Measured:
    """The shortest of several times."""
    [found] = measure([act], torch.device("cpu"), math.inf, most=repeats)
    return found


if __name__ == "__main__":
    main()
