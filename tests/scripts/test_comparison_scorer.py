"""What runs of the comparison are judged by, on pictures made by hand."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.comparison.scorer import (
    MEASURES,
    RATIOS,
    Judge,
    correct_looks,
    look_entropy,
    looks_of,
    pixels,
)
from tests.conftest import SCRIPTS
from vendi_guidance.features.probe import Looks

ASSETS = SCRIPTS.parent / "assets"
CONCEPTS = ["ear", "leg"]


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge.load(ASSETS / "demo-probe", ASSETS / "demo-sdxl", ASSETS / "demo-pictures")


@pytest.fixture(scope="module")
def training(judge) -> dict:
    """Every training picture of two concepts, by look."""
    return dict(zip(looks_of(CONCEPTS), judge.training_pictures(CONCEPTS), strict=True))


def blurred(image: Image.Image, width: int = 32) -> Image.Image:
    return image.resize((width, width)).resize(image.size)


def seen(*looks: tuple[str, str, str]) -> Looks:
    return Looks(*map(list, zip(*looks, strict=True)))


def test_only_pictures_of_what_was_asked_for_have_a_look_that_counts():
    found = seen(("ear", "noto", "dark"), ("leg", "noto", "dark"), ("leg", "fluent", "light"))
    assert correct_looks(["ear", "ear", "leg"], found) == [
        ("ear", "noto", "dark"),
        ("leg", "fluent", "light"),
    ]


def test_the_entropy_of_looks_counts_them_by_how_even_they_are():
    dark, light = ("ear", "noto", "dark"), ("ear", "noto", "light")
    assert look_entropy(["ear"] * 4, seen(dark, dark, light, light)) == pytest.approx(2)
    assert look_entropy(["ear"] * 4, seen(dark, dark, dark, dark)) == pytest.approx(1)
    uneven = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert look_entropy(["ear"] * 4, seen(dark, dark, dark, light)) == pytest.approx(uneven)


def test_the_entropy_of_looks_is_a_mean_over_prompts_of_which_a_failed_one_has_none():
    ear, leg = ("ear", "noto", "dark"), ("leg", "noto", "dark")
    assert look_entropy(["ear", "nose"], seen(ear, leg)) == pytest.approx(0.5)


def test_pixels_lie_between_minus_one_and_one():
    black, white = Image.new("RGB", (64, 64)), Image.new("L", (8, 8), 255)
    assert torch.equal(pixels([black, white])[:, 0], torch.tensor([-1.0, 1.0]))
    assert pixels([black]).shape == (1, 3 * 64 * 64)


def test_the_training_pictures_themselves_are_perfect(judge, training):
    prompts = [look[0] for look in training]
    values = judge.measure(list(training.values()), prompts, training, seconds=18.0)
    assert list(values) == list(MEASURES)
    assert values["tones_as_named"] is None
    for kind in ("probe", "pixels"):
        assert values[f"{kind}_nearest_distance"] == 0
        assert values[f"{kind}_kernel_distance"] < 0.01
        assert values[f"{kind}_recall"] == values[f"{kind}_coverage"] == 1
        assert values[f"{kind}_nearest_ratio"] is None  # to what is at distance zero
    assert values["fidelity"] == 1
    assert values["looks"] >= 17  # the probe takes a tone for another now and then
    assert values["seconds_per_image"] == 0.5


def test_a_tone_is_as_named_where_the_picture_shows_concept_and_tone(judge, training):
    looks = [(concept, "noto", tone) for concept in CONCEPTS for tone in ("yellow", "dark")]
    images, concepts = [training[look] for look in looks], [look[0] for look in looks]

    def share(concepts, tones):
        return judge.share_as_named(
            images, [(c, None, t) for c, t in zip(concepts, tones, strict=True)]
        )

    assert share(concepts, ["yellow", "dark"] * len(CONCEPTS)) == 1
    assert share(concepts, ["dark"] * len(looks)) == 0.5
    assert share(concepts[::-1], ["yellow", "dark"] * len(CONCEPTS)) == 0
    assert judge.share_as_named([], []) is None


def test_distances_are_told_from_pictures_of_the_concepts_asked_for_alone(judge, training):
    ears = [training[look] for look in looks_of(["ear"])]
    values = judge.measure(ears, ["ear"] * 18, training, 1.0)
    assert values["pixels_coverage"] == 1
    swapped = judge.measure(ears, ["leg"] * 18, training, 1.0)
    assert swapped["pixels_coverage"] < 1 and swapped["pixels_nearest_distance"] > 1
    assert swapped["fidelity"] == swapped["looks"] == swapped["look_entropy"] == 0
    assert all(swapped[name] is None for name in RATIOS)  # nothing is correct: nothing to match


def test_a_run_that_looks_as_named_pictures_do_has_ratio_one(judge, training):
    looks = [look for look in looks_of(CONCEPTS) if look[2] in ("yellow", "dark")]
    named = {look: blurred(image) for look, image in training.items()}
    found = list(zip(*judge.probe.looks([named[look] for look in looks]), strict=True))
    looks = [look for look, other in zip(looks, found, strict=True) if look == other]
    assert len(looks) > 8
    run = [named[look] for look in looks] * 2  # of each look as often as the run has it
    prompts = [look[0] for look in looks] * 2
    values = judge.measure(run, prompts, named, 1.0)
    assert [values[name] for name in RATIOS] == pytest.approx([1] * len(RATIOS))

    rest = [look for look in named if look not in looks]
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    others = {look: Image.fromarray(noise) for look in rest}
    assert judge.measure(run, prompts, named | others, 1.0) == values
    other = judge.measure(run, prompts, named | {looks[0]: Image.fromarray(noise)}, 1.0)
    assert other["pixels_nearest_ratio"] < values["pixels_nearest_ratio"]


def test_the_matched_set_has_a_look_as_often_as_the_run(judge, training):
    yellow, dark = ("ear", "noto", "yellow"), ("leg", "fluent", "dark")
    named = {look: blurred(image) for look, image in training.items()}
    named[dark] = blurred(training[dark], 8)  # which lies farther off

    def of_named(yellows: int, darks: int) -> float:
        images = [training[yellow]] * yellows + [training[dark]] * darks
        prompts = ["ear"] * yellows + ["leg"] * darks
        values = judge.measure(images, prompts, named, 1.0)
        assert values["fidelity"] == 1 and values["looks"] == 1
        return values["pixels_nearest_named"]

    reference = judge.features(list(training.values()))["pixels"]
    matched = judge.features([named[yellow], named[dark]])["pixels"]
    near, far = torch.cdist(matched, reference).min(dim=1).values.tolist()
    assert of_named(8, 1) == pytest.approx((8 * near + far) / 9, rel=1e-4)
    assert of_named(1, 8) == pytest.approx((near + 8 * far) / 9, rel=1e-4)
    assert far > 2 * near


def test_named_pictures_are_checked_by_the_probe(judge, training):
    assert judge.share_as_named(list(training.values()), list(training)) > 0.95
    exchanged = dict(zip(training, reversed(training.values()), strict=True))
    assert judge.share_as_named(list(exchanged.values()), list(exchanged)) == 0
