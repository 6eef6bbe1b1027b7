"""Attributes, and judges of which values images show."""

import json
from math import comb

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import entropy, t as student

from tests.helpers.batches_at_hand import greys, save_batch
from tests.helpers.commands import succeeds
from vendi_guidance.commands import evaluate as command
from vendi_guidance.evaluation.attribute_diversity import attribute_scores, attribute_spreads
from vendi_guidance.evaluation.attributes import (
    TEMPLATES,
    Attribute,
    ProbeJudge,
    ZeroShot,
    load_attributes,
    one_hot,
)
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.probe import Probe

LIGHT = Attribute("light", ("dark", "bright"))


def by_brightness(images, prompts, attribute):
    return one_hot(["bright" if np.asarray(i).mean() > 127 else "dark" for i in images], attribute)


def scored(levels, prompts, attribute=LIGHT, judge=by_brightness):
    return attribute_scores(as_batch(greys(*levels), prompts), [attribute], judge)[0]


def test_shares_are_of_each_prompt_and_a_named_value_counts_for_whether_it_is_shown():
    found = scored([0, 255, 255, 0, 0, 0, 255], ["a Bright room"] * 3 + ["a room"] * 4)
    named, unnamed = found.by_prompt
    assert (named.named, named.count) == ("bright", 3)
    assert (unnamed.named, unnamed.shares) == (None, (0.75, 0.25))
    assert found.named_kept == (pytest.approx(2 / 3), None, None)
    assert scored([0, 255], ["a room"] * 2).named_kept is None


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("a brown bear", "brown"),
        ("a brownie", None),
        ("DARK BROWN hair", "dark brown"),
        ("no colour", None),
    ],
)
def test_values_are_named_as_whole_words_and_the_longest_counts(prompt, named):
    assert Attribute("hair", ("brown", "dark brown", "black")).named(prompt) == named


def unsure(p: float):
    """A judge that gives the wrong value this probability."""
    return lambda *given: p + (1 - 2 * p) * by_brightness(*given)


def test_the_doubts_of_a_judge_widen_the_interval_and_count_once_for_each_image():
    prompts = [f"bright room {i % 16}" for i in range(64)]
    assert scored([255] * 64, prompts).named_kept == (1.0, None, None)  # all prompts are alike
    for p, between in ((0.5, 0), (0.9, 0.16 * 16 / 15)):  # half of the prompts' rooms are dark
        value, low, high = scored([255, 0] * 32, prompts, judge=unsure(p)).named_kept
        assert value == pytest.approx(0.5, abs=0.005)
        textbook = student.ppf(0.975, 15) * ((between + p * (1 - p) / 4) / 16) ** 0.5
        assert (high - low) / 2 == pytest.approx(textbook, rel=0.25)


def test_what_is_counted_is_what_the_judge_believes_and_not_its_favourite():
    """Four images are bright with probability 0.4."""
    found = scored([0] * 4, ["a room"] * 4, judge=unsure(0.4))
    assert found.by_prompt[0].shares == pytest.approx((0.6, 0.4))
    [spread] = attribute_spreads([found], ["a room"] * 4)
    entropies = [entropy([k, 4 - k]) for k in range(5)]
    expected = sum(comb(4, k) * 0.4**k * 0.6 ** (4 - k) * entropies[k] for k in range(5))
    assert spread.by_prompt["a room"] == pytest.approx(expected, abs=0.05)
    kept = scored([0] * 4, ["a bright room"] * 4, judge=unsure(0.4)).named_kept[0]
    assert kept == pytest.approx(0.4)


@pytest.mark.parametrize("said", [torch.ones(2, 2), [[1, 0]], [[0.5]] * 2, [[-0.5, 1.5]] * 2])
def test_a_judge_has_to_return_a_distribution_for_each_image(said):
    words = r"judge of 'light' .* \(2, 2\) probabilities of dark, bright, with rows that sum to 1"
    with pytest.raises(ValueError, match=words):
        scored([0, 255], ["a room"] * 2, judge=lambda *_: said)


def test_zero_shot_compares_images_with_phrases_of_each_value():
    images = FromFunction(lambda some: by_brightness(some, None, LIGHT), "c")
    texts = FromFunction(lambda some: np.eye(2)[[int("bright" in text) for text in some]], "c")
    p = ZeroShot(images, texts)(greys(0, 255), ["", ""], LIGHT)
    assert p.argmax(1).tolist() == [0, 1] and torch.allclose(p.sum(1), torch.ones(2))
    assert all("{value}" in template and "{attribute}" in template for template in TEMPLATES)


