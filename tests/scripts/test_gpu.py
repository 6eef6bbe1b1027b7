"""The command that measures a GPU, in small and on a CPU."""

import pytest
import torch

from scripts.benchmarks import calls, guidance
from scripts.benchmarks.measuring import Task, machine
from scripts.gpu import __main__ as gpu
from scripts.gpu.record import HEADING, OLD, Record, read, write_tables
from tests.helpers.commands import succeeds

CPU = torch.device("cpu")
TABLES = ["Tests", "Whole calls", "Phases at batch 1"]
TABLES += [f"Steps in the space `{space}`" for space in guidance.KERNELS]
TABLES += ["Scores", "A tile fused by torch.compile", "Demo models", "The dial on further models"]
TABLES += ["Files of prompts", "Checkpoints", "Image files", "An exchange between two processes"]


@pytest.mark.slow
def test_every_stage_is_measured_and_none_twice(tmp_path, tiny_sdxl_folder):
    tiny = "--tiny", "--device", "cpu", "--output", tmp_path, "--minutes", 600
    said = succeeds(gpu.main, *tiny, "--model", tiny_sdxl_folder).output
    rows = read(tmp_path)
    assert [*dict.fromkeys(row["table"] for row in rows)] == TABLES, said
    calls_of = {row["about"]["model"] for row in rows if row["table"] == "Whole calls"}
    assert calls_of == {"demo", *calls.SIZES, *(f"{name}, compiled" for name in calls.SIZES)}
    assert rows[0]["cells"]["failed"] == 0 and "100%" in (tmp_path / "tests.log").read_text()
    [dial] = [row["cells"] for row in rows if row["table"] == "The dial on further models"]
    assert [*dial] == ["0", "0.25", "0.5", "0.75", "1"]
    times = [value for row in rows for title, value in row["cells"].items() if title.endswith("s")]
    assert all(time > 0 for time in times if isinstance(time, float))

    succeeds(gpu.main, *tiny, "--only", "scores", "--only", "tests")
    assert read(tmp_path) == rows


def task(table="Steps", batch=1, seconds=0.25):
    return Task(table, {"window": 300, "batch": batch}, lambda: {"seconds": seconds})


def test_what_fails_is_named_and_no_row(tmp_path):
    def fail():
        raise torch.OutOfMemoryError("out of memory\nmore")

    record = Record(tmp_path, CPU)
    said = record.measure(task()._replace(measure=fail))
    assert said == "Steps, 300, 1: OutOfMemoryError, out of memory" and not record.has(task())


def test_tables_keep_machines_apart_and_mark_earlier_versions(tmp_path):
    record = Record(tmp_path, CPU)
    version = record.by["version"]
    record.by["version"] = "earlier"
    for batch in (1, 8):
        record.measure(task(batch=batch))
    record.by["version"] = version
    record.measure(task(seconds=1234.5))
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{HEADING}How.\n\n### Another card\n\nIts table.\n")
    for _ in range(2):
        write_tables(tmp_path, page)
    how, other, own = page.read_text().split("\n\n### ")
    assert how.endswith("How.") and other == "Another card\n\nIts table."
    assert own.splitlines()[:3] == [
        machine(CPU),
        "",
        f"Version {version}; rows with{OLD} of earlier.",
    ]
    rows = [line for line in own.splitlines() if line.startswith("| 300")]
    assert rows == ["| 300 | 1 | 1,234 |", f"| 300{OLD} | 8 | 0.25 |"]


@pytest.mark.parametrize("stage", [*gpu.STAGES])
def test_a_stage_has_no_more_than_its_time(tmp_path, stage):
    job = gpu.Job(CPU, tmp_path, True, [tmp_path], tmp_path, end=0.0)
    for found in gpu.STAGES[stage][1](job):
        if found.table in ("Tests", "Demo models", "The dial on further models"):
            assert "TimeoutExpired" in Record(tmp_path, CPU).measure(found)
