"""Attributes, judges of which values images show, and how values spread over images."""

import json
from dataclasses import replace
from math import comb, log
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from tests.conftest import SCRIPTS
from tests.helpers.batches_at_hand import greys, report_of, save_batch
from tests.helpers.commands import succeeds
from vendi_guidance.commands import evaluate as command, scoring_options
from vendi_guidance.commands.scoring_options import open_scoring
from vendi_guidance.evaluation.attributes import ATTRIBUTES, Attribute, load_attributes
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.embedding import READER, Embedding, embed_batch
from vendi_guidance.evaluation.judges import (
    TEMPLATES,
    AttributeJudge,
    Judges,
    ProbeJudge,
    ZeroShot,
    judge_attributes,
)
from vendi_guidance.evaluation.report.html import as_page
from vendi_guidance.evaluation.spread import change
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.probe import Probe, load_probe

LIGHT = Attribute("light", ("dark", "bright"))


class Brightness(AttributeJudge):
    """Gives the wrong value of an attribute with two values the probability `doubt`."""

    def __init__(self, doubt: float = 0) -> None:
        self.doubt, self.embedded = doubt, 0
        self.embedder = FromFunction(self._embed, "brightness")

    def _embed(self, images):
        self.embedded += len(images)
        return [[np.asarray(image).mean()] for image in images]

    def probabilities(self, features, attribute):
        bright = (features[:, 0] > 127).double()
        p = self.doubt + (1 - 2 * self.doubt) * bright
        return torch.stack([1 - p, p], dim=1)


def judged(levels, prompts, attributes, judge):
    judges = Judges(attributes=attributes, attribute_judge=judge)
    batch, embedding = as_batch(greys(*levels), prompts), Embedding("pixels:2", "words")
    return judge_attributes(embed_batch(batch, embedding, READER), judges, READER)[1]


def scored(levels, prompts, attribute=LIGHT, doubt=0.0):
    return judged(levels, prompts, [attribute], Brightness(doubt))[0]


def test_shares_are_of_each_prompt_and_a_named_value_counts_for_whether_it_is_shown():
    found = scored([0, 255, 255, 0, 0, 0, 255], ["a Bright room"] * 3 + ["a room"] * 4)
    named, unnamed = found.by_prompt
    assert (named.named, named.count) == ("bright", 3)
    assert (unnamed.named, unnamed.shares) == (None, (0.75, 0.25))
    assert found.effective_values[0] == pytest.approx(np.exp(entropy([3, 1])))
    assert found.named_kept == (pytest.approx(2 / 3), None, None)
    assert scored([0, 255], ["a room"] * 2).named_kept is None
    assert scored([0, 255], ["a dark room"] * 2).effective_values is None


@pytest.mark.parametrize(
    ("prompt", "named"), [("a brown bear", "brown"), ("DARK BROWN hair", "dark brown")]
)
def test_values_are_named_as_whole_words_and_the_longest_counts(prompt, named):
    assert Attribute("hair", ("brown", "dark brown", "black")).named(prompt) == named


def test_what_is_counted_is_what_the_judge_believes_and_not_its_favourite():
    """Four images are bright with probability 0.4."""
    found = scored([0] * 4, ["a room"] * 4, doubt=0.4)
    assert found.by_prompt[0].shares == pytest.approx((0.6, 0.4))
    entropies = [entropy([k, 4 - k]) for k in range(5)]
    expected = sum(comb(4, k) * 0.4**k * 0.6 ** (4 - k) * entropies[k] for k in range(5))
    assert found.by_prompt[0].entropy == pytest.approx(expected)
    kept = scored([0] * 4, ["a bright room"] * 4, doubt=0.4).named_kept[0]
    assert kept == pytest.approx(0.4)


