"""Judging without a judge."""

import torch
from PIL import Image

from vendi_guidance.evaluation.judging import OwnPrompt
from vendi_guidance.features.images import open_image_embedder


def greys(*levels: int) -> list[Image.Image]:
    return [Image.new("L", (8, 8), level).convert("RGB") for level in levels]


def test_an_image_is_recognised_by_the_most_similar_unguided_image():
    prompts = ["night", "night", "day", "day"]
    judge = OwnPrompt(open_image_embedder("pixels:2"), greys(0, 20, 220, 250), prompts)
    found = judge(greys(30, 200, 30), ["night", "day", "day"])
    assert torch.equal(found, torch.tensor([1.0, 1.0, 0.0]))


def test_of_the_unguided_images_each_is_compared_with_the_others():
    known, prompts = greys(0, 20, 100, 250), ["night", "night", "dusk", "day"]
    judge = OwnPrompt(open_image_embedder("pixels:2"), known, prompts)
    assert judge(known, prompts).tolist() == [1.0, 1.0, 0.0, 0.0]
