"""The mean over seeds, and which setting is a method's best."""

import math

import pytest

from scripts.comparison.candidates import Candidate
from scripts.comparison.results import Row, choose, finals_by_kind, used
from scripts.comparison.scorer import DISTANCES, MEASURES
from scripts.comparison.trials import IN_TURN, INTERLEAVED, Trial


def row(fidelity=1.0, looks=1.0, method="cads", stage="sweep", protocol=IN_TURN, **measures) -> Row:
    values = dict.fromkeys(MEASURES, 0.0)
    for distance in DISTANCES:
        values |= {f"{distance}_distance": 1.0, f"{distance}_named": 1.0}
    values |= {"fidelity": fidelity, "looks": looks} | measures
    trial = Trial(Candidate(method, {}, 5.0), ("ear",), 8, 0, protocol, "DDIMScheduler")
    return Row(stage, (trial,), (values,))


UNGUIDED = row(fidelity=0.99, method="unguided")


def test_most_looks_win_among_settings_within_the_limits():
    rows = [row(looks=3), row(looks=5), row(fidelity=0.9, looks=9), row(looks=4)]
    choice = choose(rows, UNGUIDED)
    assert choice.row is rows[1]
    assert choice.qualifies
    assert choice.tried == 4


def test_one_point_of_fidelity_may_be_lost_and_no_more():
    assert used(row(fidelity=0.98), UNGUIDED) == pytest.approx(1)
    assert choose([row(fidelity=0.98)], UNGUIDED).qualifies
    assert not choose([row(fidelity=0.9799)], UNGUIDED).qualifies


@pytest.mark.parametrize("distance", DISTANCES)
def test_pictures_may_lie_a_tenth_farther_off_than_named_ones_in_every_measure(distance):
    own = f"{distance}_distance"
    assert choose([row(**{own: 1.1})], UNGUIDED).qualifies
    assert not choose([row(**{own: 1.11})], UNGUIDED).qualifies
    assert used(row(**{own: 1.2}), UNGUIDED) == pytest.approx(2)
    assert used(row(**{f"{distance}_named": None}), UNGUIDED) == math.inf


def test_a_kernel_distance_may_vary_by_chance():
    near_zero = {"pixels_kernel_distance": 0.004, "pixels_kernel_named": -0.001}
    assert not choose([row(**near_zero)], UNGUIDED).qualifies
    assert choose([row(**near_zero, pixels_kernel_noise=0.003)], UNGUIDED).qualifies
    assert not choose([row(pixels_nearest_distance=1.2, pixels_kernel_noise=1)], UNGUIDED).qualifies


def test_where_none_qualifies_the_closest_is_taken_and_said_so():
    rows = [
        row(looks=9, pixels_kernel_distance=1.5),
        row(fidelity=0.975, looks=2),
        row(looks=8, probe_nearest_named=None),
    ]
    choice = choose(rows, UNGUIDED)
    assert choice.row is rows[1]
    assert not choice.qualifies


def test_the_mean_has_students_interval_over_seeds():
    single = row()
    values = tuple(single.values[0] | {"looks": looks} for looks in (1.0, 2.0, 3.0))
    three = Row("final", single.trials * 3, values)
    assert three.mean("looks") == 2
    assert three.half_width("looks") == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert single.half_width("looks") is None


def test_a_measure_that_some_seeds_lack_is_the_mean_of_the_others():
    single = row()
    values = tuple(single.values[0] | {"vendi": vendi} for vendi in (None, 4.0, 8.0))
    assert Row("final", single.trials * 3, values).mean("vendi") == 6
    nothing = (single.values[0] | {"vendi": None},)
    assert Row("final", single.trials, nothing).mean("vendi") is None


def test_finals_are_told_apart_by_protocol_in_the_order_of_methods():
    final = [
        row(stage="final", method="ours-conditional"),
        row(stage="final", method="unguided"),
        row(stage="final", method="ours-conditional", protocol=INTERLEAVED),
    ]
    kinds = finals_by_kind([row(), *final])
    assert list(kinds) == [(IN_TURN, "DDIMScheduler"), (INTERLEAVED, "DDIMScheduler")]
    assert kinds[IN_TURN, "DDIMScheduler"] == [final[1], final[0]]
