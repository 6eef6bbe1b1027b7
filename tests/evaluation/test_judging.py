"""Judging without a judge."""

from tests.helpers.batches_at_hand import greys
from vendi_guidance.evaluation.judging import OwnPrompt
from vendi_guidance.features.images import open_image_embedder


def test_an_image_is_recognised_by_the_most_similar_other_image_without_guidance():
    embedder, prompts = open_image_embedder("pixels:2"), ["night", "night", "day", "day"]
    judge = OwnPrompt(embedder, greys(0, 20, 220, 250), prompts)
    assert judge(greys(30, 200, 30), ["night", "day", "day"]).tolist() == [1.0, 1.0, 0.0]
    known, prompts = greys(0, 20, 100, 250), ["night", "night", "dusk", "day"]
    assert OwnPrompt(embedder, known, prompts)(known, prompts).tolist() == [1.0, 1.0, 0.0, 0.0]
