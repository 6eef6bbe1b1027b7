"""The page of several models, of comparisons made by hand."""

import pytest
from click.testing import CliRunner
from PIL import Image

from scripts.comparison.candidates import OURS_DEFAULT, ours, unguided
from scripts.comparison.compare import best_others, even_looks
from scripts.comparison.plan import FINAL, OTHER_BATCHES, OTHER_SAMPLERS
from scripts.comparison.tables import save_json
from scripts.comparison.transfer import main, read
from tests.scripts.test_comparison_files import ABOUT, cads, row

OURS = ours(OURS_DEFAULT, 5.0)
ROWS = [
    row(unguided(5.0), FINAL, [2.0, 2.0], 1.0),
    row(cads(0.25), FINAL, [3.0, 5.0], 0.98),
    row(OURS, FINAL, [6.0, 6.0], 0.97),
    *(row(OURS, OTHER_SAMPLERS, [looks] * 2, 0.97, steps=n) for n, looks in ((1, 3.0), (12, 6.5))),
    row(unguided(5.0), OTHER_SAMPLERS, [2.5, 2.5], 1.0),
    row(OURS, OTHER_BATCHES, [5.5, 5.5], 0.97, batch_size=4),
]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "demo-tiny"
    folder.mkdir()
    about = {"even_looks": 10.0, "best_other": {"0.5": "cads 4.00"}, "sampler": "ddim"}
    save_json(folder / "comparison.json", ROWS, ABOUT | about)
    Image.new("RGB", (64, 64)).save(folder / "pictures.png")
    return folder


def test_a_share_of_the_possible_gain_is_0_unguided_and_1_for_even_draws(folder):
    result = read(folder)
    assert [result.share(looks) for looks in (2.0, 6.0, 10.0)] == [0, 0.5, 1]


def test_the_page_has_every_model_step_batch_and_method(folder, tmp_path):
    done = CliRunner().invoke(main, [str(folder), "--output", str(tmp_path / "page")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "transfer.md").read_text()
    assert "| | 0.5 | 6.00 (6.00 to 6.00) | 0.50 |" in page.replace("|  |", "| |")
    assert "cads 4.00" in page
    assert "| 3.0 / 0.97 / 24 | 6.5 / 0.97 / 24 |" in page
    assert "| demo-tiny | - | 5.5 | - |" in page
    for name in ("transfer-curves.png", "transfer-demo-tiny.webp"):
        with Image.open(tmp_path / "page" / name) as opened:
            opened.verify()


def test_a_folder_without_a_comparison_is_named(tmp_path):
    done = CliRunner().invoke(main, [str(tmp_path)])
    assert done.exit_code == 2 and "comparison.json: run scripts.comparison.compare" in done.output


def test_even_draws_show_all_looks_in_the_end():
    assert even_looks(18, 1) == pytest.approx(1)
    assert even_looks(2, 2) == pytest.approx(1.5)
    assert even_looks(18, 16) == pytest.approx(10.79, abs=0.01)
    assert even_looks(18, 1000) == pytest.approx(18)


def test_the_best_other_method_is_that_with_most_looks_at_what_ours_keeps():
    assert best_others(ROWS) == {"0.5": "cads 4.00"}
