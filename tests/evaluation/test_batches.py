"""Batches from folders, arrays, tensors, datasets and images."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.batches_at_hand import sample_images, save_batch
from vendi_guidance.evaluation.batches import as_batch

BYTES = np.random.default_rng(0).integers(256, size=(3, 4, 5, 3), dtype=np.uint8)


def pixels(batch):
    return np.stack([np.asarray(image) for image in batch.images])


def test_images_come_as_arrays_tensors_or_images():
    tensor = torch.from_numpy(BYTES).movedim(-1, 1)
    pictures = [Image.fromarray(picture) for picture in BYTES]
    few_bits = (tensor / 255).bfloat16().float()
    for images in (BYTES, tensor, BYTES / 255, few_bits, pictures, list(BYTES), list(tensor)):
        batch = as_batch(images, ["a", "b", "c"])
        assert np.abs(pixels(batch).astype(int) - BYTES).max() <= (images is few_bits)
        assert batch.prompts == ["a", "b", "c"]


def test_one_channel_is_grey_four_are_shown_on_white_and_sizes_may_differ():
    grey = BYTES[..., :1]
    for images in (grey[..., 0], grey, torch.from_numpy(grey).movedim(-1, 1)):
        assert np.array_equal(pixels(as_batch(images)), grey.repeat(3, axis=-1))
    assert pixels(as_batch(np.zeros((1, 2, 2, 4), np.uint8))).min() == 255
    sizes = [image.size for image in as_batch([Image.new("L", (2, 3)), BYTES[0]]).images]
    assert sizes == [(2, 3), (5, 4)]


@pytest.mark.parametrize(
    ("images", "prompts", "words"),
    [
        (BYTES * 1.0, None, "must lie in .0, 1., got .* to .*scale them"),
        (np.full((1, 2, 2, 3), np.nan), None, "must lie in .0, 1., got nan"),
        (BYTES[0, 0, 0], None, "4 dimensions, got shape .3,."),
        (np.zeros((2, 4, 5, 7), np.uint8), None, "got .4, 5, 7."),
        ([7], None, "an image must be a PIL image.*got int"),
        (SimpleNamespace(column_names={}), None, "needs numbered rows: take a split"),
        (SimpleNamespace(column_names=[], features={}), None, "rows: .* without streaming"),
        ({}, None, "images must be a folder.*got dict"),
        ([], None, "there are no images"),
        (BYTES, ["a"] * 2, "got 3 images and 2 prompts: give one prompt for each"),
        (BYTES, ["a", "b", 7], "prompts must be text, got 7"),
        (BYTES, "cat", "one for each image, got 'cat': give it in a list"),
    ],
)
def test_what_is_no_image_or_prompt_of_one_is_said(images, prompts, words):
    with pytest.raises(ValueError, match=words):
        pixels(as_batch(images, prompts))


@pytest.fixture
def folder(tmp_path):
    for number, image in enumerate(sample_images(3)):
        image.save(tmp_path / f"{number}.png")
    return tmp_path


def describe(folder, rows):
    return save_batch(folder, sample_images(3)[: len(rows)], rows)


@pytest.mark.parametrize("column", ["prompt", "text", "caption"])
def test_prompts_and_seconds_of_an_imagefolder_are_read(folder, column):
    batch = as_batch(describe(folder, [{column: f"p{i}", "seconds": i} for i in range(3)]))
    assert (batch.prompts, batch.column("seconds").tolist()) == (["p0", "p1", "p2"], [0, 1, 2])
    assert batch.name == folder.name
    assert np.array_equal(pixels(batch), pixels(as_batch(sample_images(3))))
    assert as_batch(str(folder), ["a", "b", "c"]).prompts == ["a", "b", "c"]
    some = batch.take([2, 0])
    assert (some.prompts, some.column("seconds").tolist()) == (["p2", "p0"], [2, 0])
    assert [path.name for path in some.images.paths()] == ["2.png", "0.png"]
    assert batch.take([1, 1, 1]).prompts == ["p1", "p1", "p1"]
    assert as_batch(BYTES).images.paths() is None
    for unknown in ({}, {"seconds": None}, {"seconds": float("nan")}):
        rows = [{"prompt": "p", "seconds": 1}, {"prompt": "p", **unknown}]
        with pytest.raises(ValueError, match="column 'seconds' of 1"):  # not known of all
            as_batch(describe(folder, rows)).column("seconds")


def test_images_without_a_prompt_are_left_out_where_others_have_one(folder):
    batch = as_batch(describe(folder, [{"prompt": "a"}, {"prompt": None}]))
    assert batch.prompts == ["a"] and len(batch.images) == 1
    said = "Prompts are from metadata.jsonl; 2 of 3 images have none and are left out: "
    said += "1.png, 2.png."
    assert batch.note == said and batch.take([0]).note == said
    assert len(as_batch(folder, read_prompts=False).images) == 2
    (folder / "metadata.jsonl").unlink()
    (folder / "captions.csv").write_text("file,caption\n0.png,a\n1.png,b\n")
    batch = as_batch(folder)
    assert batch.prompts == ["a", "b"]
    assert batch.note.endswith("from captions.csv; 1 of 3 images has none and is left out: 2.png.")
    assert as_batch(folder, ["a", "b", "c"]).prompts == ["a", "b", "c"]
    assert len(as_batch(folder, read_prompts=False).images) == 3


def test_a_folder_without_metadata_gives_all_its_images(folder):
    (folder / "more").mkdir()
    sample_images(1)[0].save(folder / "more" / "3.JPG")
    (folder / "notes.txt").write_text("no picture")
    batch = as_batch(folder)
    assert len(batch.images) == 4 and batch.prompts is None
    assert batch.note.startswith("No prompts found in metadata.jsonl, metadata.csv, ")


def test_what_is_wrong_in_a_folder_is_named(folder):
    batch = as_batch(describe(folder, [{"prompt": "a"}, {"prompt": "b"}]))
    (folder / "1.png").write_bytes(b"not an image")
    with pytest.raises(ValueError, match=r"1\.png cannot be used"):
        list(batch.images)
    (folder / "1.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.png"):
        list(batch.images)
    (folder / "empty").mkdir()
    for given, error, words in (
        (describe(folder, [{"prompt": 7}]), ValueError, "prompts must be text, got 7"),
        (folder / "empty", ValueError, r"contains neither metadata.jsonl nor images"),
        (folder / "absent", FileNotFoundError, "there is no folder"),
    ):
        with pytest.raises(error, match=words):
            as_batch(given)
    assert as_batch(describe(folder, [{"Text": ["a", "b"]}])).prompts == ["a"]
    with pytest.raises(ValueError, match=r"jsonl, line 1 has \[7\] for a text"):
        as_batch(describe(folder, [{"prompt": [7]}]))


class Dataset(dict):
    """Stands in for a `datasets.Dataset`, which decodes images on access."""

    column_names = property(list)
    features = property(lambda self: {name: column[0] for name, column in self.items()})

    def __len__(self):
        return len(next(iter(self.values())))

    def __getitem__(self, key):
        is_column = isinstance(key, str)
        return super().__getitem__(key) if is_column else {n: c[key] for n, c in self.items()}


def test_a_dataset_gives_its_images_and_prompts():
    batch = as_batch(Dataset(id=[1, 2, 3], image=sample_images(3), text=["a", "b", "c"]))
    assert len(batch.images) == 3 and batch.prompts == ["a", "b", "c"]
    assert np.array_equal(pixels(batch)[1], np.asarray(sample_images(3)[1]))
    assert as_batch(Dataset(image=sample_images(3))).prompts is None
    with pytest.raises(ValueError, match=r"no column of images, only .'text'."):
        as_batch(Dataset(text=["a"]))
