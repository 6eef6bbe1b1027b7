"""Prompts in, runs on disk and back."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vendi_guidance.runs import METADATA, read_prompts, read_run, remove_run, save_picture

AWKWARD = [
    'a "quoted" cat, 50% off',
    "two\nlines\r\nand\ttabs",
    "кошка 猫 🐈 é \u2028 end",
    "../../etc/passwd",
    "<b>bold</b> $x^2$",
]


def picture(seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(256, size=(8, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def write_run(folder: Path, prompts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, prompt in enumerate(prompts):
        save_picture(folder, number, picture(number), {"prompt": prompt, "seed": number})
    return folder


def test_a_run_reads_back_as_it_was_written(tmp_path):
    run = read_run(write_run(tmp_path, AWKWARD))
    assert run.prompts == AWKWARD
    assert [row["seed"] for row in run.rows] == list(range(len(AWKWARD)))
    for number, image in enumerate(run.images):
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
        save_picture(tmp_path, 0, Broken(), {"prompt": "cat"})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_removing_a_run_keeps_what_is_not_its_own(tmp_path):
    write_run(tmp_path, ["cat"])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "comparison.png").write_bytes(b"mine")
    remove_run(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"notes.txt", "comparison.png"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("prompts.txt", "cat\n\n  dog \n\n"),
        ("prompts.txt", "\ufeffcat\r\ndog"),
        ("prompts.jsonl", '{"prompt": "cat"}\n\n{"prompt": "dog", "seed": 3}\n'),
        ("prompts.csv", "id,prompt\n1,cat\n2,dog\n"),
        ("PROMPTS.CSV", '"prompt"\n"cat"\n"dog"\n'),
    ],
)
def test_prompts_are_read_from_every_kind_of_file(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content.encode())
    assert read_prompts(str(file)) == ["cat", "dog"]


def test_a_csv_prompt_may_hold_quotes_commas_and_lines(tmp_path):
    file = tmp_path / "prompts.csv"
    file.write_text('prompt\n"a ""big"" cat,\nasleep"\n', newline="")
    assert read_prompts(str(file)) == ['a "big" cat,\nasleep']


def test_text_that_is_no_file_is_a_prompt():
    assert read_prompts("a cat, 3.5 mm lens") == ["a cat, 3.5 mm lens"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", r"a\.txt holds no prompts"),
        ("a.txt", " \n\n", r"a\.txt holds no prompts"),
        ("a.jsonl", "", r"a\.jsonl holds no prompts"),
        ("a.csv", "", r"a\.csv holds no prompts"),
        ("a.csv", "prompt\n", r"a\.csv holds no prompts"),
        ("a.csv", "text,id\ncat,1\n", r"a\.csv, line 1 has no column 'prompt', only text, id"),
        ("a.csv", "id,prompt\n1,cat\n2\n", r"a\.csv, line 3 has no text under 'prompt'"),
        ("a.csv", 'prompt\n"cat\n', r"a\.csv, line 2 is not CSV"),
        ("a.jsonl", '{"prompt": "cat"}\n{"prompt": \n', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", '{"text": "cat"}\n', r"a\.jsonl, line 1 has no text under 'prompt'"),
        ("a.jsonl", '{"prompt": 3}\n', r"a\.jsonl, line 1 has no text under 'prompt'"),
        ("a.jsonl", '{"prompt": " "}\n', r"a\.jsonl, line 1 has no text under 'prompt'"),
        ("a.jsonl", '["cat"]\n', r"a\.jsonl, line 1 is not a JSON object"),
    ],
)
def test_a_bad_prompt_file_is_named_with_its_line(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_prompts(str(file))
    assert "\n" not in str(caught.value)


def test_a_prompt_file_must_be_text(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match=r"a\.txt is not UTF-8"):
        read_prompts(str(file))


def test_a_missing_prompt_file_and_an_empty_prompt_are_refused():
    with pytest.raises(FileNotFoundError, match=r"no prompt file 'no/such\.txt'"):
        read_prompts("no/such.txt")
    with pytest.raises(ValueError, match="the prompt is empty"):
        read_prompts("  ")


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*absent"):
        read_run(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"holds no metadata\.jsonl"):
        read_run(tmp_path)
    (tmp_path / METADATA).touch()
    with pytest.raises(ValueError, match="the run has no pictures"):
        read_run(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a picture", None])
def test_a_broken_picture_is_named(tmp_path, content):
    write_run(tmp_path, ["cat", "dog"])
    broken = tmp_path / "000001.png"
    broken.write_bytes(broken.read_bytes()[:60] if content is None else content)
    with pytest.raises(ValueError, match=r"picture .*000001\.png cannot be read"):
        read_run(tmp_path)


def test_a_missing_picture_is_named(tmp_path):
    write_run(tmp_path, ["cat", "dog"])
    (tmp_path / "000001.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"000001\.png is missing"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"file_name": "000000.png"}', "line 2 has no text under the key 'prompt'"),
        ('{"prompt": "cat"}', "line 2 has no text under the key 'file_name'"),
        ('{"file_name": "0000', "line 2 is not JSON"),
    ],
)
def test_a_broken_line_of_metadata_is_named(tmp_path, line, message):
    write_run(tmp_path, ["cat"])
    with (tmp_path / METADATA).open("a") as lines:
        lines.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        read_run(tmp_path)
