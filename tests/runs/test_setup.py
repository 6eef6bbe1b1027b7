"""Preparation of a run from options."""

import re
from inspect import signature
from pathlib import Path

import diffusers
import pytest

from vendi_guidance import VendiGuidance
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.window import WINDOW
from vendi_guidance.runs.pipelines import guided_class
from vendi_guidance.runs.setup import check_prompts_are_seen

DIAL = Path(__file__).parents[2] / "docs" / "dial.md"


def test_a_pipeline_without_prompt_embeddings_is_refused_if_prompts_are_compared():
    guided = guided_class(diffusers.KandinskyV22Pipeline)  # only its prior reads prompts
    with pytest.raises(ValueError, match="KandinskyV22Pipeline gives guidance no prompt embedd"):
        check_prompts_are_seen(guided, Rounds())
    check_prompts_are_seen(guided, Rounds(objective="vendi"))
    check_prompts_are_seen(guided, Rounds(diversity=0.0))
    check_prompts_are_seen(guided_class(diffusers.StableDiffusion3Pipeline), Rounds())


def test_the_windows_size_is_one_number_in_code_and_docs():
    assert signature(VendiGuidance).parameters["window"].default == WINDOW
    [said] = re.findall(r"`diversity_window` \(`window`, default (\d+)\)", DIAL.read_text())
    assert int(said) == WINDOW
