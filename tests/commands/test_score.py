import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from tests.helpers.commands import assert_refused
from vendi_guidance import Gaussian, RandomFourier, rke, vendi
from vendi_guidance.commands import score
from vendi_guidance.features.images import open_image_embedder

COUNT = 30
WORKER = Path(__file__).parents[1] / "helpers" / "score_worker.py"
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2]
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
    return CliRunner().invoke(score.main, [str(word) for word in words])


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


def test_two_processes_take_up_what_one_that_was_killed_has_left(images, expected, tmp_path):
    def start(*words):
        return subprocess.run(
            list(map(str, [sys.executable, *words, images, *OPTIONS, "--cache", tmp_path])),
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert start(WORKER).returncode == -9
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2  # of four images each
    both = start(*LAUNCH, "-m", "vendi_guidance", "score")
    assert both.returncode == 0, both.stderr
    assert scores(both.stdout) == pytest.approx(expected, rel=1e-5)
    assert both.stdout.count("Vendi") == 1
    assert both.stderr.count("left out") == 1
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
