"""Scores on labels made by hand."""

import pytest

from vendi_guidance.evaluation.labels import looks_by_group, prompt_fidelity
from vendi_guidance.features.base import Labels

PROMPTS = ["ear"] * 5 + ["nose"] * 3
LABELS = Labels(
    asked=PROMPTS,
    shown=["ear", "ear", "ear", "nose", "ear", "nose", "ear", "ear"],
    variant=["dark", "dark", "round", "light", "light", "dark", "dark", "round"],
)


def test_a_look_counts_once_and_only_on_a_picture_of_what_was_asked():
    # ear: dark twice, round, light; the nose among them does not count
    assert looks_by_group(PROMPTS, LABELS) == {"ear": 3, "nose": 1}


def test_a_prompt_without_any_correct_picture_has_no_looks():
    assert looks_by_group(["a nose"], Labels(["nose"], ["ear"], ["dark"])) == {"a nose": 0}


def test_prompts_that_differ_in_what_they_leave_open_are_counted_apart():
    prompts = ["ear", "ear, dark", "ear"]
    labels = Labels(["ear"] * 3, ["ear"] * 3, ["dark", "dark", "light"])
    assert looks_by_group(prompts, labels) == {"ear": 2, "ear, dark": 1}


def test_fidelity_is_the_share_of_pictures_that_show_what_was_asked():
    assert prompt_fidelity(LABELS) == pytest.approx(5 / 8)


def test_pictures_of_unknown_labels_do_not_count():
    labels = Labels(["ear", None, "nose"], ["ear"] * 3, ["dark"] * 3)
    assert prompt_fidelity(labels) == pytest.approx(1 / 2)
    assert looks_by_group(["ear", "castle", "nose"], labels) == {"ear": 1, "nose": 0}
    assert prompt_fidelity(Labels([None], ["ear"], ["dark"])) is None
