"""Measure all that docs/benchmarks.md has of a GPU, what matters most first.

\b
  python -m scripts.gpu --output out/gpu --minutes 12
  python -m scripts.gpu --tables out/gpu                  writes the page's tables of GPUs
  python -m scripts.gpu --device cpu --only scores        one stage, on a CPU
  python -m scripts.gpu --only dial --model FOLDER        the dial on your model

The stages are tests, whole calls, guidance steps, scores, the demo models at the default, the dial
on models of yours (five values, judged by CLIP where OpenCLIP is installed), a longer training on
photographs, and on a CPU what a run costs beside. Each has a share of the time. Every row is saved
once it is measured, so the command may be stopped at any moment; repeated, it measures what is
missing. --tiny tries all stages at the smallest size; its times mean nothing.
"""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import click
import diffusers
import torch

from scripts.benchmarks import calls, guidance, runs, scores
from scripts.benchmarks.measuring import Task, device_option, several
from scripts.comparison.choose import CHOSEN_ON
from scripts.gpu.record import Record, write_tables
from vendi_guidance.commands.cli import Command
from vendi_guidance.storage.prompt_files import save_prompts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
TESTED = "kernels", "scores", "guidance", "adapter", "pipelines", "features"
LONGER: dict[str, tuple[object, ...]] = {  # the trainings of scripts/demo, ten times as long
    "tune_photos": ("--steps", 15_000),
    "train_turbo": ("--model", "demo-photos-tuned-turbo-lora", "--chunks", 20, "--steps", 4_500),
}
PROMPTS = (
    *("a doctor", "a teacher reading", "a person waving", "a dog", "a bird on a branch"),
    *("a bowl of soup", "a birthday cake", "a living room", "a small house", "a castle"),
    *("a city street", "a mountain lake"),
)


@dataclass
class Job:
    """What stages are given; `photographs` is a folder to train on, `end` that of the stage."""

    device: torch.device
    output: Path
    tiny: bool
    models: Sequence[Path]
    photographs: Path | None
    end: float = math.inf

    def run(self, log: str, *words: object, check: bool = True) -> list[str]:
        """Run a module until the stage ends; returns its lines, which are kept in a log.
        SubprocessError if it fails, and `check` is set, or there was no time left."""
        path, left = self.output / f"{log}.log", max(1, self.end - monotonic())
        command = [sys.executable, "-m", *map(str, words), "--device", str(self.device)]
        with path.open("w", encoding="utf-8") as file:
            to: dict[str, Any] = {"stdout": file, "stderr": subprocess.STDOUT, "cwd": ROOT}
            subprocess.run(command, timeout=left, check=check, **to)
        return path.read_text("utf-8").splitlines()


def test(job: Job) -> Iterator[Task]:
    def run() -> dict[str, object]:
        where = [f"tests/{it}" for it in TESTED]
        where = ["tests/kernels/test_subsets.py"] if job.tiny else where
        how = "-rfE", "--tb=short", "-n", 0 if job.tiny else 4
        lines = job.run("tests", "pytest", *where, *how, check=False)
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        (job.output / "tests.log").write_text("\n".join([*failed, *lines]), "utf-8")
        return {"failed": len(failed), "in words": lines[-1].strip("= ")}

    yield Task("Tests", {"of": "kernels to features"}, run)


def compare(job: Job) -> Iterator[Task]:
    def choose(model: str) -> dict[str, object]:
        log, words = job.output / f"{model}.jsonl", ["--model", model, "--seed", 0]
        words += ["--open", 1, "--named", 1] if job.tiny else ["--seed", 1000, "--seed", 2000]
        words += ["--log", log, "--output", job.output / "choose"]
        job.run(f"choose-{model}", "scripts.comparison.choose", *words)
        line = json.loads(log.read_text("utf-8").splitlines()[-1])
        kinds = {"stock": line["unguided"], "default": line["scores"]}
        titles = product(("looks", "named kept"), kinds)
        return {f"{title}, {kind}": kinds[kind][title] for title, kind in titles}

    for model in ["demo-sdxl-turbo-lora"] if job.tiny else CHOSEN_ON:
        yield Task("Demo models", {"model": model}, partial(choose, model))


