import json
import logging
from pathlib import Path

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
    """An embedder that remembers how many images it has seen.

    Args:
        kind: a part of its settings.
        network: it is a `NetworkEmbedder`, for which workers prepare images.
    """

    def __init__(self, kind="", network=False):
        self.seen = 0

        def means(images):
            self.seen += len(images)
            return np.stack([np.asarray(image).mean((0, 1)) for image in images])

        self.embedder = FromFunction(means, "means", {"kind": kind})
        if network:
            self.embedder = open_image_embedder("pixels:1", batch_size=64)
            self.embedder.network.register_forward_hook(self.count)

    def count(self, _network, inputs, _output):
        self.seen += len(inputs[0])


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
def test_features_are_in_the_order_of_the_files(paths, workers):
    """Also where workers prepare the images for a network, which decides its batches."""
    watched = Watched()
    found = file_features(paths, watched.embedder, workers=workers)
    assert torch.equal(found.features, colors(range(COUNT)))
    assert found.kept == list(range(COUNT)) and found.bad == []
    assert watched.seen == COUNT
    embedder = open_image_embedder("pixels:1", batch_size=50)
    found = file_features(paths, embedder, workers=workers)
    torch.testing.assert_close(found.features * 255, colors(range(COUNT)))


@pytest.mark.parametrize("network", [False, True])
def test_what_is_kept_is_not_embedded_again(paths, network, tmp_path):
    first, again = Watched(network=network), Watched(network=network)
    features = file_features(paths[:70], first.embedder, cache=tmp_path).features
    found = file_features(paths[::-1], again.embedder, cache=tmp_path)
    assert (first.seen, again.seen) == (70, COUNT - 70)
    assert torch.equal(found.features.flip(0)[:70], features)
    assert found.kept == list(range(COUNT))
    third = Watched(network=network)
    assert torch.equal(
        file_features(paths, third.embedder, cache=tmp_path, workers=1).features,
        found.features.flip(0),
    )
    assert third.seen == 0


def test_images_are_known_by_content_and_by_the_embedders_settings(paths, tmp_path):
    """Not by name, and one image in two files counts twice."""
    changed, renamed, cache = tmp_path / paths[0].name, tmp_path / "b.png", tmp_path / "cache"
    changed.write_bytes(paths[1].read_bytes())
    renamed.write_bytes(paths[0].read_bytes())
    seen = []
    for kind in ("a", "b", "a"):
        watched = Watched(kind)
        file_features(paths[:1], watched.embedder, cache=cache)
        found = file_features([changed, renamed, renamed], watched.embedder, cache=cache)
        assert torch.equal(found.features, colors([1, 0, 0]))
        seen.append(watched.seen)
    assert seen == [2, 2, 0]
    kept = [json.loads(file.read_text()) for file in cache.rglob("embedder.json")]
    assert sorted(about["settings"]["kind"] for about in kept) == ["a", "b"]


def test_a_run_that_ends_early_keeps_what_it_has(paths, tmp_path):
    def stop(images):
        stop.calls += 1
        if stop.calls == 3:
            raise KeyboardInterrupt
        return np.zeros((len(images), 3))

    stop.calls = 0
    with pytest.raises(KeyboardInterrupt):
        file_features(paths, FromFunction(stop, "means", {"kind": ""}), cache=tmp_path)
    watched = Watched()
    file_features(paths, watched.embedder, cache=tmp_path)
    assert watched.seen == COUNT - 2 * 64


def test_chunks_are_written_on_the_way(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 40)
    written = []

    def means(images):
        written.append(len(list(tmp_path.rglob("*.safetensors"))))
        return np.zeros((len(images), 3))

    file_features(paths, FromFunction(means, "means"), cache=tmp_path)
    assert written == [0, 1, 3]  # before each batch of 64
    sizes = [len(load_file(path)["features"]) for path in tmp_path.rglob("*.safetensors")]
    assert sorted(sizes) == [30, 40, 40, 40]


def test_damaged_chunks_are_embedded_anew(paths, tmp_path, caplog):
    file_features(paths[:5], Watched().embedder, cache=tmp_path)
    (chunk,) = tmp_path.rglob("*.safetensors")
    chunk.write_bytes(chunk.read_bytes()[:50])
    watched = Watched()
    with caplog.at_level(logging.WARNING):
        found = file_features(paths[:5], watched.embedder, cache=tmp_path)
    assert torch.equal(found.features, colors(range(5)))
    assert watched.seen == 5 and "damaged are computed again" in caplog.text


@pytest.fixture
def mixed(paths, tmp_path):
    """Good files and others."""
    moving = tmp_path / "moving.gif"
    frames = [Image.new("RGB", (2, 2), color) for color in ("red", "blue")]
    frames[0].save(moving, save_all=True, append_images=frames[1:])
    empty, torn = tmp_path / "empty.png", tmp_path / "torn.png"
    empty.touch()
    torn.write_bytes(paths[0].read_bytes()[:50])
    missing = tmp_path / "missing.png"
    return [moving, paths[3], empty, torn, paths[4], missing, tmp_path]


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_files_are_left_out_by_name(mixed, workers):
    found = file_features(mixed, Watched().embedder, workers=workers)
    assert found.kept == [0, 1, 4]  # of an animation the first frame counts
    assert torch.equal(found.features[1:], colors([3, 4]))
    _, _, empty, torn, _, missing, folder = mixed
    assert [image.name for image in found.bad] == list(map(str, [empty, torn, missing, folder]))
    reasons = [image.reason for image in found.bad]
    assert reasons[0] == "the file is empty"
    assert "truncated" in reasons[1]
    assert reasons[2] == "No such file or directory"
    assert reasons[3] == "it is not a regular file"
    with pytest.raises(ValueError, match=r"empty\.png: the file is empty"):
        file_features(mixed[1:], Watched().embedder, workers=workers, on_bad_image="fail")


def test_a_batch_of_bad_files_is_no_harm(paths):
    nothing = [Path("nothing.png")] * 64
    watched = Watched()
    found = file_features([*nothing, *paths[:2]], watched.embedder)
    assert torch.equal(found.features, colors([0, 1]))
    assert found.kept == [64, 65] and watched.seen == 2
    assert found.bad == [BadImage("nothing.png", "No such file or directory")] * 64
    with pytest.raises(ValueError, match=r"none of 64 files .* used: nothing\.png: No such file"):
        file_features(nothing, watched.embedder)
    with pytest.raises(ValueError, match="none of 0 files is an image"):
        file_features([], watched.embedder)


def test_a_bar_counts_files(paths, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    file_features(paths, Watched().embedder, progress=True)
    assert f"{COUNT}/{COUNT}" in capsys.readouterr().err
