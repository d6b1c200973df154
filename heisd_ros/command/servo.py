"""What MoveIt Servo wants of a stream of twists, and what its status codes mean.

Servo takes velocities, in a named frame, finite, with stamps younger than its time-out; it repeats
the last twist until then. Pure state; nodes pass the clocks in.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from heisd_ros.command.limits import limit_norm
from heisd_ros.command.reasons import Reason
from heisd_ros.command.tail import ZeroTail
from heisd_ros.config import CommandConfig, ServoConfig
from heisd_ros.types import EndEffectorCommand

AHEAD_NS = 20_000_000
"""A twist from a clock ahead of ours by more than this is refused."""

SCALE_TOLERANCE = 0.01
"""Scales that differ by less, relatively, mean the same."""


@dataclass(frozen=True, slots=True)
class ServoState:
    """What one status code means.

    Attributes:
        name: Machine word.
        moves: Whether the arm still follows the twists.
        slowed: Whether it follows more slowly than asked.
    """

    name: str
    moves: bool
    slowed: bool


SERVO_STATES = {
    -1: ServoState("invalid", moves=False, slowed=False),
    0: ServoState("no_warning", moves=True, slowed=False),
    1: ServoState("decelerate_approaching_singularity", moves=True, slowed=True),
    2: ServoState("halt_singularity", moves=False, slowed=False),
    3: ServoState("decelerate_leaving_singularity", moves=True, slowed=True),
    4: ServoState("decelerate_collision", moves=True, slowed=True),
    5: ServoState("halt_collision", moves=False, slowed=False),
    6: ServoState("joint_bound", moves=False, slowed=False),
}
"""Code of moveit_msgs/msg/ServoStatus -> meaning."""

UNKNOWN_STATE = ServoState("unknown_code", moves=False, slowed=False)


class ServoStream:
    """Turns our twists into those for Servo: right unit, right frame, fresh, and zeros at the end.

    Not thread-safe.

    Attributes:
        counts: How often each reason kept a twist from being passed on.
    """

    def __init__(self, servo: ServoConfig, command: CommandConfig) -> None:
        """Set up; nothing has moved yet.

        Args:
            servo: Unit, scales and time-out.
            command: Frame, and what is sent at rest.
        """
        self._servo, self._frame_id = servo, command.frame_id
        self._silent = command.rest == "silence"
        self._tail = ZeroTail(command.rest_zeros)
        self._timeout_ns = round(servo.timeout_s * 1e9)
        self._heard_ns: int | None = None
        self._moved = False
        self.counts: Counter[str] = Counter()

    def offer(
        self, twist: EndEffectorCommand, now_ns: int, steady_ns: int, *, ready: bool
    ) -> EndEffectorCommand | None:
        """Return what to send to Servo for this twist, or None.

        A twist that must not be passed on becomes zero: the one before it must not go on either.

        Args:
            twist: As received.
            now_ns: Time on the clock of the stamps, nanoseconds; it becomes the stamp.
            steady_ns: Time on a clock that never jumps, nanoseconds.
            ready: Whether Servo takes twists already.
        """
        self._heard_ns = steady_ns
        if not ready:
            self._moved = False
            self.counts[Reason.SERVO_NOT_READY.value] += 1
            return None
        fault = self._fault(twist, now_ns)
        if fault is not None:
            self.counts[fault.value] += 1
            return self._send(self._zero(now_ns), silent=True)
        return self._send(self._scaled(twist, now_ns), silent=self._silent)

    def tick(self, now_ns: int, steady_ns: int) -> EndEffectorCommand | None:
        """Return a zero if twists have stopped in the middle of a motion; to be asked regularly."""
        if self._heard_ns is None or steady_ns - self._heard_ns <= self._timeout_ns:
            return None
        if self._moved:
            self.counts[Reason.INPUT_SILENT.value] += 1
        return self._send(self._zero(now_ns), silent=True)

    def _send(self, twist: EndEffectorCommand, *, silent: bool) -> EndEffectorCommand | None:
        self._moved = bool(twist.linear.any() or twist.angular.any())
        return twist if self._tail.passes(twist, silent=silent) else None

    def _fault(self, twist: EndEffectorCommand, now_ns: int) -> Reason | None:
        if not np.isfinite([*twist.linear, *twist.angular]).all():
            return Reason.NON_FINITE
        if not twist.frame_id:
            return Reason.EMPTY_FRAME
        if twist.frame_id != self._frame_id:
            return Reason.WRONG_FRAME
        age_ns = now_ns - twist.stamp_ns
        if age_ns < -AHEAD_NS:
            return Reason.FUTURE_STAMP
        return Reason.STALE_COMMAND if age_ns >= self._timeout_ns else None

    def _scaled(self, twist: EndEffectorCommand, now_ns: int) -> EndEffectorCommand:
        servo = self._servo
        linear, _ = limit_norm(twist.linear, servo.scale_linear)
        angular, _ = limit_norm(twist.angular, servo.scale_rotational)
        if servo.units == "unitless":
            linear, angular = linear / servo.scale_linear, angular / servo.scale_rotational
        return dataclasses.replace(twist, linear=linear, angular=angular, stamp_ns=now_ns)

    def _zero(self, now_ns: int) -> EndEffectorCommand:
        return EndEffectorCommand(np.zeros(3), np.zeros(3), math.nan, self._frame_id, now_ns)


def settings_difference(units: str, linear: float, rotational: float, *, ours: ServoConfig) -> str:
    """Return in words what Servo takes a number for and we do not; empty if we agree.

    Args:
        units: Its `command_in_type`, `unitless` or `speed_units`.
        linear: Its `scale.linear`, m/s of a full twist; only counts without units.
        rotational: Its `scale.rotational`, rad/s; likewise.
        ours: What is configured.
    """
    if units != ours.units:
        return f"its command_in_type is {units}, servo.units is {ours.units}"
    alike = math.isclose(linear, ours.scale_linear, rel_tol=SCALE_TOLERANCE)
    alike = alike and math.isclose(rotational, ours.scale_rotational, rel_tol=SCALE_TOLERANCE)
    if units == "unitless" and not alike:
        return (
            f"its scale is {linear} and {rotational}, servo.scale_linear and "
            f"servo.scale_rotational are {ours.scale_linear} and {ours.scale_rotational}"
        )
    return ""
