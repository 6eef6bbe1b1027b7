"""Subsamples of batches, and confidence intervals from them."""

import itertools
from statistics import stdev

import pytest
import torch
from scipy.stats import t as student

from vendi_guidance.evaluation.attribute_diversity import sample_values
from vendi_guidance.evaluation.intervals import FEWEST_IMAGES, LARGEST_PART, subsample

LABELS = [f"prompt {i // 4}" for i in range(80)]


def test_prompts_are_drawn_whole_and_the_same_of_batches_that_share_them():
    mirrored = LABELS[::-1]
    subsamples = subsample([LABELS, mirrored], [80, 80])
    assert subsamples.unit == "prompts" and subsamples.paired and len(subsamples.parts) == 50
    for first, second in subsamples.parts:
        drawn = {LABELS[i] for i in first}
        assert len(drawn) == 10 and len(first) == 40
        assert drawn == {mirrored[i] for i in second}
        assert torch.equal(first, first.sort().values)
    subsamples = subsample([LABELS, [f"other {label}" for label in LABELS]], [80, 80])
    assert subsamples.unit == "prompts" and not subsamples.paired


def test_of_few_prompts_as_large_a_share_of_the_images_of_each_is_drawn():
    labels = ["a"] * 30 + ["b"] * 10
    subsamples = subsample([labels], [40])
    assert subsamples.unit == "pictures"
    for (rows,) in subsamples.parts:
        assert sum(int(row) < 30 for row in rows) == 15 and len(rows) == 20


def test_the_same_images_are_drawn_whatever_torchs_default_dtype_is():
    drawn = []
    for dtype in (torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            parts = subsample([["a"] * 31 + ["b"] * 9], [40]).parts
            p, generator = torch.full((5, 2), 0.5).double(), torch.Generator().manual_seed(0)
            drawn.append([*itertools.chain(*parts), sample_values(p, 4, generator)])
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(itertools.starmap(torch.equal, zip(*drawn, strict=True)))


def test_of_too_few_images_nothing_is_drawn():
    assert subsample([None], [FEWEST_IMAGES - 1]) is None
    assert subsample([None, None], [100, FEWEST_IMAGES - 1]) is None
    assert subsample([None], [FEWEST_IMAGES]) is not None


def test_parts_of_large_batches_stay_small():
    labels = [f"prompt {i // 10}" for i in range(20_000)]
    for batch in (labels, None):
        subsamples = subsample([batch], [20_000], count=3)
        assert all(len(rows) <= LARGEST_PART + 1 for (rows,) in subsamples.parts)


@pytest.mark.parametrize("labels", [LABELS, None])
def test_the_interval_of_a_mean_is_the_textbook_one(labels):
    values = torch.randn(80, generator=torch.Generator().manual_seed(0)).tolist()
    if labels is not None:  # prompts differ, pictures of one do not
        values = [values[i // 4] for i in range(80)]
    subsamples = subsample([labels], [80], count=4000)
    units = values[::4] if labels is not None else values
    expected = student.ppf(0.975, len(units) - 1) * stdev(units) / len(units) ** 0.5
    means = [sum(values[i] for i in rows) / len(rows) for (rows,) in subsamples.parts]
    low, high = subsamples.interval(1.0, means, is_ratio=False)
    assert (1 - low, high - 1) == pytest.approx((expected, expected), rel=0.05)
    assert subsamples.interval(0.7, [0.7] * 50, is_ratio=False) is None  # nothing varies
