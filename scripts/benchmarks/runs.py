"""The cost of a run apart from generating images (docs/scaling.md).

Sizes are SDXL's at 1024 pixels: latents of 4 x 128 x 128, pooled prompt embeddings of 1,280. Timed
are opening a long file of prompts, and the work after each batch of eight: samples are exchanged
between two processes (gloo, on this machine), appended to a window of 300 and saved as a
checkpoint, and images are saved as PNG. All times are CPU times of this process, which depend
little on what else the machine does.
"""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image, ImageFilter
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from scripts.benchmarks.measuring import Task, measure, random_samples
from vendi_guidance.guidance.window import Finished, SlidingWindow, counts_of, named
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.runs.folder import Checkpoints, Progress
from vendi_guidance.storage.imagefolder import save_image
from vendi_guidance.storage.images import open_image
from vendi_guidance.storage.prompt_files import open_prompts

BATCH, WINDOW = 8, 300


def tasks(device: torch.device, tiny: bool) -> Iterator[Task]:
    """Costs in milliseconds and megabytes, on a CPU."""
    if device.type != "cpu":
        return
    prompts, about = 100 if tiny else 1_000_000, {"window": WINDOW, "batch": BATCH}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for suffix in ("txt", "jsonl", "csv"):
            cost = partial(of_prompts, folder / f"prompts.{suffix}", prompts)
            yield Task("Files of prompts", {"file": suffix, "prompts": prompts}, cost)
        yield Task("Checkpoints", about, partial(of_checkpoints, folder, random_samples(BATCH)))
        yield Task("Image files", {"file": "png"}, partial(of_image, folder / "image.png"))
        yield Task("An exchange between two processes", {"batch": BATCH}, of_exchange)


def milliseconds(function: Callable[[], object], most: int = 20) -> float:
    """The shortest of several CPU times."""
    [measured] = measure([function], torch.device("cpu"), math.inf, most=most)
    return 1e3 * measured.cpu


def of_prompts(path: Path, lines: int) -> dict[str, object]:
    """Opening and checking a file of prompts."""
    with path.open("w", encoding="utf-8") as file:
        file.write("prompt\n" * (path.suffix == ".csv"))
        for number in range(lines):
            prompt = f"a photograph of object number {number}"
            line = json.dumps({"prompt": prompt}) if path.suffix == ".jsonl" else prompt
            file.write(f"{line}\n")
    checked = milliseconds(lambda: open_prompts(str(path)), 1)
    return {"MB": path.stat().st_size / 1e6, "check, ms": checked}


def of_checkpoints(folder: Path, samples: Finished) -> dict[str, object]:
    """Appending a batch to a full window, writing its checkpoint and restoring the window."""
    window, checkpoints = SlidingWindow(WINDOW), Checkpoints(folder / "checkpoints", WINDOW)
    while len(window) < WINDOW:
        window.append(*samples)
    added = milliseconds(lambda: window.append(*samples))
    numbers = count(1)

    def write() -> None:
        entered = counts_of([samples] * next(numbers))
        checkpoints.add(Progress(entered.total(), 0, BATCH, dict(entered)), [samples])

    written = milliseconds(write, -(-WINDOW // BATCH))
    size = max(file.stat().st_size for file in checkpoints.folder.iterdir()) / 1e6
    restored = milliseconds(lambda: checkpoints.restore(SlidingWindow(WINDOW), "cpu"), 3)
    return {"add, ms": added, "write, ms": written, "MB": size, "restore, ms": restored}


def of_image(path: Path) -> dict[str, object]:
    """Writing and reading blurred noise, which is about as compressible as a photograph."""
    noise = Image.effect_noise((512, 512), 80).resize((1024, 1024)).filter(ImageFilter.BoxBlur(2))
    image = Image.merge("RGB", [noise, noise.rotate(90), noise.rotate(180)])
    written = milliseconds(lambda: save_image(path, image), 3)
    read = milliseconds(lambda: open_image(path.read_bytes()), 3)
    return {"write, ms": written, "read, ms": read, "MB": path.stat().st_size / 1e6}


def of_exchange() -> dict[str, object]:
    """The exchange of a batch; each process runs `exchange` in the environment of `torchrun`."""
    local = LaunchConfig(1, 1, 2, run_id="runs", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0")
    return {"ms": max(elastic_launch(local, exchange)(random_samples(BATCH)).values())}


def exchange(samples: Finished) -> float:
    torch.set_num_threads(1)
    with process_group("cpu") as group:
        return milliseconds(lambda: group.share(None, **named([samples])))
