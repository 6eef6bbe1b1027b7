"""The demo's probe as a labeler."""

import pytest
import torch

from tests.helpers.batches_at_hand import sample_images
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.labels import prompt_fidelity
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Asked, Probe, ProbeLabeler, load_probe


@pytest.fixture(scope="module")
def probe() -> Probe:
    torch.manual_seed(0)
    return Probe(["ear", "Nose"], ["noto", "fluent"], ["light", "dark"]).eval()


def test_a_prompt_names_a_concept_before_the_first_comma_and_then_its_tone_and_vendor(probe):
    prompts = ["ear", "Ear, dark skin tone", " NOSE ,noto style", "an ear", "", "eye, ear"]
    dark, noto = Asked("ear", tone="dark"), Asked("Nose", vendor="noto")
    assert probe.asked(prompts) == [Asked("ear"), dark, noto, None, None, None]
    both = "ear, dark skin tone, fluent style"
    assert [str(one) for one in probe.asked([both, "ear, large, Noto style"])] == [
        both,
        "ear, noto style",
    ]


def test_an_image_shows_what_was_asked_if_it_shows_all_that_the_prompt_names(probe):
    images = sample_images(8)
    seen = list(zip(*probe.looks(images), strict=True))
    other = {"noto": "fluent", "fluent": "noto"}
    for prompt_of, is_right in (
        (lambda concept, vendor, tone: Asked(concept, vendor, tone), True),
        (lambda concept, vendor, tone: Asked(concept, None, tone), True),
        (lambda concept, vendor, tone: Asked(concept, other[vendor], tone), False),
    ):
        labels = ProbeLabeler(probe)(images, [str(prompt_of(*look)) for look in seen])
        assert prompt_fidelity(labels) == float(is_right)


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
