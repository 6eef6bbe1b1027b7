"""The command that copies the most diverse images."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.helpers.batches_at_hand import greys, save_batch
from tests.helpers.commands import assert_refused, invoke, said_by
from vendi_guidance.commands import select

LEVELS = (0, 0, 0, 100, 100, 110, 250, 250)  # copies, and greys that are close or far


@pytest.fixture
def folder(tmp_path) -> Path:
    rows = [{"prompt": "<b>cat" if place < 4 else "dog"} for place in range(len(LEVELS))]
    return save_batch(tmp_path / "grey", greys(*LEVELS), rows)


def selected(folder: Path, *words: object, to: str = "few"):
    out = ("--image-embedder", "pixels:1", "--output", folder.parent / to)
    return invoke(select.main, folder, *out, "-k", *words)


def rows_of(folder: Path) -> list[dict]:
    lines = (folder.parent / "few" / "metadata.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_first_image_is_in_the_middle_and_copies_never_fill_a_selection(folder):
    said = said_by(selected(folder, 8))
    assert "4 images of 8" in said and "Fewer than 8: there are no others" in said
    sources = [Path(row["source"]) for row in rows_of(folder)]
    levels = [LEVELS[int(source.stem)] for source in sources]
    assert levels[:3] == [100, 250, 0] and sorted(levels) == sorted({*LEVELS})
    for number, (row, source) in enumerate(zip(rows_of(folder), sources, strict=True), start=1):
        assert row["file_name"] == f"{number:06d}.png"
        assert (folder.parent / "few" / row["file_name"]).read_bytes() == source.read_bytes()


def test_each_prompt_has_its_own_selection_and_unreadable_files_are_named(folder):
    (folder / "7.png").write_bytes(b"broken")
    said = said_by(selected(folder, 3, "--per-prompt"))
    assert "7.png" in said and "Fewer than 3 of 1 prompt" in said
    assert [row["prompt"] for row in rows_of(folder)] == ["<b>cat"] * 2 + ["dog"] * 3
    page = (folder.parent / "few" / "sheet.html").read_text()
    assert "&lt;b&gt;cat" in page and page.count("<img") == 5


def test_wrong_input_is_named_and_nothing_is_left_behind(folder, monkeypatch):
    assert_refused(selected(folder, 2, to="grey"), "grey exists: name a new folder")
    (folder / "metadata.jsonl").unlink()
    assert_refused(selected(folder, 2, "--per-prompt"), "no prompts: leave --per-prompt out")
    with monkeypatch.context() as patch:
        patch.setattr(select, "MOST", 7)
        assert_refused(selected(folder, 2), "8 images are too many")
    monkeypatch.setattr(select, "render", Mock(side_effect=OSError("the disk is full")))
    assert_refused(selected(folder, 2), "the disk is full")
    assert [entry.name for entry in folder.parent.iterdir()] == ["grey"]
