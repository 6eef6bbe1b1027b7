"""What a comparison says about its runs."""

from types import SimpleNamespace

import pytest

from vendi_guidance.comparison.entries import Entry
from vendi_guidance.comparison.study import Results


def run(family, strength, diversity=1.0, kept=1.0):
    outcome = SimpleNamespace(diversity=diversity, kept=kept, diversity_interval=(1.1, 3.0))
    return SimpleNamespace(entry=Entry(family, strength), outcome=outcome, report=None)


OURS, CADS, BAD_CADS = run("ours", 0.5, 2.0), run("cads", 1.0, 1.5), run("cads", 1.0, 1.5, kept=0.5)
OURS_HAS = "Vendi guidance (diversity 0.5) has 2.00 times the unguided Conditional-Vendi"
KEEPS = "keeps at least 0.9 of the unguided faithfulness."


@pytest.mark.parametrize(
    ("runs", "start", "end"),
    [
        ([BAD_CADS], "No method", f"No method {KEEPS}"),
        ([OURS], OURS_HAS, KEEPS),
        ([OURS, BAD_CADS], OURS_HAS, "No other method in this comparison keeps as much."),
        (
            [run("ours", 1, 2, 0.1), CADS],
            "CADS (scale 1)",
            "No strength of Vendi guidance in this comparison keeps as much.",
        ),
    ],
)
def test_the_verdict_names_the_best_run_and_the_methods_that_keep_too_little(runs, start, end):
    text = Results([run("unguided", None), *runs], keep=0.9).verdict()
    assert text.startswith(start) and text.endswith(end)
