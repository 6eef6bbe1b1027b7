"""The demo's probe as a labeler."""

import json
from unittest.mock import Mock

import pytest
import torch

from tests.helpers.batches_at_hand import report_of, sample_images
from vendi_guidance.evaluation.inputs import prompt_fidelity
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Probe, load_probe

CAPTION = "{concept}, {tone} skin tone, {vendor} style"


@pytest.fixture(scope="module")
def probe() -> Probe:
    torch.manual_seed(0)
    attributes = [("vendor", ["noto", "fluent"]), ("tone", ["light", "dark"])]
    return Probe(["ear", "Nose"], attributes, CAPTION).eval()


def test_a_prompt_names_a_concept_before_the_first_comma_and_then_attributes(probe):
    prompts = ["ear", "Ear, dark skin tone", " NOSE ,noto style", "an ear", "", "eye, ear"]
    dark, noto = ("ear", None, "dark"), ("Nose", "noto", None)
    assert probe.asked(prompts) == [("ear", None, None), dark, noto, None, None, None]
    assert probe.asked(["ear, fluent style, large, dark skin tone"]) == [("ear", "fluent", "dark")]
    assert probe.asked(["ear, dark, fluent"]) == [("ear", None, None)]  # as captions do not say it
    both = "ear, dark skin tone, fluent style"  # said again in the caption's words
    found = [probe.words(one) for one in probe.asked([both, "ear, large, Noto style"])]
    assert found == [both, "ear, noto style"]


def test_a_caption_without_commas_names_any_of_its_parts():
    attributes = [("colour", ["blue", "navy blue"]), ("whose", ["men's", "women's"])]
    probe = Probe(["shirt", "t-shirt"], attributes, "a photo of a {colour} {whose} {concept}", 80)
    prompts = ["a photo of a shirt", "A photo of a  navy blue Women's T-shirt", "a shirt"]
    prompts += ["a photo of a men's shirt", "a photo of a blue"]
    found = [("shirt", None, None), ("t-shirt", "navy blue", "women's"), None]
    assert probe.asked(prompts) == [*found, ("shirt", None, "men's"), None]
    said = ["a photo of a shirt", "a photo of a navy blue women's t-shirt"]
    assert [probe.words(one) for one in found[:2]] == said
    assert probe.embed(sample_images(2)).shape == (2, 128)


def test_an_image_shows_what_was_asked_if_it_shows_all_that_the_prompt_names(probe):
    """Labels are concepts, their variants all attributes."""
    images = sample_images(8)
    looks = probe.looks(images)
    other = {"noto": "fluent", "fluent": "noto", None: None}
    for vendors, is_right in ((lambda v: v, 1), (lambda v: None, 1), (other.get, 0)):
        asked = [probe.words((concept, vendors(v), tone)) for concept, v, tone in looks]
        assert prompt_fidelity(probe.labels(probe.embed(images), asked)) == is_right
    found = probe.labels(probe.embed(images), ["ear", "castle"] * 4)
    assert found.asked == ["ear", None] * 4 and found.shown == [look[0] for look in looks]
    assert found.variant == [look[1:] for look in looks]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ([], "damaged"),
        ({"concepts": None}, "damaged"),
        ({"concepts": [["ear"], "Nose"]}, "must be strings"),
        ({"attributes": [["vendor", ["noto", []]], ["tone", ["light", "dark"]]]}, "be strings"),
        ({"caption": 5}, "must be strings"),
        ({"caption": "{concept}, {tone} skin tone"}, "does not match its attributes"),
        ({"caption": "{concept}, {tone.x}, {vendor}"}, "does not match its attributes"),
        ({"concepts": ["ear"]}, "damaged"),
    ],
)
def test_a_damaged_config_is_refused(probe, tmp_path, changed, words):
    probe.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed} if changed else []))
    with pytest.raises(ValueError, match=r"the probe in .* is damaged: .*") as refused:
        load_probe(tmp_path)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_labels_of_the_probes_own_features_take_no_second_pass(tiny_probe_folder):
    probe = load_probe(tiny_probe_folder)
    probe.embed = Mock(wraps=probe.embed)
    embedder = open_image_embedder(f"probe:{tiny_probe_folder}")
    found = [
        report_of(6, prompts=["cat"] * 6, labels=probe, image=x).inputs.labels
        for x in (embedder, torch.randn(6, 3))
    ]
    assert probe.embed.call_count == 1
    assert found[0] == found[1]
