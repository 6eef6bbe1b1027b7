"""`vendi-guidance score` on images of noise."""

import os
import signal
from itertools import count

import pytest
import torch
from PIL import Image

from tests.helpers.commands import assert_refused, invoke
from tests.helpers.processes import fork, fork_team, needs_fork, wait
from vendi_guidance import Gaussian, RandomFourier, rke, vendi
from vendi_guidance.commands import score
from vendi_guidance.features import cache as feature_cache
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.network import NetworkEmbedder

COUNT = 30
OPTIONS = ["--embedder", "pixels:2", "--sigma", 0.5, "--random-features", 64, "--seed", 3]
OPTIONS += ["--batch-size", 4]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder and one in it with images, something else, and a broken one."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "more").mkdir()
    r = torch.Generator().manual_seed(0)
    for number in range(COUNT):
        pixels = torch.randint(256, (4, 4, 3), generator=r, dtype=torch.uint8).numpy()
        name = f"more/{number}.png" if number % 2 else f"{number}.PNG"
        Image.fromarray(pixels).save(folder / name)
    (folder / "metadata.jsonl").write_text("{}")
    (folder / "broken.png").write_bytes(b"nothing")
    return folder


@pytest.fixture(scope="module")
def expected(images):
    """The scores of all features at once."""
    files = sorted(path for path in images.rglob("*") if path.suffix.lower() == ".png")
    good = [Image.open(path) for path in files if path.name != "broken.png"]
    x, kernel = open_image_embedder("pixels:2").embed(good), Gaussian(0.5)
    spectrum = RandomFourier(64, seed=3)
    return {
        "Vendi": float(vendi(x, kernel, spectrum=spectrum)),
        "RKE": float(rke(x, kernel, spectrum=spectrum)),
    }


def scores(output):
    lines = (line.split(" ") for line in output.splitlines())
    return {words[0]: float(words[1]) for words in lines if words[0] in ("Vendi", "RKE")}


def run(*words):
    return invoke(score.main, *words)


def test_scores_are_those_of_all_images_at_once(images, expected):
    result = run(images, *OPTIONS)
    assert scores(result.output) == pytest.approx(expected, rel=1e-5)
    assert f"left out {images}/broken.png: it is not an image" in result.stderr
    assert f"n = {COUNT}; pixels {{'size': 2" in result.stdout
    assert "Gaussian(sigma=0.5); RandomFourier(features=64, seed=3)" in result.stdout


def test_folders_in_one_another_count_once(images, expected):
    inner = images / "more"
    result = run(inner, images, inner / ".." / "more", images, *OPTIONS)
    assert f"n = {COUNT};" in result.stdout
    assert scores(result.output) == pytest.approx(expected, rel=1e-5)


@needs_fork
def test_two_processes_take_up_what_one_that_was_killed_has_left(images, expected, tmp_path):
    words = [str(word) for word in (images, *OPTIONS, "--cache", tmp_path / "cache")]
    encode, batches = NetworkEmbedder.encode, count(1)

    def dying(*given):
        if next(batches) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(*given)

    def killed() -> None:
        NetworkEmbedder.encode, feature_cache.CHUNK = dying, 4
        score.main(words)

    assert wait(fork(killed, tmp_path / "log")) == -signal.SIGKILL
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2  # of four images each
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    assert fork_team(lambda rank: score.main(words), logs) == [0, 0], logs[0].read_text()
    first, second = (log.read_text() for log in logs)
    assert scores(first) == pytest.approx(expected, rel=1e-5) and scores(second) == {}
    assert (first + second).count("left out") == 1
    assert len(list(tmp_path.rglob("*.safetensors"))) == 4


def test_images_that_cannot_be_used_can_be_refused(images):
    result = run(images, *OPTIONS, "--on-bad-image", "fail")
    assert_refused(result, "broken.png: it is not an image")


def test_what_cannot_be_scored_is_refused_in_one_sentence(tmp_path):
    assert_refused(run(tmp_path / "nothing", *OPTIONS), "there is no folder")
    assert_refused(run(tmp_path, *OPTIONS), "there are no images in")
    (tmp_path / "a.png").touch()
    assert_refused(run(tmp_path, *OPTIONS), "none of 1 file can be used")
    assert_refused(run(tmp_path, *OPTIONS, "--embedder", "magic"), "no image embedder 'magic'")
    assert_refused(run(tmp_path, *OPTIONS, "--device", "abacus"), "'abacus' cannot be used")
    assert_refused(run(tmp_path, *OPTIONS, "--random-features", 3), "even")
    assert_refused(run(tmp_path, *OPTIONS, "--sigma", 0), "sigma")
