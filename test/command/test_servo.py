import dataclasses

import numpy as np
import pytest

from heisd_ros.command.servo import SERVO_STATES, ServoStream
from heisd_ros.config import CommandConfig, ServoConfig
from heisd_ros.types import EndEffectorCommand

MS = 1_000_000
NOW = 100_000 * MS


def stream(*, rest="silence", zeros=4, **servo):
    return ServoStream(
        ServoConfig(**servo), CommandConfig(frame_id="base", rest=rest, rest_zeros=zeros)
    )


def twist(linear=(0.1, 0.0, 0.0), angular=(0.0, 0.0, 0.2), **changes):
    made = EndEffectorCommand(np.array(linear, float), np.array(angular, float), 1.0, "base", NOW)
    return dataclasses.replace(made, **changes)


def test_in_speed_units_a_twist_passes_unchanged_with_the_stamp_of_now():
    sent = stream().offer(twist(), NOW + 30 * MS, 0, ready=True)
    assert sent.linear.tolist() == [0.1, 0.0, 0.0]
    assert sent.angular.tolist() == [0.0, 0.0, 0.2]
    assert (sent.frame_id, sent.stamp_ns) == ("base", NOW + 30 * MS)


def test_unitless_twists_are_shares_of_servos_scale():
    # 0.1 of 0.4 m/s and 0.2 of 0.8 rad/s
    sent = stream(units="unitless").offer(twist(), NOW, 0, ready=True)
    assert sent.linear == pytest.approx([0.25, 0.0, 0.0])
    assert sent.angular == pytest.approx([0.0, 0.0, 0.25])


@pytest.mark.parametrize(("units", "largest"), [("speed_units", 0.4), ("unitless", 1.0)])
def test_what_is_faster_than_servos_scale_keeps_its_direction(units, largest):
    sent = stream(units=units).offer(twist(linear=(3.0, 0.0, 4.0)), NOW, 0, ready=True)
    assert sent.linear == pytest.approx([0.6 * largest, 0.0, 0.8 * largest])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"linear": np.array([np.nan, 0, 0])}, "non_finite"),
        ({"angular": np.array([0, np.inf, 0])}, "non_finite"),
        ({"frame_id": ""}, "empty_frame"),
        ({"frame_id": "tool0"}, "wrong_frame"),
        ({"stamp_ns": NOW - 100 * MS}, "stale_command"),
        ({"stamp_ns": NOW + 21 * MS}, "future_stamp"),
    ],
)
def test_what_must_not_be_passed_on_becomes_zero_after_a_motion_and_nothing_before(changes, reason):
    state = stream()
    assert state.offer(twist(**changes), NOW, 0, ready=True) is None
    state.offer(twist(), NOW, 0, ready=True)
    sent = state.offer(twist(**changes), NOW, 0, ready=True)
    assert not sent.linear.any()
    assert not sent.angular.any()
    assert (sent.frame_id, sent.stamp_ns) == ("base", NOW)
    assert state.counts == {reason: 2}


def test_nothing_is_sent_before_servo_takes_twists():
    state = stream()
    assert state.offer(twist(), NOW, 0, ready=False) is None
    assert state.tick(NOW + 200 * MS, 200 * MS) is None
    assert state.counts == {"servo_not_ready": 1}


@pytest.mark.parametrize(("rest", "sent"), [("silence", 4), ("zeros", 10)])
def test_after_the_last_motion_come_the_zeros_and_then_what_is_configured(rest, sent):
    state = stream(rest=rest)
    state.offer(twist(), NOW, 0, ready=True)
    zero = twist(linear=(0, 0, 0), angular=(0, 0, 0))
    assert sum(state.offer(zero, NOW, 0, ready=True) is not None for _ in range(10)) == sent


def test_twists_that_stop_in_the_middle_of_a_motion_are_ended_with_zeros_and_silence():
    state = stream(rest="zeros", zeros=3)
    assert state.tick(NOW, 0) is None  # nothing has been heard yet
    state.offer(twist(), NOW, 0, ready=True)
    assert state.tick(NOW + 100 * MS, 100 * MS) is None  # as old as Servo lets it be
    sent = [state.tick(NOW + 120 * MS, (120 + 20 * n) * MS) for n in range(5)]
    assert [item is not None for item in sent] == [True, True, True, False, False]
    assert not any(item.linear.any() for item in sent[:3])
    assert state.counts == {"input_silent": 1}


def test_only_halts_stop_the_arm_and_only_decelerations_slow_it():
    assert [code for code, state in SERVO_STATES.items() if not state.moves] == [-1, 2, 5, 6]
    assert [code for code, state in SERVO_STATES.items() if state.slowed] == [1, 3, 4]
