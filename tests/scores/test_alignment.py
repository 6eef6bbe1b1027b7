"""In-batch similarity and CLIPScore of features made by hand, against their definitions."""

import itertools

import numpy as np
import pytest
import torch

from tests.helpers.every_score import normal
from vendi_guidance.scores import (
    clip_score,
    group_vendi,
    in_batch_similarity,
    pairwise_distance,
    projection_spreads,
    seed_identifiability,
)


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


PROMPTS = ["ear"] * 6 + ["nose"] * 4 + ["leg"]


def unit(x):
    return x.numpy() / np.linalg.norm(x.numpy(), axis=1, keepdims=True)


def test_pairwise_distance_is_the_mean_over_prompts_of_the_mean_over_pairs():
    x = unit(normal(0, 11, 5))
    of_prompts = [
        np.mean([1 - x[i] @ x[j] for i, j in itertools.combinations(rows, 2)])
        for rows in (range(6), range(6, 10))
    ]
    found = pairwise_distance(normal(0, 11, 5), PROMPTS)
    assert found == pytest.approx(np.mean(of_prompts), rel=1e-10)
    assert pairwise_distance(torch.ones(2, 2), ["a", "b"]) is None


def test_projection_spreads_are_along_the_text_and_along_the_main_direction_beside_it():
    x, t = normal(0, 11, 5), normal(1, 3, 5)[[0] * 6 + [1] * 4 + [2]]
    expected = []
    for rows in (slice(0, 6), slice(6, 10)):
        images, text = unit(x)[rows], unit(t)[rows][0]
        along = images @ text
        beside = images - np.outer(along, text)
        _, vectors = np.linalg.eigh(np.cov(beside.T))
        assert abs(vectors[:, -1] @ text) < 1e-12
        expected.append([np.ptp(along), np.ptp(beside @ vectors[:, -1])])
    found = projection_spreads(x, t, PROMPTS)
    assert found == pytest.approx(np.mean(expected, axis=0), rel=1e-10)
    assert projection_spreads(torch.ones(2, 2), torch.ones(2, 2), ["a", "b"]) is None


def test_seeds_are_told_by_a_linear_probe_of_other_prompts():
    seeds, prompts = list(range(4)) * 5, [f"prompt {number // 4}" for number in range(20)]
    offsets = 0.3 * normal(3, 4, 6)[seeds]
    x = normal(0, 5, 6).repeat_interleave(4, 0) + offsets + 0.2 * normal(2, 20, 6)
    a = unit(x).reshape(5, 4, 6)
    a = (a - a.mean(axis=1, keepdims=True)).reshape(20, 6)
    right, half = 0, np.arange(20) // 4 % 2
    for train, test in ((half == 0, half == 1), (half == 1, half == 0)):
        ridge = np.linalg.inv(a[train].T @ a[train] + np.eye(6)) @ a[train].T
        found = (a[test] @ ridge @ np.eye(4)[seeds][train]).argmax(axis=1)
        right += (found == np.array(seeds)[test]).sum()
    assert seed_identifiability(x, seeds, prompts) == pytest.approx(right / 20, rel=1e-10)
    assert 0.25 < right / 20 < 1
    assert seed_identifiability(x, list(range(20)), prompts) is None  # no seed is used twice


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
