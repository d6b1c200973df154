import numpy as np
import pytest

from heisd_ros.config import TrajectoryConfig, VerifyConfig
from heisd_ros.errors import DataError
from heisd_ros.offline.gate_study import Track, acceptable, study, table


def test_good_means_accepted_by_the_sequence_rule():
    bias = np.array(
        [
            [15, 15, 0, 0, 0, 0, 0],
            [15, 15, 1, 0, 0, 0, 0],  # sum 31
            [0, 0, 0, 16, 0, 0, 0],  # one token above 15
            [0, 0, 0, 0, 0, 0, 128],  # the gripper flips
            [10, 10, 10, 10, 10, 10, 0],
        ]
    )
    assert acceptable(bias, VerifyConfig()).tolist() == [True, False, False, False, True]
    assert not acceptable(bias, VerifyConfig(strict=True)).any()  # sums of 30 are not below 30
    wider = VerifyConfig(sequence_budget=31, token_budget=16, strict=True)
    assert acceptable(bias, wider).tolist() == [True, False, False, False, True]


def stop_and_go(init, *, good_when_fast):
    """Twenty slow steps, twenty fast ones, along x."""
    steps = np.r_[np.full(20, 0.001), np.full(20, 0.01)]
    positions = np.zeros((40, 3))
    positions[:, 0] = np.cumsum(steps)
    fast = np.arange(40) >= 20
    return Track(init, positions, fast if good_when_fast else ~fast, np.linspace(0, 1, 40))


def test_gate_that_orders_the_drafts_has_auc_one():
    tracks = [stop_and_go(init, good_when_fast=True) for init in range(4)]
    result = study(tracks, TrajectoryConfig(window=5))
    gates = {gate.name.split()[0]: gate for gate in result.gates}
    assert (result.episodes, result.steps) == (2, 2 * 38)
    # The mean speed of five positions is larger in every step from the first fast one on.
    assert gates["speed"].auc == pytest.approx(1.0)
    assert gates["similarity"].auc == pytest.approx(1.0)
    assert gates["speed"].over_speed.low == gates["speed"].over_speed.high == 0.0
    assert "| speed | 1.000 |" in table(result)


def test_gate_that_orders_them_backwards_has_auc_zero():
    tracks = [stop_and_go(init, good_when_fast=False) for init in range(4)]
    gates = {g.name.split()[0]: g for g in study(tracks, TrajectoryConfig(window=5)).gates}
    assert gates["speed"].auc == pytest.approx(0.0)


def test_half_without_bad_drafts_is_refused():
    tracks = [stop_and_go(0, good_when_fast=True)]
    with pytest.raises(DataError, match="shadow-ar"):
        study(tracks, TrajectoryConfig())
