"""Some of many items."""

from vendi_guidance.evaluation.report.spacing import evenly_spaced


def test_what_published_results_are_of_stays_the_same():
    left_out = {3, 7, 11, 15, 18, 22, 26, 29}
    assert evenly_spaced(range(30), 22) == sorted(set(range(30)) - left_out)
    assert evenly_spaced(range(200), 8) == [0, 25, 50, 75, 100, 125, 150, 175]
