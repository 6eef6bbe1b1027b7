"""Some of many items."""

import itertools

from vendi_guidance.evaluation.report.spacing import evenly_spaced


def test_items_are_chosen_once_each_and_in_order():
    for n in range(1, 80):
        for count in range(1, 90):
            chosen = evenly_spaced(range(n), count)
            assert chosen == sorted(set(chosen)) and chosen[0] == 0
            assert len(chosen) == min(n, count)
            gaps = [after - before for before, after in itertools.pairwise(chosen)]
            assert not gaps or max(gaps) - min(gaps) <= 2


def test_what_published_results_are_of_stays_the_same():
    left_out = {3, 7, 11, 15, 18, 22, 26, 29}
    assert evenly_spaced(range(30), 22) == sorted(set(range(30)) - left_out)
    assert evenly_spaced(range(200), 8) == [0, 25, 50, 75, 100, 125, 150, 175]
