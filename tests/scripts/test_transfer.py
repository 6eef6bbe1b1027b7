"""The page of several models: a small comparison, and tables of numbers made by hand."""

import pytest
from PIL import Image

from scripts.comparison import transfer

MODEL = "demo-sdxl-turbo-lora"


def row(family: str, strength: float | None, looks: float, kept: float) -> transfer.Row:
    of_looks = {"value": looks, "low": looks - 1, "high": looks + 1}
    of_kept = {"value": kept, "low": None, "high": None}
    folder = family if strength is None else f"{family}-{strength:g}"
    evaluations = 8.0 if family == "ours" else 4.0
    return transfer.Row(family, strength, folder, of_looks, of_kept, 1.0, evaluations)


ROWS = [
    row("unguided", None, 2.0, 1.0),
    row("ours", 0.5, 6.0, 0.97),
    row("ours", 1.0, 8.0, 0.9),
    row("seed-variance", 8.0, 3.0, 0.98),
    row("seed-variance", 16.0, 7.0, 0.95),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> transfer.Job:
    """Two prompts that a model drew."""
    counts = {transfer.OPEN: (1, 2), transfer.NAMED: (1, 2)}
    found = transfer.Job(tmp_path_factory.mktemp("job"), MODEL, counts, ["ours=0.5,1"], 1)
    found.run()
    return found


@pytest.fixture
def result(job) -> transfer.Result:
    by_batch = {16: ROWS[:2], 4: ROWS[:2], 1: [ROWS[0], ROWS[2]]}
    return transfer.Result(MODEL, 10.0, job.folder, ROWS, {2: ROWS[:2]}, by_batch)


def test_images_of_both_kinds_of_prompts_are_made_and_judged(job):
    rows = job.rows()
    found = [(one.family, one.strength) for one in rows]
    assert found == [("unguided", None), ("ours", 0.5), ("ours", 1.0)]
    assert all(1 <= one.looks["value"] <= 2 and 0 <= one.kept["value"] <= 1 for one in rows)
    assert [one.evaluations for one in rows] == [1, 3, 3]  # one step, and its rounds
    assert len(list((job.folder / transfer.NAMED / "ours-0.5").glob("*.png"))) == 2


def test_the_share_of_the_possible_gain_and_the_best_other_method(result):
    even = row("ours", 1.0, result.even, 1.0)
    assert [result.share(one) for one in (ROWS[0], ROWS[1], even)] == [0, 0.5, 1]
    # it has most looks of those that keep as much
    assert [result.best_other(one) for one in ROWS[:3]] == [None, ROWS[3], ROWS[4]]
    assert transfer.even_looks(MODEL) == pytest.approx(10.79, abs=0.01)


def test_the_page_has_every_model_step_batch_and_method(result):
    main = transfer.by_strength([result])
    assert "|  | 0.5 | 6.00 (5.00 to 7.00) | 0.50 | 0.970 | 1.000 | 2.00 x |" in main
    assert "seed-variance-8: 3.00" in main and "seed-variance-16: 7.00" in main
    assert "| 6.0 / 0.97 / 8 |" in transfer.steps([result])
    assert f"| {MODEL} | 6.0 | 6.0 | 8.0 |" in transfer.batches([result])
    assert len(transfer.methods([result]).splitlines()) == 2 + len(ROWS)


def test_curves_and_grids_are_images(result, tmp_path):
    transfer.save_curves(tmp_path / "curves.png", [result])
    transfer.save_grid(tmp_path / "grid.webp", result._replace(rows=ROWS[:3]))
    for name in ("curves.png", "grid.webp"):
        with Image.open(tmp_path / name) as opened:
            assert opened.size[0] > 200
    assert len(list(tmp_path.iterdir())) == 2
