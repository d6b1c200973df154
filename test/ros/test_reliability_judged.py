"""How experiments of bench/reliability judge what they have recorded."""

import numpy as np
import pytest

pytest.importorskip("rosbags")

from bench.reliability import lossless, recorded


def test_a_gap_in_a_bag_is_judged_by_what_came_before_and_after_it():
    ms = 10**6
    # Two pictures, a gap of 1.3 s, two pictures; the third command of the gap moves.
    pictures = [(0.0, 0), (0.1, 100 * ms), (1.4, 1400 * ms), (1.5, 1500 * ms)]
    moving = [0.01, 0.11, 0.5, 1.42, 1.44]
    zeros = [0.43, 0.6, 1.3, 1.41, 1.45]
    stops, resumes, moved, false_stops = recorded.judge(pictures, {100 * ms: 0.02}, moving, zeros)
    assert stops == pytest.approx([0.31])
    assert resumes == pytest.approx([0.02])
    assert (moved, false_stops) == (1, 1)


def test_a_bag_has_a_warm_up_and_then_gap_and_pictures_in_turn():
    found = np.diff(recorded.moments(3))
    assert (found == recorded.MISSING + 1).sum() == 3
    assert set(found) == {1, recorded.MISSING + 1}


@pytest.mark.parametrize(
    ("found", "margin", "verdict"),
    [([1, 2, 3], 0.0, ""), ([1, 9, 3], 9e-5, "tie"), ([1, 9, 3], 2e-4, "failure")],
)
def test_other_tokens_are_a_tie_only_where_the_model_hardly_preferred_one(found, margin, verdict):
    margins = [1.0, margin, 0.0]  # only the first difference counts
    assert lossless.difference(np.array([1, 2, 3]), np.array(found), margins) == verdict


def test_too_few_tokens_are_never_a_tie():
    assert lossless.difference(np.array([1, 2]), np.array([1]), [0.0, 0.0]) == "failure"
