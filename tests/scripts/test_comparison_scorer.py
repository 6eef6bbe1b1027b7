"""What runs of the comparison are judged by, on pictures made by hand."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.comparison.measures import KEPT, MEASURES, RATIOS, Values
from scripts.comparison.prompts import Prompt
from scripts.comparison.scorer import (
    Scorer,
    correct_looks,
    look_entropies,
    pixels,
)
from tests.conftest import SCRIPTS
from tests.helpers.emoji_prompts import asked

ASSETS = SCRIPTS.parent / "assets"
CONCEPTS = ["ear", "leg"]


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer.load(ASSETS / "demo-probe", ASSETS / "demo-sdxl", ASSETS / "demo-pictures")


@pytest.fixture(scope="module")
def training(scorer) -> dict:
    """Every training picture of two concepts, by look."""
    return dict(zip(scorer.training.looks(CONCEPTS), scorer.training.images(CONCEPTS), strict=True))


def values_of(scorer, images, concepts, named) -> Values:
    """The measures of images whose prompts are open."""
    return scorer.measure(images, [*map(asked, concepts)], named, 1.0, 320).values


def blurred(image: Image.Image, width: int = 32) -> Image.Image:
    return image.resize((width, width)).resize(image.size)


def test_only_pictures_of_what_was_asked_for_have_a_look_that_counts():
    found = [("ear", "noto", "dark"), ("leg", "noto", "dark"), ("leg", "fluent", "light")]
    assert correct_looks(["ear", "ear", "leg"], found) == [
        ("ear", "noto", "dark"),
        ("leg", "fluent", "light"),
    ]


def test_the_entropy_of_looks_counts_them_by_how_even_they_are():
    dark, light = ("ear", "noto", "dark"), ("ear", "noto", "light")
    assert look_entropies(["ear"] * 4, [dark, dark, light, light]) == pytest.approx([2])
    assert look_entropies(["ear"] * 4, [dark, dark, dark, dark]) == pytest.approx([1])
    uneven = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert look_entropies(["ear"] * 4, [dark, dark, dark, light]) == pytest.approx([uneven])


def test_a_prompt_none_of_whose_images_is_correct_has_no_looks():
    ear, leg = ("ear", "noto", "dark"), ("leg", "noto", "dark")
    assert look_entropies(["ear", "nose"], [ear, leg]) == pytest.approx([1, 0])


def test_pixels_lie_between_minus_one_and_one():
    black, white = Image.new("RGB", (64, 64)), Image.new("L", (8, 8), 255)
    assert torch.equal(pixels([black, white])[:, 0], torch.tensor([-1.0, 1.0]))
    assert pixels([black]).shape == (1, 3 * 64 * 64)


def test_the_training_pictures_themselves_are_perfect(scorer, training):
    prompts = [asked(look[0]) for look in training]
    scores = scorer.measure(list(training.values()), prompts, training, 18.0, 36 * 32)
    values, by_prompt = scores
    assert list(values) == list(MEASURES)
    assert values[KEPT] is None and by_prompt[KEPT] == []
    for kind in ("probe", "pixels"):
        assert values[f"{kind}_nearest_distance"] == 0
        assert values[f"{kind}_kernel_distance"] < 0.01
        assert values[f"{kind}_recall"] == values[f"{kind}_coverage"] == 1
        assert values[f"{kind}_nearest_ratio"] is None  # to what is at distance zero
    assert values["fidelity"] == 1
    assert values["looks"] >= 17  # the probe takes a tone for another now and then
    assert values["seconds_per_image"] == 0.5 and values["evaluations"] == 32
    for name, of_prompts in by_prompt.items():
        assert len(of_prompts) == (0 if name == KEPT else len(CONCEPTS))
    assert sum(by_prompt["looks"]) / 2 == values["looks"]
    assert by_prompt["fidelity"] == [1, 1]


def test_what_is_named_is_kept_where_the_picture_shows_it_and_the_concept(scorer, training):
    images = [training["ear", "noto", tone] for tone in ("yellow", "dark")]

    def kept(*prompts: Prompt) -> list[float]:
        pairs = [(image, prompt) for prompt in prompts for image in images]
        return list(scorer.kept(pairs).values())

    dark, fluent, both = asked("ear", None, "dark"), asked("ear", "fluent"), asked("ear", "noto")
    assert kept(dark, fluent, both) == [0.5, 0, 1]
    assert kept(asked("ear", "noto", "dark"), asked("ear", "twemoji", "dark")) == [0.5, 0]
    assert kept(asked("leg", None, "dark"), asked("leg", "noto")) == [0, 0]
    assert scorer.kept([]) == {}


def test_images_of_named_prompts_count_for_what_is_kept_alone(scorer, training):
    ears = [training[look] for look in scorer.training.looks(["ear"])]
    plain = scorer.measure(ears, [asked("ear")] * 18, training, 1.0, 18)
    named = [asked("leg", None, "dark")] * 2 + [asked("leg", "noto")]
    legs = [training["leg", "noto", tone] for tone in ("dark", "light", "light")]
    both = scorer.measure([*ears, *legs], [asked("ear")] * 18 + named, training, 1.0, 21)
    assert both.values[KEPT] == 0.75 and both.by_prompt[KEPT] == [0.5, 1]
    apart = {KEPT, "seconds_per_image"}
    assert {name for name in MEASURES if both.values[name] != plain.values[name]} == apart


def test_distances_are_told_from_pictures_of_the_concepts_asked_for_alone(scorer, training):
    ears = [training[look] for look in scorer.training.looks(["ear"])]
    values = values_of(scorer, ears, ["ear"] * 18, training)
    assert values["pixels_coverage"] == 1
    swapped = values_of(scorer, ears, ["leg"] * 18, training)
    assert swapped["pixels_coverage"] < 1 and swapped["pixels_nearest_distance"] > 1
    assert swapped["fidelity"] == swapped["looks"] == swapped["look_entropy"] == 0
    assert all(swapped[name] is None for name in RATIOS)  # nothing is correct: nothing to match


def test_a_run_that_looks_as_named_pictures_do_has_ratio_one(scorer, training):
    looks = [look for look in scorer.training.looks(CONCEPTS) if look[2] in ("yellow", "dark")]
    named = {look: blurred(image) for look, image in training.items()}
    found = scorer.probe.looks([named[look] for look in looks])
    looks = [look for look, other in zip(looks, found, strict=True) if look == other]
    assert len(looks) > 8
    run = [named[look] for look in looks] * 2  # of each look as often as the run has it
    prompts = [look[0] for look in looks] * 2
    values = values_of(scorer, run, prompts, named)
    assert [values[name] for name in RATIOS] == pytest.approx([1] * len(RATIOS))

    rest = [look for look in named if look not in looks]
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    others = {look: Image.fromarray(noise) for look in rest}
    assert values_of(scorer, run, prompts, named | others) == values
    other = values_of(scorer, run, prompts, named | {looks[0]: Image.fromarray(noise)})
    assert other["pixels_nearest_ratio"] < values["pixels_nearest_ratio"]


def test_the_matched_set_has_a_look_as_often_as_the_run(scorer, training):
    yellow, dark = ("ear", "noto", "yellow"), ("leg", "fluent", "dark")
    named = {look: blurred(image) for look, image in training.items()}
    named[dark] = blurred(training[dark], 8)  # which lies farther off

    def of_named(yellows: int, darks: int) -> float:
        images = [training[yellow]] * yellows + [training[dark]] * darks
        prompts = ["ear"] * yellows + ["leg"] * darks
        values = values_of(scorer, images, prompts, named)
        assert values["fidelity"] == 1 and values["looks"] == 1
        return values["pixels_nearest_named"]

    reference = scorer.features(list(training.values()))["pixels"]
    matched = scorer.features([named[yellow], named[dark]])["pixels"]
    near, far = torch.cdist(matched, reference).min(dim=1).values.tolist()
    assert of_named(8, 1) == pytest.approx((8 * near + far) / 9, rel=1e-4)
    assert of_named(1, 8) == pytest.approx((near + 8 * far) / 9, rel=1e-4)
    assert far > 2 * near
