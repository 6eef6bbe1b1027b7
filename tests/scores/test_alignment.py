"""In-batch similarity of features made by hand, and CLIPScore against torchmetrics."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torchmetrics.functional.multimodal import clip_score as torchmetrics_clip_score

from tests.helpers.every_score import normal
from vendi_guidance.scores.alignment import clip_cosines, clip_score, in_batch_similarity


def test_in_batch_similarity_is_the_mean_cosine_of_pairs_with_the_same_prompt():
    x, prompts = normal(0, 8, 5), ["ear"] * 5 + ["nose"] * 3
    pairs = [
        torch.cosine_similarity(x[i], x[j], dim=0)
        for i, j in itertools.combinations(range(8), 2)
        if prompts[i] == prompts[j]
    ]
    assert len(pairs) == 13
    expected = torch.stack(pairs).mean().item()
    assert in_batch_similarity(x, prompts) == pytest.approx(expected, rel=1e-12)
    assert in_batch_similarity(torch.tensor([[1.0, 0], [-2, 0]]), ["a", "a"]) == pytest.approx(-1)
    assert in_batch_similarity(torch.ones(2, 2), ["a", "b"]) is None


def clip_of(prompts):
    """A CLIP and its processor: images are their features, texts the rows of these."""

    def process(text=None, images=None, **_):
        if images is not None:
            return {"pixel_values": torch.stack(images).flatten(1)}
        rows = torch.tensor([int(row) for row in text])
        return {"input_ids": rows, "attention_mask": torch.ones_like(rows)[:, None]}

    model = SimpleNamespace(
        config=None,
        to=lambda device: model,
        get_image_features=lambda pixels: pixels,
        get_text_features=lambda rows, mask: prompts[rows],
    )
    return model, process


def test_the_clip_score_is_that_of_torchmetrics_but_that_no_image_counts_less_than_zero():
    images, prompts = normal(0, 30, 8).abs(), normal(1, 30, 8).abs()
    texts = [str(row) for row in range(30)]
    expected = torchmetrics_clip_score(images[:, None, None], texts, lambda: clip_of(prompts))
    assert clip_score(images, prompts) == pytest.approx(expected.item(), rel=1e-12)
    assert clip_score(images, 3 * images) == pytest.approx(100)
    opposite = torch.cat([prompts[:20], -prompts[20:]])
    cosines = clip_cosines(images, prompts)
    assert torch.equal(clip_cosines(images, opposite), torch.cat([cosines[:20], torch.zeros(10)]))
    assert clip_score(images, opposite) == pytest.approx(100 * float(cosines[:20].sum()) / 30)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="got 1 labels for n = 2 items"):
        in_batch_similarity(torch.ones(2, 2), ["a"])
    with pytest.raises(ValueError, match="got 3 images and 2 prompts"):
        clip_score(torch.ones(3, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="agree in d, got 2 and 4"):
        clip_score(torch.ones(3, 2), torch.ones(3, 4))
    with pytest.raises(ValueError, match="row 1 is a zero vector"):
        clip_score(torch.ones(3, 2), torch.tensor([[1.0, 0], [0, 0], [1, 1]]))
