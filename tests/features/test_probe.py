"""The demo's probe as a labeler."""

import pytest
import torch

from tests.helpers.batches_at_hand import sample_images
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Probe, ProbeLabeler, load_probe


@pytest.fixture(scope="module")
def probe() -> Probe:
    torch.manual_seed(0)
    return Probe(["ear", "Nose"], ["noto", "fluent"], ["light", "dark"]).eval()


def test_the_asked_concept_is_what_stands_before_the_first_comma(probe):
    prompts = ["ear", "Ear, dark skin tone", " NOSE ,noto style", "an ear", "", "eye, ear"]
    assert probe.asked(prompts) == ["ear", "ear", "Nose", None, None, None]


def test_labels_are_concepts_and_their_variants_vendor_and_tone(probe):
    images = sample_images(6)
    found = ProbeLabeler(probe)(images, ["ear", "castle"] * 3)
    looks = probe.looks(images)
    assert found.asked == ["ear", None] * 3 and found.shown == looks.concepts
    assert found.variant == list(zip(looks.vendors, looks.tones, strict=True))


def test_labels_of_the_probes_own_features_take_no_second_pass(tiny_probe_folder):
    class Watched(ProbeLabeler):
        calls = 0

        def __call__(self, images, prompts):
            self.calls += 1
            return super().__call__(images, prompts)

    images, labels = sample_images(6), Watched(load_probe(tiny_probe_folder))
    words = FromFunction(lambda texts: torch.eye(len(texts)), "words")
    reports = [
        evaluate(images, ["cat"] * 6, image_embedder=x, prompt_embedder=words, labels=labels)
        for x in (open_image_embedder(f"probe:{tiny_probe_folder}"), torch.randn(6, 3))
    ]
    assert labels.calls == 1
    assert reports[0].inputs.labels == reports[1].inputs.labels