def test_even_and_training_draws_are_of_as_many_images():
    found = scored([0, 255], ["a room"] * 2, replace(LIGHT, training=(2.0, 0.0)))
    # two images show one value of two or both, each in half of all draws
    assert log(found.even) == pytest.approx(log(2) / 2)
    assert found.training == 1
    mixed = scored([0, 255], ["a room"] * 2, replace(LIGHT, training=(2.0, 2.0)))
    assert mixed.training == pytest.approx(mixed.even)
    assert scored([0, 255], ["a room"] * 2).training is None


def test_two_runs_are_compared_over_the_prompts_that_both_leave_open():
    prompts = [f"room {i % 10}" for i in range(40)]
    one = scored([0] * 40, prompts)
    two = scored([0, 255] * 20, ["room 0", "room 0", *[f"hall {i % 19}" for i in range(38)]])
    assert one.effective_values[0] == 1
    ratio, low, high = change(one, two)
    assert ratio == pytest.approx(2) and low is high is None
    ratio, low, high = change(one, scored([0] * 20 + [255] * 6 + [0] * 14, prompts))
    assert 1 < low < ratio < high
    assert change(one, scored([0, 255], ["a dark room"] * 2)) is None


def test_zero_shot_compares_images_with_phrases_of_each_value():
    seen = FromFunction(lambda some: np.eye(2)[[int(np.mean(i) > 127) for i in some]], "c")
    texts = FromFunction(lambda some: np.eye(2)[[int("bright" in text) for text in some]], "c")
    judge = ZeroShot(seen, texts)
    p = judge.probabilities(seen.embed(greys(0, 255)), LIGHT)
    assert p.argmax(1).tolist() == [0, 1] and torch.allclose(p.sum(1), torch.ones(2).to(p))
    assert all("{value}" in template and "{attribute}" in template for template in TEMPLATES)


def test_a_probe_says_the_values_of_its_own_attributes():
    probe = Mock(attributes={"weight": ["regular", "bold"]})
    probe.looks_of.return_value = [("cat", weight) for weight in ("regular", "bold", "regular")]
    judge, weight = ProbeJudge(probe), Attribute("weight", ("bold", "regular"))
    assert judge.probabilities(torch.ones(3, 1), weight).tolist() == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(ValueError, match=r"does not know these values of 'light', only \{.weight"):
        judge.probabilities(torch.ones(3, 1), LIGHT)


def test_a_judge_reads_each_image_once_however_many_the_attributes():
    judge, attributes = Brightness(), [LIGHT, Attribute("weight", ("regular", "bold"))]
    assert len(judged([0, 255], ["cat"] * 2, attributes, judge)) == 2
    assert judge.embedded == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"hair": ["black", "Black"]}', "different values"),
        ('{"hair": "black, brown"}', "at least two different values, got 'black, brown'"),
        ('{"hair": {"black": 1}}', "at least two different values"),
        ('{"hair": {"black": "all", "brown": 1}}', "hair must have a share of each value, got"),
        ('{"hair": {"black": -1, "brown": 2}}', "a share of each value"),
        ('{"hair": {"black": 0, "brown": 0}}', "a share of each value"),
        ("{}", "must be an object"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, content, words):
    (tmp_path / "attributes.json").write_text(content)
    with pytest.raises(ValueError, match=f"attributes.json.*{words}"):
        load_attributes(tmp_path / "attributes.json")


def test_attributes_have_values_and_may_have_their_shares(tmp_path):
    path = tmp_path / "attributes.json"
    path.write_text('{"light": ["dark", "bright"], "b": {"c": 3, "d": 1.5}}')
    assert load_attributes(str(path)) == [LIGHT, Attribute("b", ("c", "d"), (3, 1.5))]


@pytest.mark.parametrize("name", ["demo-probe", "demo-photos-probe", "demo-faces-probe"])
def test_the_demos_probes_have_the_shares_of_their_attributes_values(name):
    folder = SCRIPTS.parent / "assets" / name
    attributes, probe = load_attributes(folder / ATTRIBUTES), load_probe(folder)
    assert {one.name: [*one.values] for one in attributes} == probe.attributes
    assert all(sum(one.training) == pytest.approx(1) for one in attributes)


