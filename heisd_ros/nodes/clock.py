"""Time for the nodes: stamps that never repeat, the steady clock, and what happens at a jump."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.clock import Clock, JumpThreshold, TimeJump
from rclpy.clock_type import ClockType
from rclpy.duration import Duration
from rclpy.node import Node

steady_ns = time.monotonic_ns
"""Nanoseconds of a clock that never jumps."""

_ANY_STEP = Duration(nanoseconds=1)
_ANY_STEP_BACK = Duration(nanoseconds=-1)
_LONG_STEP = Duration(seconds=1)


def steady_clock() -> Clock:
    """Return a clock for timers that must tick although /clock stands still."""
    return Clock(clock_type=ClockType.STEADY_TIME)


def now_ns(node: Node) -> int:
    """Return the node's time in nanoseconds: simulated if it uses simulated time."""
    return int(node.get_clock().now().nanoseconds)


def uses_sim_time(node: Node) -> bool:
    """Return whether the node takes its time from /clock."""
    return bool(node.get_parameter("use_sim_time").value)


class StampSource:
    """Stamps of one publisher. While simulated time stands still they differ by a nanosecond.

    So a consumer can tell a command from the one before, and find the twist of a report.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Take the clock, nanoseconds."""
        self._clock = clock
        self._base_ns = -1
        self._repeats = 0

    def next_ns(self) -> int:
        """Return a stamp, nanoseconds, that was not returned before at this time."""
        now = self._clock()
        self._repeats = self._repeats + 1 if now == self._base_ns else 0
        self._base_ns = now
        return now + self._repeats


def on_time_step(node: Node, callback: Callable[[bool], None]) -> Any:  # noqa: ANN401
    """Call back after every step of simulated time.

    Args:
        node: Whose clock is watched.
        callback: Gets True if time went back.

    Returns:
        The handle that keeps the callback alive.
    """

    def after(jump: TimeJump) -> None:
        callback(jump.delta.nanoseconds < 0)

    threshold = JumpThreshold(
        min_forward=_ANY_STEP, min_backward=_ANY_STEP_BACK, on_clock_change=True
    )
    return node.get_clock().create_jump_callback(threshold, post_callback=after)


def on_time_jump(node: Node, callback: Callable[[int], None]) -> Any:  # noqa: ANN401
    """Call back when simulated time goes back at all, or ahead by more than a second.

    A bag that is looped, a simulation that is reset, the pause between two episodes.

    Args:
        node: Whose clock is watched.
        callback: Gets how far time went, nanoseconds; negative: back.

    Returns:
        The handle that keeps the callback alive.
    """

    def after(jump: TimeJump) -> None:
        callback(int(jump.delta.nanoseconds))

    threshold = JumpThreshold(
        min_forward=_LONG_STEP, min_backward=_ANY_STEP_BACK, on_clock_change=False
    )
    return node.get_clock().create_jump_callback(threshold, post_callback=after)
