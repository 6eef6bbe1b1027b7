"""Runs on disk and back."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vendi_guidance.storage.files import append_rows
from vendi_guidance.storage.imagefolder import (
    METADATA,
    TIMINGS,
    picture_name,
    read_metadata,
    remove_pictures,
    save_picture,
)
from vendi_guidance.storage.images import open_picture

AWKWARD = [
    'a "quoted" cat, 50% off',
    "two\nlines\r\nand\ttabs",
    "кошка 猫 🐈‍⬛ é \u2028 end",
    "\u202eright to left عربي\u202c",
    "../../etc/passwd",
    "<script>alert(1)</script> $x^2$",
    '=HYPERLINK("http://x"); $(rm -rf /) `id`',
    "NUL \0 inside",
    "long " * 2000,
]


def picture(seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(256, size=(8, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def write_run(folder: Path, prompts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, prompt in enumerate(prompts):
        name = picture_name(number)
        save_picture(folder / name, picture(number), {"prompt": prompt})
        append_rows(folder / METADATA, [{"file_name": name, "prompt": prompt, "seed": number}])
    return folder


def test_a_run_reads_back_as_it_was_written(tmp_path):
    run = read_metadata(write_run(tmp_path, AWKWARD))
    assert [listed.row["prompt"] for listed in run] == AWKWARD
    assert [listed.row["seed"] for listed in run] == list(range(len(AWKWARD)))
    for number, listed in enumerate(run):
        image = open_picture(listed.path)
        assert np.array_equal(np.asarray(image), np.asarray(picture(number)))


def test_pictures_are_named_by_number_and_nothing_else_is_left(tmp_path):
    write_run(tmp_path, AWKWARD)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {METADATA, *(f"{number:06d}.png" for number in range(len(AWKWARD)))}


def test_metadata_holds_one_line_a_picture_whatever_the_prompt(tmp_path):
    write_run(tmp_path, AWKWARD)
    text = (tmp_path / METADATA).read_text(encoding="utf-8")
    assert text.isascii()
    assert [json.loads(line)["prompt"] for line in text.splitlines()] == AWKWARD


def test_a_picture_that_cannot_be_written_leaves_no_trace(tmp_path):
    class Broken:
        def save(self, path, **_):
            Path(path).write_bytes(b"half a pict")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_picture(tmp_path / "000000.png", Broken())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_removing_a_run_keeps_what_is_not_its_own(tmp_path):
    write_run(tmp_path, ["cat"])
    append_rows(tmp_path / TIMINGS, [{"file_name": "000000.png", "seconds": 1.5}])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "comparison.png").write_bytes(b"mine")
    remove_pictures(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"notes.txt", "comparison.png"}


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"metadata\.jsonl"):
        read_metadata(tmp_path)
    (tmp_path / METADATA).touch()
    with pytest.raises(ValueError, match="the run has no images"):
        read_metadata(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "cat"}', "line 2 has no text under the key 'file_name'"),
        ('{"file_name": "0000', "line 2 is not JSON"),
    ],
)
def test_a_broken_line_of_metadata_is_named(tmp_path, line, message):
    write_run(tmp_path, ["cat"])
    with (tmp_path / METADATA).open("a") as lines:
        lines.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        read_metadata(tmp_path)


def test_a_last_line_that_a_crash_has_torn_is_left_out(tmp_path):
    write_run(tmp_path, ["cat", "dog"])
    whole = (tmp_path / METADATA).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first + 1, len(whole) - 1):
        (tmp_path / METADATA).write_bytes(whole[:cut])
        assert [listed.row["prompt"] for listed in read_metadata(tmp_path)] == ["cat"]


def test_seconds_are_read_from_beside_the_metadata(tmp_path):
    write_run(tmp_path, ["cat", "dog", "cow"])
    timings = [{"file_name": picture_name(number), "seconds": 9.0} for number in (0, 2)]
    append_rows(tmp_path / TIMINGS, [*timings, {"file_name": picture_name(2), "seconds": 0.5}])
    with (tmp_path / TIMINGS).open("a") as lines:
        lines.write('{"file_na')
    assert [listed.row.get("seconds") for listed in read_metadata(tmp_path)] == [9.0, None, 0.5]


@pytest.mark.parametrize(
    "name",
    ["../outside.png", "/etc/hostname", "a/../../outside.png", "link/outside.png", "a\0.png"],
)
def test_a_picture_outside_the_folder_is_not_read(tmp_path, name):
    folder = write_run(tmp_path / "run", ["cat"])
    save_picture(tmp_path / "outside.png", picture())
    (folder / "a").mkdir()
    (folder / "link").symlink_to(tmp_path)
    append_rows(folder / METADATA, [{"file_name": name, "prompt": "dog"}])
    with pytest.raises(ValueError, match=r"line 2 names .* is not in"):
        read_metadata(folder)


@pytest.mark.parametrize("prompt", AWKWARD)
def test_a_picture_carries_what_is_known_of_it(tmp_path, prompt):
    path = tmp_path / "a.png"
    save_picture(path, picture(), {"prompt": prompt, "seed": 7, "scale": 0.3, "center": None})
    with Image.open(path) as opened:
        assert opened.text == {"prompt": prompt, "seed": "7", "scale": "0.3", "center": "null"}
        assert np.array_equal(np.asarray(opened), np.asarray(picture()))
    assert b"iTXt" in path.read_bytes()


def test_a_picture_can_carry_nothing(tmp_path):
    save_picture(tmp_path / "a.png", picture())
    with Image.open(tmp_path / "a.png") as opened:
        assert opened.text == {}


def test_a_file_name_that_is_no_text_does_not_stop_a_picture(tmp_path):
    save_picture(tmp_path / "a.png", picture(), {"model": "caf\udce9"})
    with Image.open(tmp_path / "a.png") as opened:
        assert opened.text == {"model": "caf?"}
