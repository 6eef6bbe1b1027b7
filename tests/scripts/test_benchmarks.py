"""The command that measures all tables, in small."""

import torch

from scripts.benchmarks import __main__ as benchmarks, guidance, scores
from tests.helpers.commands import succeeds


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_table_is_filled_and_the_machine_named(tmp_path):
    succeeds(benchmarks.main, "--quick", "--device", "cpu", "--output", tmp_path / "new")
    lines = (tmp_path / "new" / "benchmarks.md").read_text().splitlines()
    assert f"torch {torch.__version__}" in lines[0]
    rows = [cells_of(line) for line in lines if line.startswith("| ") and line[2].isdigit()]
    methods = [row for row in rows if row[0] == "200"]
    *rows, one, eight, sixteen = rows
    assert [row[1] for row in (one, eight, sixteen)] == ["1", "8", "16"]  # calls of the demo
    steps = [row for row in rows if row[0] == "8"]
    names = benchmarks.QUICK[200]
    assert [row[1] for row in methods] == [scores.METHODS[name].name for name in names]
    assert len(steps) == 2 * len(guidance.KERNELS)
    assert all(len(row) == 8 for row in rows)
    ratios = [row[6] for row in methods] + [row[5] for row in (one, eight, sixteen)]
    ratios += [row[i] for row in steps for i in (3, 4, 6, 7)]
    assert all(float(ratio) > 0 for ratio in ratios)
