"""Scores from labels made by hand."""

import pytest

from vendi_guidance.evaluation.inputs import looks_by_group, prompt_fidelity
from vendi_guidance.features.base import Labels

PROMPTS = ["ear"] * 5 + ["nose"] * 3
LABELS = Labels(
    asked=PROMPTS,
    shown=["ear", "ear", "ear", "nose", "ear", "nose", "ear", "ear"],
    variant=["dark", "dark", "round", "light", "light", "dark", "dark", "round"],
)


def test_a_look_counts_once_and_only_on_an_image_of_what_was_asked():
    # ear: dark twice, round, light; the nose among them does not count
    assert looks_by_group(PROMPTS, LABELS) == {"ear": 3, "nose": 1}
    assert looks_by_group(["a nose"], Labels(["nose"], ["ear"], ["dark"])) == {"a nose": 0}
    assert prompt_fidelity(LABELS) == pytest.approx(5 / 8)
    # prompts that differ in what they leave open are counted apart
    labels = Labels(["ear"] * 3, ["ear"] * 3, ["dark", "dark", "light"])
    assert looks_by_group(["ear", "ear, dark", "ear"], labels) == {"ear": 2, "ear, dark": 1}
