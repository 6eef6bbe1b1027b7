"""Runs written to disk and read back."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vendi_guidance.storage.files import append_rows
from vendi_guidance.storage.imagefolder import (
    METADATA,
    TIMINGS,
    image_name,
    read_metadata,
    save_image,
)
from vendi_guidance.storage.images import list_files, open_image

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
    "\ufeffmark",
    "-rf",
    "con",
]


OUTSIDE = ["../outside.png", "/etc/hostname", "a/../../outside.png", "link/../x.png", "a\0.png"]


def noise(seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(256, size=(8, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def write_run(folder: Path, prompts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, prompt in enumerate(prompts):
        name = image_name(number)
        save_image(folder / name, noise(number), {"prompt": prompt})
        append_rows(folder / METADATA, [{"file_name": name, "prompt": prompt, "seed": number}])
    return folder


def test_a_run_reads_back_as_it_was_written(tmp_path):
    run = read_metadata(write_run(tmp_path, AWKWARD))
    assert [listed.row["prompt"] for listed in run] == AWKWARD
    assert [listed.row["seed"] for listed in run] == list(range(len(AWKWARD)))
    for number, listed in enumerate(run):
        assert listed.path == tmp_path / f"{number:06d}.png"
        image = open_image(listed.path)
        assert np.array_equal(np.asarray(image), np.asarray(noise(number)))
    names = {METADATA, *(listed.path.name for listed in run)}
    assert {file.name for file in tmp_path.iterdir()} == names
    text = (tmp_path / METADATA).read_text(encoding="utf-8")
    assert text.isascii()  # one line per image, whatever the prompt
    assert [json.loads(line)["prompt"] for line in text.splitlines()] == AWKWARD
    append_rows(tmp_path / METADATA, [{"file_name": f"./{image_name(0)}", "prompt": "again"}])
    assert read_metadata(tmp_path) == run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "cat"}', "line 2 has no text under the key 'file_name'"),
        ('{"file_name": "0000', "line 2 is not JSON"),
        *((json.dumps({"file_name": name}), "line 2 names .* is not in") for name in OUTSIDE),
        (None, "the run has no images"),
    ],
)
def test_metadata_that_cannot_be_read_is_named(tmp_path, line, message):
    folder = tmp_path / "run"
    with pytest.raises(FileNotFoundError, match=r"metadata\.jsonl"):
        read_metadata(folder)
    write_run(folder, ["cat"] if line else [])
    save_image(tmp_path / "outside.png", noise())
    (folder / "a").mkdir()
    (folder / "link").symlink_to(tmp_path)
    with (folder / METADATA).open("a") as lines:
        lines.write(f"{line}\n" if line else "")
    with pytest.raises(ValueError, match=message):
        read_metadata(folder)


def test_images_may_be_links_to_anywhere_and_linked_folders_are_listed_once(tmp_path):
    folder, blobs = write_run(tmp_path / "snapshots", ["cat"]), tmp_path / "blobs"
    blobs.mkdir()
    (folder / image_name(0)).rename(blobs / "9a8b")
    (folder / image_name(0)).symlink_to("../blobs/9a8b")
    assert open_image(read_metadata(folder)[0].path).size == (8, 8)
    write_run(tmp_path / "more", ["dog"])
    for name, target in (("again", "."), ("deep", "../more"), ("twice", "../more")):
        (folder / name).symlink_to(target)
    (tmp_path / "more/up").symlink_to("..")
    assert len(list_files(folder)[0]) == 2


def test_an_incomplete_last_line_is_ignored(tmp_path):
    write_run(tmp_path, ["cat", "dog"])
    timings = [("000000.png", 9.0), ("000001.png", 9.0), ("000000.png", 0.5)]
    append_rows(tmp_path / TIMINGS, [{"file_name": n, "seconds": s} for n, s in timings])
    with (tmp_path / TIMINGS).open("a") as lines:
        lines.write('{"file_na')
    assert [listed.row["seconds"] for listed in read_metadata(tmp_path)] == [0.5, 9.0]
    (tmp_path / TIMINGS).unlink()
    whole = (tmp_path / METADATA).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first + 1, len(whole) - 1):
        (tmp_path / METADATA).write_bytes(whole[:cut])
        [left] = read_metadata(tmp_path)
        assert left.row["prompt"] == "cat" and "seconds" not in left.row


def test_an_image_contains_its_metadata(tmp_path):
    path = tmp_path / "a.png"
    for prompt in AWKWARD:
        save_image(path, noise(), {"prompt": prompt, "seed": 7, "scale": 0.3, "center": None})
        with Image.open(path) as opened:
            assert opened.text == {"prompt": prompt, "seed": "7", "scale": "0.3", "center": "null"}
            assert np.array_equal(np.asarray(opened), np.asarray(noise()))
        assert b"iTXt" in path.read_bytes()
    for about, text in ((None, {}), ({"model": "caf\udce9"}, {"model": "caf?"})):
        save_image(path, noise(), about)
        with Image.open(path) as opened:
            assert opened.text == text
