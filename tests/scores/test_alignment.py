"""In-batch similarity and CLIPScore of features made by hand, against their definitions."""

import itertools

import numpy as np
import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.scores import clip_score, group_vendi, in_batch_similarity


def test_in_batch_similarity_is_the_mean_cosine_of_pairs_with_the_same_prompt():
    x, prompts = normal(0, 8, 5), ["ear"] * 5 + ["nose"] * 3
    pairs = [(i, j) for i, j in itertools.combinations(range(8), 2) if prompts[i] == prompts[j]]
    expected = torch.cosine_similarity(*x[torch.tensor(pairs).T]).mean().item()
    assert in_batch_similarity(x, prompts) == pytest.approx(expected, rel=1e-12)
    assert in_batch_similarity(torch.tensor([[1.0, 0], [-2, 0]]), ["a", "a"]) == pytest.approx(-1)
    assert in_batch_similarity(torch.ones(2, 2), ["a", "b"]) is None


def test_in_group_vendi_is_the_mean_over_groups_then_prompts_of_the_scores_of_four_images():
    x, prompts = normal(0, 16, 5), ["ear"] * 9 + ["leg"] * 3 + ["nose"] * 4

    def score(rows):
        unit = x[rows].numpy() / np.linalg.norm(x[rows].numpy(), axis=1, keepdims=True)
        p = np.linalg.svd(unit, compute_uv=False) ** 2 / 4
        return np.exp(-np.sum(p * np.log(p)))

    first, second, last = (score(slice(start, start + 4)) for start in (0, 4, 12))
    expected = ((first + second) / 2 + last) / 2  # the ninth ear and three legs are no group
    assert group_vendi(x, prompts) == pytest.approx(expected, rel=1e-10)
    assert group_vendi(torch.ones(4, 2), ["a", "b"] * 2, 3) is None


def test_the_clip_score_is_the_mean_cosine_in_percent_and_no_image_counts_less_than_zero():
    images, prompts = normal(0, 30, 8).abs(), normal(1, 30, 8).abs()
    expected = 100 * torch.cosine_similarity(images, prompts).mean().item()
    assert float(clip_score(images, prompts).mean()) == pytest.approx(expected, rel=1e-12)
    assert float(clip_score(images, 3 * images).mean()) == pytest.approx(100)
    opposite = torch.cat([prompts[:20], -prompts[20:]])
    scores = clip_score(images, prompts)
    assert torch.equal(clip_score(images, opposite), torch.cat([scores[:20], torch.zeros(10)]))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="got 1 labels for n = 2 items"):
        in_batch_similarity(torch.ones(2, 2), ["a"])
    with pytest.raises(ValueError, match="size must be a whole number of at least 2, got 1"):
        group_vendi(torch.ones(2, 2), ["a"] * 2, 1)
    with pytest.raises(ValueError, match="got 3 images and 2 prompts"):
        clip_score(torch.ones(3, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="agree in d, got 2 and 4"):
        clip_score(torch.ones(3, 2), torch.ones(3, 4))
    with pytest.raises(ValueError, match="row 1 is a zero vector"):
        clip_score(torch.ones(3, 2), torch.tensor([[1.0, 0], [0, 0], [1, 1]]))
