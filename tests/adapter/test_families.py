"""The table of families names pipelines that exist."""

import diffusers
import pytest

from vendi_guidance import VendiGuidedPixArtAlphaPipeline
from vendi_guidance.adapter.families import FAMILIES, OTHERS, Family, family_of


@pytest.mark.parametrize("row", FAMILIES[1:], ids=lambda row: row.beginning)
def test_a_row_is_of_pipelines_of_diffusers_and_says_something_of_them(row):
    kinds = [name for name in dir(diffusers) if name.startswith(row.beginning)]
    assert any(name.endswith("Pipeline") for name in kinds)
    assert row != Family(row.beginning)


def test_a_family_is_found_by_a_base_and_for_a_class():
    assert family_of(VendiGuidedPixArtAlphaPipeline).is_in_place
    assert family_of(diffusers.ZImagePipeline).prompts_first
    assert family_of(diffusers.AnimateDiffPAGPipeline).perturbs_attention
    assert family_of(diffusers.StableDiffusionXLPipeline) == OTHERS
