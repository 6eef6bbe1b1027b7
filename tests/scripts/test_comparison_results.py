"""Intervals over prompts, curves, and which settings are the best."""

import numpy as np
import pytest

from scripts.comparison.candidates import (
    METHODS,
    OURS_DEFAULT,
    OURS_STRENGTHS,
    Candidate,
    at,
    ours,
    unguided,
)
from scripts.comparison.measures import KEPT, LOOKS, MEASURES, Scores
from scripts.comparison.results import Row, best_other, choose, curves, gain, looks_at
from scripts.comparison.trials import IN_TURN, How, Trial
from tests.helpers.emoji_prompts import asked

HOW = How(16, IN_TURN, "ddim", 16, 16)
PLAIN = unguided(5.0)


def row(candidate: Candidate, looks, kept, kind="final", seeds=1, **by_prompt) -> Row:
    """A row whose prompts have these looks, and shares of named kept: numbers or lists."""
    by_prompt |= {LOOKS: looks, KEPT: kept}
    listed = {n: of if isinstance(of, list) else [of] * 8 for n, of in by_prompt.items()}
    means = {name: sum(of) / len(of) for name, of in listed.items() if None not in of}
    scores = Scores(dict.fromkeys(MEASURES, 0.5) | means, listed)
    trials = tuple(Trial(candidate, (asked("ear"),), seed, HOW) for seed in range(seeds))
    return Row(kind, trials, (scores,) * seeds)


def cads(scale: float) -> Candidate:
    return at("cads", scale, {}, 5.0)


def test_the_interval_is_that_of_a_mean_over_prompts():
    one = row(PLAIN, [1.0, 2.0, 3.0, 4.0] * 25, [0.5])
    low, high = one.interval(LOOKS)
    error = 1.118 / 10  # standard deviation over the root of the number of prompts
    assert (low, high) == pytest.approx((2.5 - 1.98 * error, 2.5 + 1.98 * error), abs=0.03)
    assert one.interval("vendi") is None


def test_intervals_over_few_prompts_hold_the_true_mean_as_often_as_they_say():
    generator = np.random.default_rng(0)
    held = []
    for _ in range(300):
        low, high = row(PLAIN, list(generator.normal(5.0, 1.0, size=8)), 1.0).interval(LOOKS)
        held.append(low <= 5 <= high)
    assert 0.92 <= np.mean(held) <= 0.98  # percentiles alone hold it in 88%
    assert row(PLAIN, [1.0, 2.0, 3.0] * 2, 1.0).interval(LOOKS) is None


def test_seeds_are_averaged_before_prompts_are_resampled():
    first, second = row(PLAIN, [1.0, 3.0] * 4, 1.0), row(PLAIN, [3.0, 1.0] * 4, 1.0)
    both = Row("final", first.trials * 2, first.scores + second.scores)
    assert both.mean(LOOKS) == 2
    assert both.interval(LOOKS) == (2, 2)


def test_the_interval_of_a_ratio_is_that_of_a_ratio_of_means():
    distances = {
        "probe_nearest_distance": [1.0, 2.0, 3.0] * 3 + [9.0],
        "probe_nearest_named": [2.0, 4.0, 6.0] * 3 + [None],
    }
    one = row(PLAIN, 1.0, 1.0, **distances)
    assert one.mean("probe_nearest_ratio") == 0.5
    assert one.interval("probe_nearest_ratio") == (0.5, 0.5)
    low, high = one.interval("probe_nearest_named")  # of the prompts that have one
    assert 2 <= low < high <= 6
    assert row(PLAIN, 1.0, 1.0).mean("probe_nearest_ratio") is None


def test_a_measure_that_some_seeds_lack_is_the_mean_of_the_others():
    scores = [Scores(dict.fromkeys(MEASURES, value), {}) for value in (None, 4.0, 8.0)]
    trials = row(PLAIN, 1.0, 1.0).trials
    assert Row("final", trials * 3, tuple(scores)).mean("vendi") == 6
    assert Row("final", trials, tuple(scores[:1])).mean("vendi") is None
    assert Row("final", trials, tuple(scores[:1])).interval(LOOKS) is None


