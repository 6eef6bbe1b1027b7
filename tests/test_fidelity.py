"""Looks, fidelity and in-batch similarity, on labels and features made by hand."""

import itertools

import pytest
import torch

from vendi_guidance.embedders import Looks
from vendi_guidance.fidelity import (
    asked_concepts,
    in_batch_similarity,
    looks_by_prompt,
    prompt_fidelity,
)

PROMPTS = ["ear"] * 5 + ["nose"] * 3
SEEN = Looks(
    concepts=["ear", "ear", "ear", "nose", "ear", "nose", "ear", "ear"],
    vendors=["noto", "noto", "fluent", "fluent", "noto", "noto", "noto", "fluent"],
    tones=["dark", "dark", "dark", "light", "light", "dark", "dark", "dark"],
)


def test_the_asked_concept_is_what_stands_before_the_first_comma():
    prompts = ["ear", "Ear, dark skin tone", " NOSE ,noto style", "an ear", "", "eye, ear"]
    assert asked_concepts(prompts, ["ear", "Nose"]) == ["ear", "ear", "Nose", None, None, None]


def test_a_look_counts_once_and_only_on_a_picture_of_what_was_asked():
    # ear: (noto, dark) twice, (fluent, dark), (noto, light); the nose among them does not count
    assert looks_by_prompt(PROMPTS, PROMPTS, SEEN) == {"ear": 3, "nose": 1}


def test_a_prompt_without_any_right_picture_has_no_looks():
    seen = Looks(["ear"], ["noto"], ["dark"])
    assert looks_by_prompt(["nose"], ["nose"], seen) == {"nose": 0}


def test_prompts_that_differ_in_what_they_leave_open_are_counted_apart():
    prompts = ["ear", "ear, dark skin tone", "ear"]
    seen = Looks(["ear"] * 3, ["noto", "noto", "fluent"], ["dark"] * 3)
    assert looks_by_prompt(prompts, ["ear"] * 3, seen) == {"ear": 2, "ear, dark skin tone": 1}


def test_fidelity_is_the_share_of_right_pictures():
    assert prompt_fidelity(PROMPTS, SEEN) == pytest.approx(5 / 8)


def test_pictures_of_unknown_concepts_are_not_judged():
    asked = ["ear", None, "nose"]
    seen = Looks(["ear", "ear", "ear"], ["noto"] * 3, ["dark"] * 3)
    assert prompt_fidelity(asked, seen) == pytest.approx(1 / 2)
    assert looks_by_prompt(["ear", "castle", "nose"], asked, seen) == {"ear": 1, "nose": 0}
    assert prompt_fidelity([None, None, None], seen) is None


def test_in_batch_similarity_is_the_mean_cosine_of_pairs_with_the_same_prompt():
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    pairs = [
        torch.cosine_similarity(x[i], x[j], dim=0)
        for i, j in itertools.combinations(range(8), 2)
        if PROMPTS[i] == PROMPTS[j]
    ]
    assert len(pairs) == 13
    expected = torch.stack(pairs).mean().item()
    assert in_batch_similarity(x, PROMPTS) == pytest.approx(expected, rel=1e-5)


def test_in_batch_similarity_of_equal_pictures_is_one_and_knows_its_limits():
    assert in_batch_similarity(torch.ones(3, 2), ["a", "a", "a"]) == pytest.approx(1)
    assert in_batch_similarity(torch.tensor([[1.0, 0], [-2, 0]]), ["a", "a"]) == pytest.approx(-1)
    assert in_batch_similarity(torch.ones(2, 2), ["a", "b"]) is None


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="got 7 and 8 items"):
        prompt_fidelity(PROMPTS[1:], SEEN)
    with pytest.raises(ValueError, match="got 8 and 7 items"):
        looks_by_prompt(PROMPTS, PROMPTS[1:], SEEN)
    with pytest.raises(ValueError, match="got 1 and 2 items"):
        in_batch_similarity(torch.ones(2, 2), ["a"])