@pytest.mark.parametrize(("other", "known"), [("dog", False), ("ear", True)])
def test_a_demos_probe_is_for_prompts_that_it_knows_all(other, known):
    _, judges, _, reference = open_scoring(["man", other], "cpu", image_embedder="pixels")
    assert reference is None and (judges.labels is not None) == known
    probe = SCRIPTS.parent / "assets" / "demo-probe"
    _, judges, _, reference = open_scoring(["man", other], "cpu", probe=probe)
    assert reference is not None and judges.labels is not None


def test_a_probes_folder_has_the_default_attributes_and_it_knows_what_prompts_name(tmp_path):
    looks = [("coat", ["red", "blue"]), ("hat", ["red", "green"])]
    Probe(["a"], looks, "{concept}, {coat} coat, {hat} hat").save_pretrained(tmp_path)
    prompts, given = ["a, red hat", "a castle"], {"probe": tmp_path, "clip": None}
    given |= {"image_embedder": "pixels", "prompt_embedder": "words"}

    def opened(attributes):
        return open_scoring(prompts, "cpu", attributes=attributes, **given)[1]

    assert not opened(None).attributes
    (tmp_path / ATTRIBUTES).write_text(json.dumps(dict(looks)))
    judges = opened(None)
    named = judges.attribute_judge.named
    for attribute, value in zip(judges.attributes, (None, "red"), strict=True):
        assert named(attribute, prompts) == {"a, red hat": value}
    file = tmp_path / "own.json"
    file.write_text('{"coat": ["blue", "red"], "light": ["dark", "red"]}')
    coat, light = opened(file).attributes
    assert coat.values == ("blue", "red") and named(coat, prompts) == {"a, red hat": None}
    with pytest.raises(ValueError, match="does not know these values of 'light'"):
        named(light, prompts)


def test_attributes_are_reported_on_the_page(tmp_path, tiny_sdxl_folder, monkeypatch):
    rows = [{"prompt": f"room {i % 8}", "vqa": i / 31} for i in range(32)]
    folder = save_batch(tmp_path, greys(*[0] * 16, *[255] * 16), rows)
    (folder / "attributes.json").write_text('{"light": ["dark", "bright"]}')
    monkeypatch.setattr(scoring_options, "open_clip", lambda *_: ())
    monkeypatch.setattr(scoring_options, "ZeroShot", Brightness)
    words = [folder, "--output", folder / "report", "--image-embedder", "pixels:2"]
    words += ["--prompt-embedder", f"sdxl:{tiny_sdxl_folder}"]
    words += ["--attributes", folder / "attributes.json", "--faithfulness", "vqa"]
    succeeds(command.main, *words)
    content = json.loads((folder / "report" / "report.json").read_text())
    [found] = content["runs"][0]["attributes"]
    assert content["runs"][0]["scores"]["faithfulness"]["value"] == pytest.approx(0.5)
    assert found["named_kept"] is None and len(found["by_prompt"]) == 8
    assert found["effective_values"][0] == pytest.approx(2) and found["training"] is None
    page = (folder / "report" / "report.html").read_text()
    assert '<section id="attributes"' in page and "with 95% confidence intervals" not in page


def test_the_page_of_two_runs_has_the_ratio_of_their_effective_values(unrendered):
    levels, prompts = [0, 255] * 32, [f"room {i % 16}" for i in range(64)]
    one, two = (
        replace(report_of(2, prompts=["a", "b"]), attributes=[scored(some, prompts)])
        for some in ([0] * 40 + [255] * 24, levels[::-1])
    )
    ratio, low, high = change(one.attributes[0], two.attributes[0])
    page = as_page([one, two], None, None, 0)
    assert page.count("×") == 1 and f"<td>×{ratio:.2f} ({low:.2f} to {high:.2f})</td>" in page
