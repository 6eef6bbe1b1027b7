"""The command that measures all tables, in small."""

import pytest
import torch

from scripts.benchmarks import __main__ as benchmarks, guidance, scores
from tests.helpers.commands import succeeds


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_table_is_filled_and_the_machine_named(tmp_path):
    quick = "--quick", "--device", "cpu", "--output", tmp_path
    succeeds(benchmarks.main, *quick)
    page = (tmp_path / "benchmarks.md").read_text()
    assert f"torch {torch.__version__}" in page.splitlines()[0]
    rows = [cells_of(line) for line in page.splitlines() if line.startswith("| ")]
    methods = [row for row in rows if row[0] == "200"]
    steps = [row for row in rows if row[0] == "8"]
    [call, guided, stock] = [row for row in rows if row[1] == "1" and "demo" in row[0]]
    names = benchmarks.QUICK[200]
    assert [row[1] for row in methods] == [scores.METHODS[name].name for name in names]
    assert len(steps) == 2 * len(guidance.KERNELS)
    ratios = [row[6] for row in methods] + [call[5], *guided[3:8], *stock[3:5]]
    ratios += [row[i] for row in steps for i in (3, 4, 6, 7)]
    assert all(float(ratio) > 0 for ratio in ratios)

    (tmp_path / "benchmarks.md").write_text(page.replace("torch", "another torch"))
    with pytest.raises(AssertionError, match="was measured on another machine"):
        succeeds(benchmarks.main, *quick, "--only", "scores")
