"""Kinematic drafts against the published filter's numbers."""

import numpy as np
import pytest
from fakes import some_request

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.draft.kinematic import HoldDraftSource, KalmanDraftSource, KalmanFilter
from heisd_ros.errors import ConfigError
from heisd_ros.types import DraftKind

STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 6 + [0.0], "q99": [1.0] * 7, "mask": [True] * 6 + [False]}
)


def history(*tokens, gripper=31744):
    return np.array([[t] * 6 + [gripper] for t in tokens])


def test_published_filter_holds_the_last_token():
    # The steady gain is 0.9990, so 31800, 02, ... 08 predicts 31807.998.
    predicted = KalmanFilter("random_walk").predict(history(31800, 31802, 31804, 31806, 31808))
    assert predicted[0] == pytest.approx(31807.998, abs=1e-3)


def test_constant_velocity_filter_goes_on():
    predicted = KalmanFilter().predict(history(31800, 31802, 31804, 31806, 31808))
    assert predicted[0] == pytest.approx(31810.0, abs=0.02)


def test_kalman_draft_extrapolates_and_holds_the_gripper():
    past = history(31800, 31802, 31804, gripper=31872)
    draft = KalmanDraftSource(ActionTokenizer(), STATISTICS).draft(some_request(history=past))
    assert draft.kind is DraftKind.KINEMATIC
    assert draft.chains[0].tolist() == [31806] * 6 + [31872]
    assert len(draft.tree) == 6


def test_extrapolation_stays_inside_the_action_ids():
    past = history(31950, 31970, 31990)
    draft = KalmanDraftSource(ActionTokenizer(), STATISTICS).draft(some_request(history=past))
    assert draft.chains[0, 0] == 31999


def test_only_the_context_counts():
    past = history(*([31750] * 30), 31900, 31900, 31900)
    source = KalmanDraftSource(ActionTokenizer(), STATISTICS, context=3)
    assert source.draft(some_request(history=past)).chains[0, 0] == 31900


def test_one_action_is_enough_and_none_is_not():
    source = KalmanDraftSource(ActionTokenizer(), STATISTICS)
    assert source.draft(some_request(history=history(31800))).chains[0, 0] == 31800
    nothing = source.draft(some_request())
    assert (nothing.tree, nothing.reason) == (None, "no_history")


def test_hold_drafts_the_last_action():
    past = history(31800, 31810)
    draft = HoldDraftSource(ActionTokenizer(), STATISTICS).draft(some_request(history=past))
    assert draft.chains[0].tolist() == past[-1].tolist()


def test_unknown_filter_model_is_refused():
    with pytest.raises(ConfigError, match="constant_velocity"):
        KalmanFilter("acceleration")