def try_dial(job: Job) -> Iterator[Task]:
    texts = [f"a photo of {it}" for it in PROMPTS[: 1 if job.tiny else None]]
    prompts = save_prompts(job.output / "prompts.jsonl", texts)

    def tune(folder: Path) -> dict[str, object]:
        words = [prompts, "--model", folder.resolve(), "--output", job.output / folder.name]
        words += ["--clip", "clip"] if find_spec("open_clip") and not job.tiny else []
        words += ["--images-per-prompt", 2, "--steps", 1] if job.tiny else []
        lines = job.run(f"tune-{folder.name}", "vendi_guidance", "tune", *words)
        rows = (line.partition(": ") for line in lines)
        return {value: found for value, _, found in rows if value.replace(".", "").isdigit()}

    for folder in job.models:
        yield Task("The dial on further models", {"model": folder.name}, partial(tune, folder))


def train(job: Job) -> Iterator[Task]:
    assets = job.output / "assets"  # trainings write there

    def longer(name: str) -> dict[str, object]:
        began = monotonic()
        if not assets.exists():
            shutil.copytree(ROOT / "assets", assets)
        words = ["--assets", assets, "--work", job.output / name, *LONGER[name]]
        words += ["--data", job.photographs] if name == "tune_photos" else []
        job.run(name, f"scripts.demo.{name}", *words)
        return {"seconds": monotonic() - began}

    for name in LONGER if job.photographs else ():
        yield Task("Longer trainings", {"training": name}, partial(longer, name))


STAGES: dict[str, tuple[float, Callable[[Job], Iterator[Task]]]] = {
    "tests": (2, test),
    "calls": (4, lambda job: calls.tasks(job.device, job.tiny)),
    "steps": (0.5, lambda job: guidance.tasks(job.device, job.tiny)),
    "scores": (1.5, lambda job: scores.tasks(job.device, job.tiny)),
    "demos": (2.5, compare),
    "dial": (math.inf, try_dial),
    "training": (math.inf, train),
    "runs": (math.inf, lambda job: runs.tasks(job.device, job.tiny)),
}
"""Name -> its most minutes out of 12, and its rows."""
FOLDER = click.Path(path_type=Path)


@click.command(cls=Command, help=__doc__)
@device_option
@click.option("--output", type=FOLDER, default=Path("out/gpu"))
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=12.0)
@several("--only", "names", click.Choice([*STAGES]), STAGES, "Stage to run.")
@several("--model", "models", FOLDER, (), "Folder of a pipeline, for the dial.")
@click.option("--train", "photographs", type=FOLDER, help="Folder of photographs to train on.")
@click.option("--tiny", is_flag=True, help="Try all stages; the times mean nothing.")
@click.option("--tables", type=FOLDER, help="Write the tables of this folder, and measure nothing.")
def main(
    device: torch.device, minutes: float, names: Sequence[str], tables: Path | None, **given: Any
) -> None:
    if tables is not None:
        write_tables(tables, PAGE)
        return
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    given["output"] = output = given["output"].absolute()  # processes run in the repository
    output.mkdir(parents=True, exist_ok=True)
    job, record, last = Job(device, **given), Record(output, device), monotonic() + 60 * minutes
    for name in names:
        limit, tasks = STAGES[name]
        job.end = min(last, monotonic() + 60 * limit * minutes / 12)
        for task in tasks(job):
            if monotonic() >= job.end:
                click.echo(f"{name}: no time left for {task.table}, {task.about}")
                break
            if not record.has(task):
                click.echo(f"{name}: {record.measure(task)}")
        calls.pipeline_of.cache_clear()  # makes room for processes
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(prog_name="python -m scripts.gpu")
