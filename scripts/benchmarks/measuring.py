"""Shared by the benchmarks: tasks, time, peak memory, the machine's name, options and tables."""

import ctypes
import math
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import click
import torch
from torch import Tensor

from vendi_guidance.commands.run_options import DEVICE
from vendi_guidance.storage.files import whole_file

LATENT, POOLED = (4, 128, 128), 1280
"""Shape of SDXL's latents at 1024 pixels, and width of its pooled prompt embeddings."""

CLUSTERS = 50

_MEMORY_STATUS, _RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Task(NamedTuple):
    """A row of a table, to be measured.

    Attributes:
        table: the table's title.
        about: the row's first cells, by their titles: what is measured.
        measure: returns the other cells, by title: numbers, texts, or None for what is unknown.
    """

    table: str
    about: Mapping[str, object]
    measure: Callable[[], Mapping[str, object]]


class Measured(NamedTuple):
    """The best of several runs of a function.

    Attributes:
        seconds: wall-clock time, including the device's work.
        cpu: CPU time of this process, in seconds.
        peak: peak memory in MiB beyond what was allocated before; None if unknown.
        result: the last return value.
    """

    seconds: float = math.inf
    cpu: float = math.inf
    peak: float | None = None
    result: Any = None


def ratio(run: Measured, baseline: Measured) -> str:
    """A function's time divided by its baseline's, for a table."""
    return f"{run.seconds / baseline.seconds:.2f}"


def cell(value: object) -> str:
    """A value in a table: three significant digits, or whole numbers from 100 on."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def measure(
    functions: Sequence[Callable[[], Any]],
    device: torch.device,
    budget: float = 4,
    least: int = 1,
    most: int = 5,
) -> list[Measured]:
    """Run functions in turn, so that a busy machine slows all of them, and keep the best times.

    Args:
        functions: functions to time.
        device: where they compute.
        budget: seconds after which no further round begins.
        least, most: limits of the number of rounds.
    """
    best = [Measured()] * len(functions)
    began = perf_counter()
    rounds = 0
    while rounds < least or (rounds < most and perf_counter() - began < budget):
        for i, function in enumerate(functions):
            allocated = _reset_peak(device, trim=rounds == 0)
            start, cpu = perf_counter(), process_time()
            result = function()
            synchronize(device)
            seconds = min(best[i].seconds, perf_counter() - start)
            cpu = min(best[i].cpu, process_time() - cpu)
            peak = _peak_since(device, allocated)
            peak = None if peak is None else max(peak, best[i].peak or 0)
            best[i] = Measured(seconds, cpu, peak, result)
        rounds += 1
    return best


def synchronize(device: torch.device) -> None:
    """Wait for the device's work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> str:
    """The device with its threads or memory, and the versions that timings depend on."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        card = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        return f"{card}, driver {_driver()}; {versions}"
    return f"{_processor()}, {torch.get_num_threads()} threads; {versions}"


def random_samples(count: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """(count, 4, 128, 128) latents, and (count, 1280) embeddings of prompts, of which 50 differ."""
    generator = torch.Generator(device).manual_seed(0)
    prompts = torch.randn(CLUSTERS, POOLED, generator=generator, device=device)
    chosen = torch.randint(CLUSTERS, (count,), device=device)
    return torch.randn(count, *LATENT, device=device), prompts[chosen]


device_option = click.option(
    "--device", type=torch.device, default=DEVICE, show_default="a GPU, else cpu"
)


def several(
    flag: str, name: str, kind: click.ParamType, default: Iterable[Any], help: str
) -> Callable[[Any], Any]:
    """A click option that may be given more than once."""
    shown: Any = "all" if isinstance(kind, click.Choice) else True
    help += " May be given more than once."
    return click.option(
        flag, name, multiple=True, type=kind, default=[*default], show_default=shown, help=help
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], text_columns: int) -> str:
    """A Markdown table; columns after the first `text_columns` are numbers, aligned right."""
    rules = ["---"] * text_columns + ["--:"] * (len(titles) - text_columns)
    lines = [titles, rules, *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def save_text(path: Path, text: str) -> None:
    """Write a text file and print its path."""
    with whole_file(path) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")
    click.echo(f"wrote {path}")


def _reset_peak(device: torch.device, trim: bool) -> int | None:
    """Reset the peak memory; returns the bytes allocated now, or None if that is unknown."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    if not _RESET_PEAK.exists():
        return None
    if trim:  # otherwise memory that earlier runs freed would hide what this one allocates
        ctypes.CDLL(None).malloc_trim(0)
    _RESET_PEAK.write_text("5")
    return _status("VmRSS")


def _peak_since(device: torch.device, allocated: int | None) -> float | None:
    """In MiB."""
    if allocated is None:
        return None
    cuda = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if cuda else _status("VmHWM")
    return max(0, peak - allocated) / 2**20


def _status(name: str) -> int:
    """A memory figure of this process from the kernel, in bytes."""
    lines = _MEMORY_STATUS.read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _driver() -> str:
    """The version of NVIDIA's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1] if found else platform.processor() or platform.machine()
