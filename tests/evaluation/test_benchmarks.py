"""Prompts of benchmarks from files in their own forms."""

import json
import random

import pytest

from tests.helpers.benchmark_files import captions, dimcim, write_json
from vendi_guidance.evaluation.benchmarks import Asked, coco_captions, open_benchmark, read_dimcim


def test_captions_of_different_images_are_chosen_whatever_their_order(tmp_path):
    rows = captions(1200)
    chosen = list(open_benchmark(write_json(tmp_path, {"annotations": rows}), "coco1000"))
    assert len(set(chosen)) == 1000
    assert all(caption.endswith(", first") for caption in chosen)  # of each image, the lowest id
    random.Random(1).shuffle(rows)
    shuffled = open_benchmark(write_json(tmp_path, {"annotations": rows}), "coco1000")
    assert list(shuffled) == chosen
    numbers = [int(caption.split()[1][:-1]) for caption in chosen]
    assert numbers != sorted(numbers) and 550 < sum(numbers) / 1000 < 650


def test_the_order_of_images_is_that_of_sha256sum_of_their_numbers(tmp_path):
    numbers = [184613, 318219, 391895, 522418]
    rows = [{"id": n, "image_id": n, "caption": str(n)} for n in numbers]
    write_json(tmp_path, {"annotations": rows})
    found = coco_captions(tmp_path / "file.json")
    assert found == ["522418", "391895", "184613", "318219"]  # 0ecb..., 1fdd..., ...


def test_a_trial_takes_the_first_prompts(tmp_path):
    source = write_json(tmp_path, {"annotations": captions(1000)})
    every = open_benchmark(source, "coco1000")
    trial = open_benchmark(source, "coco1000", fewer=3)
    assert trial.count == 3 and list(trial) == list(every)[:3]
    assert list(trial.starting_at(2)) == list(every)[2:3] and trial.sha256 == every.sha256
    with pytest.raises(ValueError, match=r"--protocol-prompts is 1,001, and .* coco1000 has 1,000"):
        open_benchmark(source, "coco1000", fewer=1001)


def test_captions_are_of_one_line_and_those_of_two_images_count_once(tmp_path):
    rows = captions(1001)
    rows[0]["caption"] = " a\ncat  asleep "
    for row in rows:
        if row["image_id"] in (5, 6):
            row["caption"] = "a dog"
    chosen = list(open_benchmark(write_json(tmp_path, {"annotations": rows}), "coco1000"))
    assert "a cat asleep" in chosen and chosen.count("a dog") == 1
    (tmp_path / "captions.txt").write_text("\n".join(f"caption {i}" for i in range(1100)))
    plain = open_benchmark(str(tmp_path / "captions.txt"), "coco1000")
    assert list(plain)[-1] == "caption 999"


def test_genevals_metadata_are_read_in_their_order(tmp_path):
    file = tmp_path / "evaluation_metadata.jsonl"
    rows = [{"tag": "colors", "include": [], "prompt": f"a photo of {i}"} for i in range(553)]
    file.write_text("\n".join(map(json.dumps, rows)))
    prompts = open_benchmark(str(file), "geneval")
    assert prompts.count == 553 and list(prompts)[:2] == ["a photo of 0", "a photo of 1"]
    file.write_text(file.read_text() + '\n{"prompt": "a photo of 553"}')
    with pytest.raises(ValueError, match=r"has 554 different prompts, and .* geneval takes 553"):
        open_benchmark(str(file), "geneval")


def test_dimcim_has_coarse_prompts_and_dense_ones(tmp_path):
    source = write_json(tmp_path, dimcim())
    assert list(open_benchmark(source, "dimcim")) == [
        "a dog",
        "a black dog",
        "a brown dog",
        "a dog asleep",
        "a dog asleep outdoors",
        "a mug",
        "a red mug",
        "a blue mug",
    ]
    asked = read_dimcim(tmp_path / "file.json")
    assert asked[0] == Asked("dog", "color", "a dog", None)
    assert asked[1] == Asked("dog", "color", "a black dog", "black")
    assert read_dimcim(tmp_path / "file.json") == asked
    assert len(asked) == len(set(asked)) == 8
    (tmp_path / "one.json").write_text(json.dumps(dimcim()[0]))
    assert {row.concept for row in read_dimcim(tmp_path / "one.json")} == {"dog"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("coco1000", {"annotations": captions(999)}, "has 999 different prompts, and .* 1,000"),
        ("coco10000", {"annotations": captions(1000)}, "has 1,000 different .* 10,000"),
        ("coco1000", {"images": []}, "no list under 'annotations': give captions_val2014.json"),
        ("coco1000", [1], "no list under 'annotations'"),
        ("coco1000", {"annotations": [{"id": 1, "image_id": 2}]}, "annotation 0 has no caption"),
        ("coco1000", {"annotations": [3]}, "annotation 0 has no caption"),
        ("coco1000", {"annotations": [{"caption": "a", "id": 1}]}, "annotation 0 has no caption"),
        ("dimcim", {"annotations": captions(3)}, "DIMCIM's keys, see .* KeyError"),
        ("dimcim", [{"concept": "dog", "coarse_dense_prompts": 3}], "DIMCIM's keys"),
        ("dimcim", [], "has no prompts"),
        ("dimcim", "text", "DIMCIM's keys"),
    ],
)
def test_files_that_will_not_do_are_named(tmp_path, name, content, words):
    with pytest.raises(ValueError, match=f"file.json.*{words}"):
        open_benchmark(write_json(tmp_path, content), name)


@pytest.mark.parametrize("key", ["dense_prompt", "attribute", "attribute_type"])
@pytest.mark.parametrize("text", [" ", None])
def test_an_empty_prompt_or_value_of_dimcim_is_refused(tmp_path, key, text):
    content = dimcim()
    content[0]["coarse_dense_prompts"][0]["dense_prompts"][0][key] = text
    with pytest.raises(ValueError, match="or a prompt or attribute that is empty"):
        open_benchmark(write_json(tmp_path, content), "dimcim")


def test_no_file_and_no_json_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"geneval takes GenEval's evaluation_metadata\.jsonl"):
        open_benchmark("a cat", "geneval")
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.json: --protocol coco1000 takes"):
        open_benchmark(str(tmp_path / "none.json"), "coco1000")
    (tmp_path / "file.json").write_text("{")
    with pytest.raises(ValueError, match=r"file\.json is not JSON"):
        open_benchmark(str(tmp_path / "file.json"), "coco1000")
