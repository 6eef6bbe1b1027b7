"""In-batch similarity and CLIPScore of features made by hand, against their definitions."""

import itertools

import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.scores.alignment import clip_cosines, clip_score, in_batch_similarity


def test_in_batch_similarity_is_the_mean_cosine_of_pairs_with_the_same_prompt():
    x, prompts = normal(0, 8, 5), ["ear"] * 5 + ["nose"] * 3
    pairs = [
        torch.cosine_similarity(x[i], x[j], dim=0)
        for i, j in itertools.combinations(range(8), 2)
        if prompts[i] == prompts[j]
    ]
    assert len(pairs) == 13
    expected = torch.stack(pairs).mean().item()
    assert in_batch_similarity(x, prompts) == pytest.approx(expected, rel=1e-12)
    assert in_batch_similarity(torch.tensor([[1.0, 0], [-2, 0]]), ["a", "a"]) == pytest.approx(-1)
    assert in_batch_similarity(torch.ones(2, 2), ["a", "b"]) is None


def test_the_clip_score_is_the_mean_cosine_in_percent_and_no_image_counts_less_than_zero():
    images, prompts = normal(0, 30, 8).abs(), normal(1, 30, 8).abs()
    expected = 100 * torch.cosine_similarity(images, prompts).mean().item()
    assert clip_score(images, prompts) == pytest.approx(expected, rel=1e-12)
    assert clip_score(images, 3 * images) == pytest.approx(100)
    opposite = torch.cat([prompts[:20], -prompts[20:]])
    cosines = clip_cosines(images, prompts)
    assert torch.equal(clip_cosines(images, opposite), torch.cat([cosines[:20], torch.zeros(10)]))
    assert clip_score(images, opposite) == pytest.approx(100 * float(cosines[:20].sum()) / 30)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="got 1 labels for n = 2 items"):
        in_batch_similarity(torch.ones(2, 2), ["a"])
    with pytest.raises(ValueError, match="got 3 images and 2 prompts"):
        clip_score(torch.ones(3, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="agree in d, got 2 and 4"):
        clip_score(torch.ones(3, 2), torch.ones(3, 4))
    with pytest.raises(ValueError, match="row 1 is a zero vector"):
        clip_score(torch.ones(3, 2), torch.tensor([[1.0, 0], [0, 0], [1, 1]]))
