"""Algorithm 1's offline stage and feedback against the worked vectors of the specification."""

import pytest

from heisd_ros.errors import DataError, ShapeError
from heisd_ros.verify.skip_thresholds import (
    SkipThresholds,
    learn_calibrated,
    learn_distance,
    learn_paper,
)

PAIRS = (
    (0.995, 0.990, 0.970, 0.955, 0.940, 0.900),
    (0.004, 0.006, 0.012, 0.015, 0.021, 0.035),
    (1, 1, 1, 0, 1, 0),
)


def bounds(thresholds):
    return thresholds.min_similarity, thresholds.max_distance


def test_paper_stage_takes_the_least_similar_acceptable_pair():
    assert bounds(learn_paper(*PAIRS)) == (0.940, 0.021)


def test_calibrated_stage_stops_before_the_first_error():
    assert bounds(learn_calibrated(*PAIRS, error=0.0)) == (0.970, 0.012)


def test_calibrated_stage_tolerates_one_in_five():
    assert bounds(learn_calibrated(*PAIRS, error=0.2)) == (0.940, 0.021)


def test_success_widens_and_failure_narrows_four_times_as_much():
    start = SkipThresholds(0.94, 0.021)
    assert bounds(start.after_task(True)) == pytest.approx((0.935, 0.02205))
    assert bounds(start.after_task(False)) == pytest.approx((0.96, 0.0175))


def test_thresholds_stay_inside_their_limits():
    loose = SkipThresholds(0.901, 0.05)
    assert bounds(loose.after_task(True)) == (0.90, 0.05)
    assert SkipThresholds(0.998, 0.01).after_task(False).min_similarity == 0.999


def test_nothing_acceptable_is_said():
    with pytest.raises(DataError, match="no acceptable pair"):
        learn_paper([0.99, 0.98], [0.01, 0.02], [0, 0])
    with pytest.raises(DataError, match="no prefix"):
        learn_calibrated([0.99, 0.98], [0.01, 0.02], [0, 1], error=0.0)


def test_columns_of_different_length_are_refused():
    with pytest.raises(ShapeError):
        learn_paper([0.99], [0.01, 0.02], [1])


def test_thresholds_survive_a_round_trip():
    start = SkipThresholds(0.94, 0.021, pairs=6)
    assert SkipThresholds.from_dict(start.to_dict()) == start
    with pytest.raises(DataError, match="min_similarity"):
        SkipThresholds.from_dict({"pairs": 1})


def test_distance_alone_is_the_farthest_pair_within_the_error():
    _, distance, acceptable = PAIRS
    # By distance: ok, ok, ok, bad, ok, bad.
    assert learn_distance(distance, acceptable, error=0.0) == 0.012
    assert learn_distance(distance, acceptable, error=0.2) == 0.021
    with pytest.raises(DataError, match="no prefix"):
        learn_distance([0.01, 0.02], [0, 1], error=0.0)