class Seen(Probe):
    """A probe that sees a cat, bold where an image is bright."""

    def __init__(self) -> None:
        super().__init__(["cat"], [("weight", ["regular", "bold"])], "{concept}, {weight}")

    def embed(self, images):
        return torch.tensor([[np.asarray(i).mean() - 127.0] for i in images])

    def looks_of(self, features):
        return [("cat", "bold" if row.mean() > 0 else "regular") for row in features]


def test_a_probe_says_the_values_of_its_own_attributes():
    judge = ProbeJudge(Seen())
    found = judge(greys(0, 255, 0), ["cat"] * 3, Attribute("weight", ("bold", "regular")))
    assert found.tolist() == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(ValueError, match="does not know these values of 'light', only weight"):
        judge(greys(0), ["cat"], LIGHT)


def test_a_judge_of_features_reads_each_image_once_however_many_the_attributes():
    embedded = []

    class Judge(ProbeJudge):
        def embed(self, images):
            embedded.extend(images)
            return super().embed(images)

    weights = [Attribute("weight", ("regular", "bold")), Attribute("weight", ("bold", "regular"))]
    batch = as_batch(greys(0, 255), ["cat"] * 2)
    one, other = attribute_scores(batch, weights, Judge(Seen()))
    assert len(embedded) == 2
    assert torch.equal(one.drawn, 1 - other.drawn)
    known = torch.tensor([[1.0], [1.0]])  # bold, whatever the images show
    [bold] = attribute_scores(batch, weights[:1], Judge(Seen()), known)
    assert len(embedded) == 2 and bold.drawn.all()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ("{}", "must be an object"),
        ('{"hair": 3}', "hair must have at least two different values, got 3"),
        ('{"hair": ["black"]}', "hair must have at least two"),
        ('{"hair": ["black", "Black"]}', "different values"),
        ('{"hair": "black,"}', "different values"),
        ('{"prompts": {"a cat": 3}}', "a cat must be an object"),
        ('{"attributes": {}}', "has no attributes"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, content, words):
    (tmp_path / "attributes.json").write_text(content)
    with pytest.raises(ValueError, match=f"attributes.json.*{words}"):
        load_attributes(tmp_path / "attributes.json")


def test_attributes_are_for_all_prompts_or_for_one(tmp_path):
    path = tmp_path / "attributes.json"
    path.write_text('{"light": "dark, bright"}')
    assert load_attributes(str(path)) == [LIGHT]
    path.write_text('{"attributes": {"light": ["dark", "bright"]}, "prompts": {"a": {"b": "c,d"}}}')
    assert load_attributes(path) == [LIGHT, Attribute("b", ("c", "d"), "a")]
    attribute = Attribute("light", LIGHT.values, "a room")
    [found] = scored([0, 255], ["a room", "a cave"], attribute).by_prompt
    assert found.prompt == "a room"
    with pytest.raises(ValueError, match="'a hall', but there are no images of it"):
        scored([0], ["a room"], Attribute("light", LIGHT.values, "a hall"))


@pytest.fixture
def folder(tmp_path):
    """Images of 8 prompts with labels by a person, and a file of attributes."""
    rows = [
        {"prompt": f"room {number % 8}", "light": LIGHT.values[number % 2], "vqa": number / 31}
        for number in range(32)
    ]
    (tmp_path / "attributes.json").write_text('{"light": ["dark", "bright"]}')
    return save_batch(tmp_path, greys(*[0, 255] * 16), rows)


def test_labels_in_the_metadata_are_reported_on_the_page(folder, tiny_sdxl_folder):
    words = [folder, "--output", folder / "report", "--image-embedder", "pixels:2"]
    words += ["--prompt-embedder", f"sdxl:{tiny_sdxl_folder}", "--attribute-judge", "labels"]
    words += ["--attributes", folder / "attributes.json", "--faithfulness", "vqa"]
    succeeds(command.main, *words)
    content = json.loads((folder / "report" / "report.json").read_text())
    [found] = content["runs"][0]["attributes"]
    assert content["runs"][0]["scores"]["faithfulness"]["value"] == pytest.approx(0.5)
    assert found["means"] == {} and len(found["spreads"]) == 8
    page = (folder / "report" / "report.html").read_text()
    assert '<section id="attributes"' in page
    [spread] = content["runs"][0]["effective_values"]
    assert spread["value"] == pytest.approx(1) and spread["training"] is None
    assert Image.open(folder / "report" / "attributes.png").size[0] > 300


def test_labels_that_are_none_of_the_values_are_named(folder):
    batch = as_batch(folder)
    with pytest.raises(ValueError, match=r"0\.png has the light 'dark' in .* one of grey, white"):
        attribute_scores(batch, [Attribute("light", ("grey", "white"))], None)
    with pytest.raises(ValueError, match=r"column 'light' is needed, but there is no metadata"):
        attribute_scores(as_batch(greys(0), ["a"]), [LIGHT], None)
