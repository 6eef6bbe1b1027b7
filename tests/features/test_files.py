import json
import logging
import os

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from vendi_guidance.features import files
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.files import BadImage, file_features
from vendi_guidance.features.images import open_image_embedder

COUNT = 150  # three batches of an embedder that does not say how large its batches are


class Watched:
    """An embedder that counts the images it has seen; or a `NetworkEmbedder` that does, for which
    workers prepare images. `kind` is a part of its settings."""

    def __init__(self, kind="", network=False):
        self.seen = 0
        self.embedder = FromFunction(self.means, "means", {"kind": kind})
        if network:
            self.embedder = open_image_embedder("pixels:1", batch_size=64)
            self.embedder.network.register_forward_pre_hook(self.count)

    def count(self, _network, inputs):
        self.seen += len(inputs[0])

    def means(self, images):
        self.seen += len(images)
        return np.stack([np.asarray(image).mean((0, 1)) for image in images])


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Small images, no two of one color."""
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{number}.png" for number in range(COUNT)]
    for number, path in enumerate(paths):
        Image.new("RGB", (4, 4), (number, 255 - number, 7)).save(path)
    return paths


def colors(places):
    return torch.tensor([[place, 255 - place, 7.0] for place in places])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("network", [False, True])
def test_features_are_in_the_order_of_the_files(paths, workers, network):
    """Also where workers prepare the images for a network, which decides its batches."""
    watched = Watched(network=network)
    found = file_features(paths, watched.embedder, workers=workers)
    features = found.features * (255 if network else 1)
    assert torch.allclose(features, colors(range(COUNT)))
    assert found.kept == list(range(COUNT)) and found.bad == []
    assert watched.seen == COUNT


@pytest.mark.parametrize("network", [False, True])
def test_what_is_kept_is_not_embedded_again(paths, network, tmp_path):
    first, again = Watched(network=network), Watched(network=network)
    features = file_features(paths[:70], first.embedder, cache=str(tmp_path)).features
    found = file_features(paths[::-1], again.embedder, cache=tmp_path)
    assert (first.seen, again.seen) == (70, COUNT - 70)
    assert torch.equal(found.features.flip(0)[:70], features)
    assert found.kept == list(range(COUNT))
    third = Watched(network=network)
    from_cache = file_features(paths, third.embedder, cache=tmp_path, workers=1).features
    assert third.seen == 0 and torch.equal(from_cache, found.features.flip(0))


def test_files_are_known_by_path_and_time_and_by_the_embedders_settings(paths, tmp_path):
    file, cache, seen = tmp_path / paths[0].name, tmp_path / "cache", []
    for kind, content in (("a", 0), ("a", 0), ("a", 1), ("b", 1)):
        if not file.exists() or file.read_bytes() != paths[content].read_bytes():
            file.write_bytes(paths[content].read_bytes())
            os.utime(file, (content, content))
        watched = Watched(kind)
        found = file_features([file, paths[2], file], watched.embedder, cache=cache)
        assert torch.equal(found.features, colors([content, 2, content]))
        seen.append(watched.seen)
    assert seen == [3, 0, 2, 3]
    kept = [json.loads(file.read_text()) for file in cache.rglob("embedder.json")]
    assert sorted(about["settings"]["kind"] for about in kept) == ["a", "b"]


def test_shares_fill_the_cache_with_what_one_process_computes(paths, tmp_path):
    alone, seen = file_features(paths, Watched(network=True).embedder), []
    for place in range(2):
        watched = Watched(network=True)
        found = file_features(paths, watched.embedder, cache=tmp_path, share=(place, 2))
        assert found.kept == [] and len(found.features) == 0
        seen.append(watched.seen)
    watched = Watched(network=True)
    together = file_features(paths, watched.embedder, cache=tmp_path)
    assert seen == [64, COUNT - 64] and watched.seen == 0
    assert torch.equal(together.features, alone.features)
    file_features(paths[:0], watched.embedder, cache=tmp_path, share=(0, 2))


def test_chunks_are_written_on_the_way_and_at_an_early_end(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 40)
    written = []

    def means(images):
        written.append(len(list(tmp_path.rglob("*.safetensors"))))
        if len(written) == 3:
            raise KeyboardInterrupt
        return np.zeros((len(images), 3))

    with pytest.raises(KeyboardInterrupt):
        file_features(paths, FromFunction(means, "means", {"kind": ""}), cache=tmp_path)
    assert written == [0, 1, 3]  # before each batch of 64
    sizes = [len(load_file(path)["features"]) for path in tmp_path.rglob("*.safetensors")]
    assert sorted(sizes) == [8, 40, 40, 40]
    watched = Watched()
    file_features(paths, watched.embedder, cache=tmp_path)
    assert watched.seen == COUNT - 2 * 64


def test_damaged_chunks_are_embedded_anew(paths, tmp_path, caplog):
    file_features(paths[:5], Watched().embedder, cache=tmp_path)
    (chunk,) = tmp_path.rglob("*.safetensors")
    chunk.write_bytes(chunk.read_bytes()[:50])
    watched = Watched()
    with caplog.at_level(logging.WARNING):
        found = file_features(paths[:5], watched.embedder, cache=tmp_path)
    assert torch.equal(found.features, colors(range(5)))
    assert watched.seen == 5 and "will be recomputed" in caplog.text


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_files_are_left_out_by_name(paths, tmp_path, workers, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    empty, missing, embedder = tmp_path / "empty.png", tmp_path / "missing.png", Watched().embedder
    empty.touch()
    bad = [empty, tmp_path, *[missing] * 64]  # a whole batch of an embedder among them
    files = [paths[3], *bad, paths[4]]
    found = file_features(files, embedder, workers=workers, progress=True)
    assert found.kept == [0, 67] and "68/68" in capsys.readouterr().err
    assert torch.equal(found.features, colors([3, 4]))
    reasons = ["the file is empty", "it is not a regular file", *["No such file or directory"] * 64]
    assert found.bad == list(map(BadImage, map(str, bad), reasons))
    with pytest.raises(ValueError, match=r"empty\.png: the file is empty"):
        file_features(files, embedder, workers=workers, on_bad_image="fail")
    for unusable, words in ((bad[2:], "64 .*missing.png: No such"), ([], "0 files is an image")):
        with pytest.raises(ValueError, match=f"none of {words}"):
            file_features(unusable, embedder)


def test_evaluating_files_leaves_the_callers_random_numbers_as_they_are(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    before = torch.get_rng_state()
    file_features([tmp_path / "0.png"], open_image_embedder("pixels:4"))
    assert torch.equal(torch.get_rng_state(), before)
