"""What scores are computed from."""

import pytest
import torch

from tests.helpers.batches_at_hand import COLOURS, EMBEDDING, WORDS, prompts, sample_images
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.features.base import Labels
from vendi_guidance.scores.spectra import Exact

X, T = COLOURS.embed(sample_images(40)), WORDS.embed(prompts(40))
KERNELS = EMBEDDING.kernel_image, EMBEDDING.kernel_prompt
INPUTS = ScoreInputs(X, KERNELS[0], t=T, kernel_t=KERNELS[1])


def test_prompts_that_repeat_need_no_spectrum_of_all_images():
    found = [values[values > 1e-9] for values in INPUTS.eigenvalues()]
    assert len(found[1]) == 8
    for values, gram in zip(found, (KERNELS[0].gram(X), KERNELS[1].gram(T)), strict=False):
        whole = torch.linalg.eigvalsh(gram.double() / 40).flip(0)
        assert torch.allclose(values, whole[: len(values)], atol=1e-6)


def test_some_images_score_as_if_there_were_no_others():
    rows = torch.arange(0, 40, 3)
    few = ScoreInputs(X[rows], KERNELS[0], t=T[rows], kernel_t=KERNELS[1])
    assert INPUTS.take(rows).scores(Exact()) == pytest.approx(few.scores(Exact()))


def test_every_prompt_with_a_correct_image_has_a_look_at_least():
    groups = ["hand"] * 3 + ["thumb"] * 2
    labels = Labels(
        groups, ["hand", "hand", "ear", "ear", "ear"], ["light", "dark"] + ["light"] * 3
    )
    some = ScoreInputs(X[:5], KERNELS[0], groups=groups, labels=labels)
    assert some.scores(Exact())["looks_per_prompt"] == 1.0  # 2 and 0
    assert some.lower_bound("looks_per_prompt") == 0.5
    assert some.lower_bound("vendi") == -torch.inf
