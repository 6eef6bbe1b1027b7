"""Scores from features, and from labels made by hand."""

import pytest
import torch

from tests.helpers.batches_at_hand import COLOURS, EMBEDDING, WORDS, prompts, sample_images
from vendi_guidance.evaluation.inputs import ScoreInputs, looks_by_group, prompt_fidelity
from vendi_guidance.features.base import Labels

X, T = COLOURS.embed(sample_images(40)), WORDS.embed(prompts(40))
KERNELS = EMBEDDING.kernel_image, EMBEDDING.kernel_prompt
INPUTS = ScoreInputs(X, KERNELS[0], t=T, kernel_t=KERNELS[1])

PROMPTS = ["ear"] * 5 + ["nose"] * 3
LABELS = Labels(
    asked=PROMPTS,
    shown=["ear", "ear", "ear", "nose", "ear", "nose", "ear", "ear"],
    variant=["dark", "dark", "round", "light", "light", "dark", "dark", "round"],
)


def test_prompts_that_repeat_need_no_spectrum_of_all_images():
    found = [values[values > 1e-9] for values in INPUTS.eigenvalues().values()]
    assert len(found[1]) == 8
    for values, gram in zip(found, (KERNELS[0].gram(X), KERNELS[1].gram(T)), strict=False):
        whole = torch.linalg.eigvalsh(gram.double() / 40).flip(0)
        assert torch.allclose(values, whole[: len(values)], atol=1e-6)


def test_a_look_counts_once_and_only_on_an_image_of_what_was_asked():
    # ear: dark twice, round, light; the nose among them does not count
    assert looks_by_group(PROMPTS, LABELS) == {"ear": 3, "nose": 1}
    assert looks_by_group(["a nose"], Labels(["nose"], ["ear"], ["dark"])) == {"a nose": 0}
    assert prompt_fidelity(LABELS) == pytest.approx(5 / 8)
    # prompts that differ in what they leave open are counted apart
    labels = Labels(["ear"] * 3, ["ear"] * 3, ["dark", "dark", "light"])
    assert looks_by_group(["ear", "ear, dark", "ear"], labels) == {"ear": 2, "ear, dark": 1}
