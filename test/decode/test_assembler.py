import math

import numpy as np
import pytest

from heisd_ros.decode.assembler import ObservationAssembler
from heisd_ros.types import Proprioception, TrajectoryMetric, VisualFeatures

SECOND = 1_000_000_000
T = 100 * SECOND


def features(stamp_ns=T):
    return VisualFeatures(np.zeros((1, 1, 1)), np.zeros(1, np.float32), stamp_ns)


def pose(stamp_ns=T, x=0.0):
    orientation = np.array([0.0, 0.0, 0.0, 1.0])
    return Proprioception(np.array([x, 0.0, 0.0]), orientation, math.nan, stamp_ns)


def metric(stamp_ns=T):
    return TrajectoryMetric(0.0, 0.0, math.nan, 0.0, 0.0, 1, stamp_ns)


def assembler(*, instruction="go", opening=True):
    result = ObservationAssembler(patience_s=0.05, oldest_s=0.5)
    result.instruction = instruction
    if opening:
        result.offer_opening(0.5, T)
    return result


def test_nothing_is_decided_before_all_inputs_of_the_moment_are_there():
    inputs = assembler()
    inputs.offer_features(features(), T)
    inputs.offer_pose(pose(T - 1))
    assert inputs.take(T, expect_metric=True) is None
    assert inputs.reason == "waiting"
    inputs.offer_pose(pose())
    assert inputs.take(T, expect_metric=True) is None
    inputs.offer_metric(metric())
    observation = inputs.take(T, expect_metric=True)
    assert (observation.stamp_ns, observation.metric.stamp_ns) == (T, T)
    assert observation.proprioception.gripper_opening == 0.5
    assert observation.instruction == "go"
    assert inputs.reason == ""


def test_one_set_of_pictures_is_decided_once_even_if_sent_again():
    inputs = assembler()
    inputs.offer_pose(pose())
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False) is not None
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False) is None
    assert inputs.reason == "no_frames"


def test_waiting_for_slow_state_ends_after_the_patience():
    inputs = assembler()
    inputs.offer_pose(pose(T - SECOND // 10))
    inputs.offer_features(features(), T)
    assert inputs.take(T + 49_000_000, expect_metric=False) is None
    assert inputs.take(T + 50_000_000, expect_metric=False) is not None


def test_without_a_publisher_the_metric_is_left_to_the_policy():
    inputs = assembler()
    inputs.offer_pose(pose())
    inputs.offer_metric(metric())
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False).metric is None


def test_missing_inputs_are_named():
    late = T + SECOND
    inputs = assembler(instruction="", opening=False)
    assert (inputs.take(0, expect_metric=False), inputs.reason) == (None, "no_clock")
    assert (inputs.take(late, expect_metric=False), inputs.reason) == (None, "no_frames")
    inputs.offer_features(features(), T)
    assert (inputs.take(late, expect_metric=False), inputs.reason) == (None, "no_instruction")
    inputs.instruction = "go"
    assert (inputs.take(late, expect_metric=False), inputs.reason) == (None, "no_pose")
    inputs.offer_pose(pose())
    assert (inputs.take(late, expect_metric=False), inputs.reason) == (None, "no_gripper_state")
    inputs.offer_opening(0.5, T)
    assert inputs.take(late, expect_metric=False) is not None


def test_old_pose_decides_nothing():
    inputs = assembler()
    inputs.offer_pose(pose(T - SECOND // 2 - 1))
    inputs.offer_features(features(), T)
    assert inputs.take(T + SECOND, expect_metric=False) is None
    assert inputs.reason == "stale_pose"


@pytest.mark.parametrize(
    ("force", "age_ns", "expected"),
    [
        (7.5, 0, 7.5),
        (7.5, SECOND // 2, 7.5),  # the limit of a pose
        (7.5, SECOND // 2 + 1, None),
        (7.5, -SECOND // 2, 7.5),
        (7.5, -SECOND // 2 - 1, None),  # from a clock that is ahead
        (math.nan, 0, None),
    ],
)
def test_a_force_belongs_to_the_picture_if_it_is_as_fresh_as_a_pose(force, age_ns, expected):
    inputs = assembler()
    inputs.offer_pose(pose())
    inputs.offer_force(force, T - age_ns)
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False).force == expected


def test_the_newest_force_counts_nothing_waits_for_it_and_clearing_forgets_it():
    inputs = assembler()
    inputs.offer_force(9.0, T - 2)
    inputs.offer_force(2.0, T - 1)
    inputs.offer_pose(pose())
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False).force == 2.0
    inputs.clear()
    inputs.offer_opening(0.5, T)
    inputs.offer_pose(pose())
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False).force is None


def test_picture_ahead_of_the_clock_waits_for_it():
    inputs = assembler()
    inputs.offer_pose(pose())
    inputs.offer_features(features(), T - 1)
    assert inputs.take(T - 1, expect_metric=False) is None
    assert inputs.reason == "ahead_of_clock"
    assert inputs.take(T, expect_metric=False) is not None


def test_newer_pictures_replace_those_that_still_wait():
    inputs = assembler()
    inputs.offer_features(features(T - 5), T)
    inputs.offer_features(features(T), T)
    inputs.offer_pose(pose())
    assert inputs.take(T, expect_metric=False).stamp_ns == T
    assert inputs.take(T, expect_metric=False) is None


def test_clearing_forgets_measurements_from_the_future_of_a_restarted_clock():
    inputs = assembler()
    inputs.offer_pose(pose(T + 5 * SECOND))
    inputs.clear()
    inputs.offer_features(features(), T)
    assert inputs.take(T, expect_metric=False) is None
    assert inputs.instruction == "go"
    inputs.offer_pose(pose())
    inputs.offer_opening(0.25, T)
    assert inputs.take(T, expect_metric=False).proprioception.gripper_opening == 0.25