def test_looks_at_a_level_are_read_off_the_line_through_the_points():
    points = [(1.0, 2.0), (0.9, 6.0), (0.8, 7.0)]
    assert looks_at(points, 0.95) == pytest.approx(4)
    assert looks_at(points, 0.9) == 6
    assert looks_at(points, 0.85) == pytest.approx(6.5)
    assert looks_at(points, 0.5) == 7
    assert looks_at(points[1:], 0.95) is None
    assert looks_at([], 0.5) is None


def test_less_looks_at_a_lower_level_do_not_replace_more():
    assert looks_at([(1.0, 2.0), (0.95, 6.0), (0.9, 4.0)], 0.9) == 6
    assert looks_at([(0.9, 2.0), (0.99, 3.0)], 0.95) == 3  # a curve may turn back


FINALS = [
    row(ours(OURS_STRENGTHS[0], 5.0), 6.0, 0.98),
    row(ours(OURS_STRENGTHS[-1], 5.0), 10.0, 0.9),
    row(PLAIN, 2.0, 1.0),
    row(cads(0.25), 4.0, 0.97),
    row(cads(1.0), 9.0, 0.5),
]


def test_a_curve_begins_at_the_unguided():
    found = curves([*FINALS, row(cads(0.5), 1.0, 1.0, kind="sweep")])
    assert list(found) == ["cads", "ours"]
    assert found["cads"] == [FINALS[2], *FINALS[3:]]
    assert list(found) == sorted(found, key=list(METHODS).index)


def test_the_gain_is_that_over_the_best_other_method():
    found = gain(curves(FINALS), 0.98)
    assert found.looks == pytest.approx({"cads": 2 + 4 / 3, "ours": 6})
    assert found.best_other == "cads"
    assert found.difference == pytest.approx(6 - 2 - 4 / 3)
    assert found.interval == pytest.approx((found.difference, found.difference))


def test_the_gain_has_an_interval_over_prompts():
    varied = [*FINALS[1:], row(ours(OURS_STRENGTHS[0], 5.0), [2.0, 10.0] * 4, 0.98)]
    found = gain(curves(varied), 0.98)
    assert found.interval[0] < found.difference < found.interval[1]


def test_a_level_that_a_method_never_keeps_has_no_gain():
    low = [row(PLAIN, 2.0, 0.9), row(cads(0.25), 4.0, 0.8), row(ours(OURS_DEFAULT, 5.0), 5.0, 0.8)]
    found = gain(curves(low), 0.95)
    assert (found.best_other, found.difference, found.interval) == (None, None, None)


def test_settings_are_chosen_by_looks_at_the_same_levels():
    plain = row(PLAIN, 2.0, 1.0)
    costly, cheap = row(cads(0.5), 6.0, 0.7), row(cads(0.25), 5.0, 0.95)
    assert choose([costly, cheap], plain) is cheap
    assert choose([costly, row(cads(0.25), 1.0, 1.0)], plain) is costly
    low = row(PLAIN, 2.0, 0.5)
    assert choose([costly, cheap], low) is costly  # both keep what the unguided keeps
    below = row(cads(0.5), 6.0, 0.35)
    assert choose([below, row(cads(0.25), 5.0, 0.48)], low) is not below


def test_the_best_other_keeps_what_ours_keeps_by_default():
    finals = [
        row(PLAIN, 2.0, 1.0),
        row(cads(0.25), 4.0, 0.96),
        row(cads(0.5), 5.0, 0.95),
        row(cads(1.0), 9.0, 0.5),
        row(ours(OURS_DEFAULT, 5.0), 10.0, 0.95),
    ]
    assert best_other(finals) is finals[2]
    assert best_other([finals[0], finals[3], finals[4]]) is finals[3]
    assert best_other(finals[:4]) is finals[1]
    assert best_other(finals[:1]) is finals[0]
