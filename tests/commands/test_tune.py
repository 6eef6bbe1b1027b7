"""`vendi-guidance tune` on a tiny random SDXL."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import Result

from tests.helpers.commands import assert_refused, contents, invoke, repeatable, said_by
from tests.helpers.runs import read_run
from vendi_guidance.commands import tune
from vendi_guidance.features.probe import Probe
from vendi_guidance.tuning.dial import NO_JUDGE

VALUES = ["diversity-0.0", "diversity-0.5", "diversity-1.0"]
HOSTILE = "xylograph, {{ 7 * 7 }} </style><script>document.title = 'owned'</script>"


@pytest.fixture(scope="module")
def words(tiny_sdxl_folder, tmp_path_factory) -> list[str]:
    """A sweep of two prompts, all but its values and its folder."""
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in (HOSTILE, "b")))
    words = [prompts, "--model", tiny_sdxl_folder, "--device", "cpu", "--steps", 2]
    words += ["--images-per-prompt", 2, "--image-embedder", "pixels:4"]
    return [*map(str, words), "--prompt-embedder", f"sdxl:{tiny_sdxl_folder}"]


def swept(words: list[str], output: Path, *more: object) -> Result:
    values = () if "--diversity" in more else ("--diversity", 1, "--diversity", 0.5)
    return invoke(tune.main, *words, *values, "--output", output, *more)


@pytest.fixture(scope="module")
def peace(words, tmp_path_factory) -> Path:
    """The folder of a sweep that was not interrupted."""
    folder = tmp_path_factory.mktemp("tune") / "peace"
    assert NO_JUDGE in said_by(swept(words, folder))
    return folder


def test_the_same_prompts_and_seeds_are_generated_at_each_value_and_at_0(peace):
    runs = {path.name: read_run(path) for path in sorted(peace.glob("diversity-*"))}
    assert list(runs) == VALUES
    first, *others = ([(r["prompt"], r["seed"]) for r in run.rows] for run in runs.values())
    assert others == [first, first] and len(first) == 4
    assert len({run.pixels.tobytes() for run in runs.values()}) == 3


def test_the_page_needs_nothing_else_shows_prompts_as_text_and_misses_a_judge(peace):
    page = (peace / "tune.html").read_text()
    assert "{{ 7 * 7 }} &lt;/style&gt;&lt;script&gt;" in page and "<script" not in page
    assert set(re.findall(r'(?:src|href)="(data:|#|\w+:|/)', page)) == {"data:", "#"}
    assert page.count("<img src") == 3 * 2 * 2
    assert re.findall(r'<th scope="row">([^<]+)<', page) == ["0", "0.5", "1"]
    assert NO_JUDGE in page and "chosen" not in page


def test_a_judge_reuses_the_images_and_the_page_names_the_value_it_keeps(words, peace, tmp_path):
    copied = shutil.copytree(peace, tmp_path / "copied")
    probe = Probe(["xylograph"], [("tone", ["light", "dark"])], "{concept}, {tone} skin tone")
    probe.save_pretrained(tmp_path / "probe")  # it sees a xylograph in every image
    shutil.rmtree(copied / VALUES[-1])  # as if the sweep had been interrupted before it
    said = said_by(swept(words, copied, "--probe", tmp_path / "probe"))
    page, chosen = (copied / "tune.html").read_text(), "1 is the largest value here that keeps 0.98"
    assert all(chosen in text for text in (said, page)) and "prompt fidelity" in page
    assert NO_JUDGE in said_by(swept(words, copied))
    for run in VALUES:
        assert repeatable(copied / run) == repeatable(peace / run)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--keep", "nan"], ("--keep", "nan")),
        (["--diversity", 0], ("--diversity 0", "a value above it")),
        (["--attributes", "none.json"], ("none.json",)),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_written(words, tmp_path, options, said):
    assert_refused(swept(words, tmp_path / "out", *options), *said)
    assert not (tmp_path / "out").exists()


def test_other_settings_and_other_folders_are_left_alone(words, peace, tmp_path):
    (tmp_path / "notes.md").write_text("mine")
    before = contents(peace)
    assert_refused(swept(words, tmp_path), "not empty")
    assert_refused(swept(words, peace, "--seed", 7), "--seed is 7, was 0")
    assert contents(peace) == before and contents(tmp_path) == {"notes.md": b"mine"}
