"""Comparisons of two batches, and whether their differences are significant."""

import numpy as np
import pytest
import torch

from tests.helpers.batches_at_hand import EMBEDDING, prompts, report_of, sample_images
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.evaluator import compare, evaluate
from vendi_guidance.evaluation.measures import MEASURES, SECTIONS
from vendi_guidance.evaluation.results import Difference
from vendi_guidance.kernels.standard import Gaussian, Precomputed


def test_a_batch_does_not_differ_from_itself():
    report = report_of(64, references=sample_images(12))
    comparison = compare(report, report)
    assert set(comparison.differences) == set(report.scores)
    for found in comparison.differences.values():
        assert found.change == (1 if found.is_ratio else 0)
        assert not found.is_significant
    assert comparison.paired and comparison.drawn == "prompts"


@pytest.mark.parametrize(
    ("change", "low", "high", "answer"),
    [
        (1.004, 1.003, 1.0045, "negligible"),
        (1.02, 1.01, 1.03, "yes"),
        (1.004, 0.99, 1.01, "no"),
        (1.5, None, None, "unknown"),
    ],
)
def test_a_change_that_rounds_to_none_is_negligible(change, low, high, answer):
    vendi = MEASURES["vendi"]
    assert Difference(2.0, 2 * change, change, low, high, True).significance(vendi) == answer
    assert Difference(2.0, 2.0, 1.0, None, None, True).significance(vendi) == "no change"


def test_seconds_which_images_of_a_batch_share_have_no_interval():
    times = [0.5 + (i // 8) / 100 for i in range(64)]
    first, second = (report_of(64, seconds=[scale * it for it in times]) for scale in (1, 1.1))
    found = compare(first, second).differences["seconds_per_image"]
    assert first.scores["seconds_per_image"].low is None
    assert found.change == pytest.approx(1.1) and found.interval is None
    assert found.significance(MEASURES["seconds_per_image"]) == "unknown"


def test_the_more_diverse_of_two_is_named_in_either_order():
    kept, lost = torch.linspace(0.5, 1, 64), torch.linspace(0, 0.6, 64)
    plain = report_of(64, 10, name="plain", faithfulness=kept)
    varied = report_of(64, 60, name="varied", seed=1, faithfulness=lost)
    both = compare(plain, varied), compare(varied, plain)
    for comparison in both:
        assert comparison.differences["conditional_vendi"].is_significant
        said = "“varied” is significantly more diverse than “plain”: "
        assert comparison.verdict().startswith(said)
        cost = " Its faithfulness is significantly lower: 0.300 against 0.750."
        assert comparison.verdict().endswith(cost)
    poor = report_of(64, 10, name="poor", faithfulness=lost)
    assert "lower" not in compare(poor, report_of(64, faithfulness=kept)).verdict()
    up, down = (comparison.differences["vendi"] for comparison in both)
    assert up.change == pytest.approx(1 / down.change)
    assert (up.low, up.high) == pytest.approx((1 / down.high, 1 / down.low))
    assert up.low < up.change < up.high
    assert up.change == pytest.approx(up.second / up.first)
    similarity = both[0].differences["in_batch_similarity"]  # is no count
    assert 0 > similarity.change == pytest.approx(similarity.second - similarity.first)


def test_as_many_images_of_each_prompt_are_compared():
    many = report_of(64)
    rows = [row for row in range(64) if row % 8 < 3 or row >= 56]
    some = as_batch(sample_images(64), prompts(64)).take(rows)
    few = evaluate(some, embedding=EMBEDDING)
    comparison = compare(few, many)
    assert comparison.compared == 7 * 3 + 8
    # the same images then, though the reports have different scores
    assert comparison.differences["vendi"].change == pytest.approx(1)
    assert few.scores["vendi"].value < many.scores["vendi"].value


def test_other_prompts_are_compared_without_pairing():
    others = [f"other {text}" for text in prompts(64)]
    comparison = compare(report_of(64, 10), report_of(64, prompts=others))
    assert not comparison.paired and comparison.drawn == "prompts"
    assert comparison.differences["conditional_vendi"].is_significant


def test_too_few_images_say_nothing_of_chance():
    few = {"prompts": prompts(8, 2)}
    comparison = compare(report_of(8, 10, name="a", **few), report_of(8, name="b", **few))
    assert comparison.drawn is None
    assert comparison.verdict().startswith("Too few images to tell “b” from “a”: Conditional-")
    assert "needs 20 images, or 8 prompts, in each run; there are 8." in comparison.verdict()
    assert comparison.differences
    assert all(found.low is None for found in comparison.differences.values())


def test_without_prompts_the_vendi_score_tells_also_where_nothing_varies():
    comparison = compare(*(report_of(40, spread, prompts=None) for spread in (10, 60)))
    assert comparison.headline == "vendi" and comparison.drawn == "pictures"
    assert "the Vendi" in comparison.verdict()
    same = report_of(32, prompts=None, image=torch.ones(32, 2))
    assert "nothing varies" in compare(same, same).verdict()


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"kernel_image": Gaussian(2.0)}, "cannot be compared: kernel_image is .*;"),
        ({"truncation": 4}, "cannot be compared: truncation is .*;"),
        ({"prompt": np.eye(24)}, "cannot be compared: prompt_embedder is .*;"),
        ({"prompts": None, "name": "bare"}, "bare has no prompts:"),
    ],
)
def test_reports_of_other_settings_are_not_compared(other, what):
    with pytest.raises(ValueError, match=f"{what} evaluate both with"):
        compare(report_of(24), report_of(24, **other))


def test_kernels_of_one_class_with_other_content_are_not_compared():
    kernels = [Precomputed(matrix) for matrix in (torch.eye(24), torch.ones(24, 24))]
    rows = {"image": torch.arange(24.0)[:, None], "prompts": None}
    first, same, different = (report_of(24, kernel_image=kernels[i], **rows) for i in (0, 0, 1))
    assert compare(first, same).differences["vendi"].change == 1
    with pytest.raises(ValueError, match=r"kernel_image is [^;]*; .* \(see Embedding"):
        compare(first, different)


def test_scores_against_other_reference_images_are_not_compared():
    reports = [report_of(24, references=sample_images(12, seed=seed)) for seed in (5, 5, 6)]
    same, other = (compare(reports[0], report).differences for report in reports[1:])
    assert same.keys() == reports[0].scores.keys()
    assert same.keys() - other.keys() == SECTIONS["Against the reference images"].keys()
