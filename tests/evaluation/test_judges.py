"""Faithfulness from a column, or numbers, and scores from labels made by hand."""

import pytest

from tests.helpers import batches_at_hand as at_hand
from tests.helpers.batches_at_hand import report_of
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.inputs import looks_by_group, prompt_fidelity
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.features.base import Labels


def test_a_column_of_the_metadata_is_a_score_with_an_interval(tmp_path):
    rows = [{"prompt": p, "vqa": i / 32, "by": "me"} for i, p in enumerate(at_hand.prompts(32))]
    folder = at_hand.save_batch(tmp_path, at_hand.sample_images(32), rows)

    def judged_by(column):
        judges = Judges(faithfulness=column)
        return evaluate(folder, judges=judges, embedding=at_hand.EMBEDDING).scores["faithfulness"]

    score = judged_by("vqa")
    assert score.value == pytest.approx(sum(range(32)) / 32**2)
    assert score.low < score.value < score.high
    assert score.basis == "column vqa; n = 32"
    for name, words in (
        ("hps", "column 'hps' of 0.png is None, .* numeric columns are vqa"),
        ("by", "column 'by' of 0.png is 'me', not a finite number"),
    ):
        with pytest.raises(ValueError, match=words):
            judged_by(name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1.0] * 3, "numbers for faithfulness have 3 rows, but there are 64"),
        ([float("nan")] * 64, "NaN"),
        (["good"] * 64, "must be numbers"),
    ],
)
def test_what_is_no_number_for_each_image_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        report_of(64, faithfulness=given)


PROMPTS = ["ear"] * 5 + ["nose"] * 3
LABELS = Labels(
    asked=PROMPTS,
    shown=["ear", "ear", "ear", "nose", "ear", "nose", "ear", "ear"],
    variant=["dark", "dark", "round", "light", "light", "dark", "dark", "round"],
)


def test_a_look_counts_once_and_only_on_an_image_of_what_was_asked():
    # ear: dark twice, round, light; the nose among them does not count
    assert looks_by_group(PROMPTS, LABELS) == {"ear": 3, "nose": 1}
    assert looks_by_group(["a nose"], Labels(["nose"], ["ear"], ["dark"])) == {"a nose": 0}
    assert prompt_fidelity(LABELS) == pytest.approx(5 / 8)
    # prompts that differ in what they leave open are counted apart
    labels = Labels(["ear"] * 3, ["ear"] * 3, ["dark", "dark", "light"])
    assert looks_by_group(["ear", "ear, dark", "ear"], labels) == {"ear": 2, "ear, dark": 1}
