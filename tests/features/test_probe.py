"""The demo's probe as a labeler."""

import json

import pytest
import torch

from tests.helpers.batches_at_hand import sample_images
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.inputs import prompt_fidelity
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Probe, ProbeLabeler, load_probe

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


def test_an_image_shows_what_was_asked_if_it_shows_all_that_the_prompt_names(probe):
    images = sample_images(8)
    seen = probe.looks(images)
    other = {"noto": "fluent", "fluent": "noto"}
    for prompt_of, is_right in (
        (lambda concept, vendor, tone: (concept, vendor, tone), True),
        (lambda concept, vendor, tone: (concept, None, tone), True),
        (lambda concept, vendor, tone: (concept, other[vendor], tone), False),
    ):
        labels = ProbeLabeler(probe)(images, [probe.words(prompt_of(*look)) for look in seen])
        assert prompt_fidelity(labels) == float(is_right)


def test_labels_are_concepts_and_their_variants_all_attributes(probe):
    images = sample_images(6)
    found = ProbeLabeler(probe)(images, ["ear", "castle"] * 3)
    looks = probe.looks(images)
    assert found.asked == ["ear", None] * 3 and found.shown == [look[0] for look in looks]
    assert found.variant == [look[1:] for look in looks]


def test_a_probe_of_version_0_2_says_what_it_said(probe, tmp_path):
    probe.save_pretrained(tmp_path)
    old = {"concepts": probe.concepts, "vendors": ["noto", "fluent"], "tones": ["light", "dark"]}
    (tmp_path / "config.json").write_text(json.dumps(old))
    loaded, images = load_probe(tmp_path), sample_images(4)
    assert loaded.looks(images) == probe.looks(images)
    assert loaded.asked(["ear, dark skin tone"]) == [("ear", None, "dark")]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ([], "damaged"),
        ({"concepts": None}, "damaged"),
        ({"concepts": [["ear"], "Nose"]}, "must be texts"),
        ({"attributes": [["vendor", ["noto", []]], ["tone", ["light", "dark"]]]}, "must be texts"),
        ({"caption": 5}, "must be texts"),
        ({"caption": "{concept}, {tone} skin tone"}, "names other attributes"),
        ({"caption": "{concept}, {tone.x}, {vendor}"}, "names other attributes"),
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
    class Watched(ProbeLabeler):
        calls = 0

        def __call__(self, images, prompts):
            self.calls += 1
            return super().__call__(images, prompts)

    images, labels = sample_images(6), Watched(load_probe(tiny_probe_folder))
    words = FromFunction(lambda texts: torch.eye(len(texts)), "words")
    reports = [
        evaluate(images, ["cat"] * 6, embedding=Embedding(x, words), judges=Judges(labels=labels))
        for x in (open_image_embedder(f"probe:{tiny_probe_folder}"), torch.randn(6, 3))
    ]
    assert labels.calls == 1
    assert reports[0].inputs.labels == reports[1].inputs.labels
