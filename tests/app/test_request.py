"""What a visitor may ask for."""

import gradio as gr
import pytest

from tests.helpers.app_at_hand import request_of
from vendi_guidance.app.page import request_fields
from vendi_guidance.app.request import LONGEST_PROMPT, MOST_PROMPTS, read_prompts
from vendi_guidance.runs.options import RunOptions


def test_each_line_is_a_prompt_and_the_same_one_is_generated_once():
    request = request_of("  a cat \n\n<b>\r\na cat\n", images=3)
    assert request.prompts == {"a cat": 2, "<b>": 1}
    assert request.total == 6 and request.prompt(2) == "a cat" and request.prompt(3) == "<b>"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Write a prompt"),
        (" \n\t\n", "Write a prompt"),
        (None, "Write a prompt"),
        ("x" * (LONGEST_PROMPT + 1), f"Prompt 1 has {LONGEST_PROMPT + 1} characters"),
        ("\n".join(map(str, range(MOST_PROMPTS + 1))), f"At most {MOST_PROMPTS} prompts"),
        ("a cat\n\ud800", r"Prompt 2 has '\\ud800', half of a surrogate pair"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(text, why):
    with pytest.raises(ValueError, match=why):
        read_prompts(text)


@pytest.mark.parametrize("field", ["images", "strength", "seed", "steps", "batch_size"])
def test_every_field_but_the_scale_of_a_model_with_cfg_must_be_filled_in(field):
    with pytest.raises(ValueError, match="A number is missing"):
        request_of(**{field: None})
    assert request_of(guidance_scale=None).guidance_scale is None


@pytest.mark.parametrize(("number", "scale"), [(1, 0.0), (500, -2.5), (500, 99.5)])
def test_fields_allow_what_the_command_line_chose(number, scale):
    options = RunOptions(steps=number, batch_size=number, guidance_scale=scale)
    with gr.Blocks():
        fields = request_fields(options, "")
    assert [one.preprocess(one.value) for one in fields[-3:]] == [number, scale, number]
