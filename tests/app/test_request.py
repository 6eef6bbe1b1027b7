"""What a visitor may ask for."""

import math

import pytest

from tests.helpers.app_at_hand import request_of
from vendi_guidance.app.request import (
    LONGEST_PROMPT,
    MOST_IMAGES,
    MOST_PROMPTS,
    read_prompts,
)


def test_each_line_is_a_prompt_and_the_same_one_counts_once():
    assert list(read_prompts("  a cat \n\n<b>\r\na cat\n")) == ["a cat", "<b>"]
    request = request_of("  a cat \n\n<b>\r\na cat\n")
    assert (request.prompts, request.repeated) == (("a cat", "<b>"), {"a cat"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Write a prompt"),
        (" \n\t\n", "Write a prompt"),
        (None, "must be text"),
        (["a cat"], "must be text"),
        ("x" * (LONGEST_PROMPT + 1), f"Prompt 1 has {LONGEST_PROMPT + 1} characters"),
        ("x" * 10**6, "1000000 characters"),
        ("\n".join(map(str, range(MOST_PROMPTS + 1))), f"At most {MOST_PROMPTS} prompts"),
        ("a cat\n\ud800", "Prompt 2 has '\\ud800', half of a surrogate pair"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(text, why):
    with pytest.raises(ValueError) as error:
        read_prompts(text)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "value", [None, "1", [], {}, True, math.nan, math.inf, -1, 1.5, 1e300, 10**400], ids=type
)
@pytest.mark.parametrize("field", ["images", "strength", "seed", "steps", "batch_size"])
def test_values_of_the_wrong_type_or_size_are_refused(field, value):
    with pytest.raises(ValueError, match=r"must be a (whole )?number from"):
        request_of(**{field: value})


def test_the_largest_values_are_taken_and_no_scale_for_a_model_without():
    assert request_of("a", images=float(MOST_IMAGES), strength=1).images == MOST_IMAGES
    with pytest.raises(ValueError, match=f"from 1 to {MOST_IMAGES}"):
        request_of("a", images=MOST_IMAGES + 1)
    assert request_of("a", guidance_scale=None).guidance_scale is None
