"""The command that measures all tables, in small."""

import torch
from click.testing import CliRunner

from scripts.benchmarks import __main__ as benchmarks, guidance, scores


def run(tmp_path, *words) -> list[str]:
    given = ("--quick", "--device", "cpu", "--output", str(tmp_path / "new"), *words)
    result = CliRunner().invoke(benchmarks.main, given)
    assert result.exit_code == 0, result.output
    return (tmp_path / "new" / "benchmarks.md").read_text().splitlines()


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_table_is_filled_and_the_machine_named(tmp_path):
    lines = run(tmp_path)
    assert f"torch {torch.__version__}" in lines[0]
    rows = [cells_of(line) for line in lines if line.startswith("| ") and line[2].isdigit()]
    methods = [row for row in rows if row[0] == "200"]
    steps = [row for row in rows if row[0] == "8"]
    names = benchmarks.QUICK[200]
    assert [row[1] for row in methods] == [scores.METHODS[name].name for name in names]
    assert len(steps) == 2 * len(guidance.KERNELS)
    assert all(len(row) == 8 for row in rows)
    ratios = [row[6] for row in methods] + [row[i] for row in steps for i in (3, 4, 6, 7)]
    assert all(float(ratio) > 0 for ratio in ratios)


def test_a_row_that_there_is_no_time_for_stays_empty(tmp_path):
    lines = run(tmp_path, "--minutes", "1e-9")
    assert "| 200 | RKE | no time left |  |  |  |  |  |" in lines
    assert "| 8 | 1 | - | - | - | - | - | - |" in lines


def test_time_is_divided_among_the_rows_that_are_left():
    clock = benchmarks.Clock(8, 4)
    shares = [clock.run(lambda seconds: seconds) for _ in range(4)]
    assert [round(share) for share in shares] == [2, 3, 4, 8]
