"""Prompt features from what a callback is given, for pipelines that are only a name."""

import diffusers
import pytest
import torch

from vendi_guidance.adapter.families import FAMILIES, Family
from vendi_guidance.adapter.prompts import is_pooled_clip, prompt_features, prompt_inputs


def pipeline(name="StableDiffusionPipeline", offers=()):
    return type(name, (), {"_callback_tensor_inputs": ["latents", *offers]})()


def latents(count=2, frames=None):
    return torch.zeros(count, 4, *([] if frames is None else [frames]), 8, 8)


def rows(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        (["prompt_embeds", "negative_prompt_embeds"], ["prompt_embeds"]),
        (["prompt_embeds", "add_text_embeds", "add_time_ids"], ["add_text_embeds"]),
        (["prompt_embeds", "pooled_prompt_embeds"], ["pooled_prompt_embeds"]),
        (["prompt_embeds", "negative_pooled_prompt_embeds"], ["prompt_embeds"]),
        (["prompt_embeds", "prompt_attention_mask"], ["prompt_embeds", "prompt_attention_mask"]),
        (["add_text_embeds", "prompt_attention_mask"], ["add_text_embeds"]),
        (["prompt_embeds_qwen", "prompt_embeds_clip"], ["prompt_embeds_qwen"]),
        (["image_embeds"], []),
        ([], []),
    ],
)
def test_asks_for_pooled_embeddings_or_else_for_tokens_and_their_mask(offered, asked):
    assert prompt_inputs(pipeline(offers=offered)) == asked
    assert prompt_inputs(object()) == []


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16])
def test_padding_does_not_count_and_a_mask_may_hide_all(dtype):
    tokens = rows(2, 5, 6).half()
    mask = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).to(dtype)
    given = {"latents": latents(), "prompt_embeds": tokens, "prompt_embeds_mask": mask}
    features = prompt_features(pipeline(), given)
    expected = torch.stack([tokens[0, :2].float().mean(dim=0), torch.zeros(6)])
    torch.testing.assert_close(features, expected)


def test_a_list_of_prompts_may_differ_in_length_and_come_in_pieces():
    one, two = rows(3, 6), rows(5, 6)
    for prompts in ([one, two], [[one[:1], one[1:]], [two]], (one, two)):
        features = prompt_features(pipeline(), {"latents": latents(), "prompt_embeds": prompts})
        assert torch.allclose(features, torch.stack([one.mean(dim=0), two.mean(dim=0)]))


@pytest.mark.parametrize("copies", [1, 2])
def test_animatediff_does_not_repeat_pooled_embeddings_for_each_frame(copies):
    pooled = rows(2 * copies, 6)
    given = {"latents": latents(frames=2), "pooled": pooled}
    animated = pipeline("AnimateDiffSDXLPipeline")
    assert torch.equal(prompt_features(animated, given, "pooled"), pooled[-2:])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt_embeds": rows(3, 5, 6)}, "prompt_embeds has 3 rows for 2 latents: give one"),
        ({"prompt_embeds": [rows(5, 6)]}, "prompt_embeds has 1 rows for 2 latents"),
        ({"prompt_embeds": {0: rows(2, 5, 6)}}, "prompt_embeds must be .* got a dict"),
        (
            {"prompt_embeds": rows(2, 5, 6), "prompt_attention_mask": rows(2, 4)},
            r"the mask of prompt_embeds has shape \(2, 4\) where \(2, 5\) was expected",
        ),
    ],
)
def test_what_does_not_fit_is_said_plainly(given, message):
    with pytest.raises(ValueError, match=message):
        prompt_features(pipeline(), {"latents": latents(), **given})


def test_only_pooled_embeddings_of_clip_are_called_so():
    assert is_pooled_clip(pipeline("StableDiffusionXLPipeline"), ["add_text_embeds"], None)
    assert is_pooled_clip(pipeline("StableDiffusion3Pipeline"), [], "pooled_prompt_embeds")
    assert not is_pooled_clip(pipeline(), ["prompt_embeds"], None)
    assert not is_pooled_clip(pipeline("KolorsPipeline"), ["add_text_embeds"], None)


@pytest.mark.parametrize("row", FAMILIES[1:], ids=lambda row: row.beginning)
def test_a_row_is_of_pipelines_of_diffusers_and_says_something_of_them(row):
    kinds = [name for name in dir(diffusers) if name.startswith(row.beginning)]
    assert any(name.endswith("Pipeline") for name in kinds)
    assert row != Family(row.beginning)
