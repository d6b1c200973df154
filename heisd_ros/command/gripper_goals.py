"""When a gripper gets which goal: only on a change, one at a time, and never waited for.

Pure state; time is of a clock that never jumps.
"""

from __future__ import annotations

from heisd_ros.command.reasons import Reason
from heisd_ros.errors import ConfigError


class GripperGoals:
    """Turns the wanted opening into goals for a gripper that may be absent, slow or dead.

    A goal is sent when the wanted opening differs from that of the last goal, and once more when
    the gripper has been away and is back. While a goal is outstanding no other one is sent; if
    another opening is wanted meanwhile it should be cancelled. Not thread-safe.

    Attributes:
        outstanding: Number of the goal that has not ended yet; None if there is none.
        wanted: The wanted opening, [0, 1]; None before the first decision.
    """

    def __init__(self, deadline_ns: int) -> None:
        """Set up; nothing is wanted yet.

        Args:
            deadline_ns: A goal that has not ended after this long is given up, nanoseconds.

        Raises:
            ConfigError: If the deadline is not positive.
        """
        if deadline_ns <= 0:
            raise ConfigError(f"the deadline of a gripper goal must be positive, got {deadline_ns}")
        self._deadline_ns = deadline_ns
        self.wanted: float | None = None
        self.outstanding: int | None = None
        self._last: float | None = None
        self._number = 0
        self._sent_ns = 0
        self._present = False
        self._missed = False

    def want(self, opening: float) -> None:
        """Set the wanted opening, [0, 1]."""
        self.wanted = opening

    @property
    def should_cancel(self) -> bool:
        """Whether the outstanding goal is no longer what is wanted."""
        return self.outstanding is not None and self.wanted != self._last

    def next_goal(self, now_ns: int, *, present: bool) -> float | None:
        """Return the opening to send now as goal number `outstanding`, or None.

        Args:
            now_ns: Time, nanoseconds.
            present: Whether somebody is there to take it.
        """
        if present and not self._present and self.outstanding is None:
            self._last = None  # a gripper that is back has forgotten its goal
        self._present = present
        if self.outstanding is not None or self.wanted is None or self.wanted == self._last:
            return None
        if not present:
            return None
        self._number += 1
        self.outstanding, self._last, self._sent_ns = self._number, self.wanted, now_ns
        return self.wanted

    def absence(self) -> Reason | None:
        """Return `gripper_absent` once for every time a goal has nobody to take it."""
        waits = self.wanted is not None and self.wanted != self._last and self.outstanding is None
        missed = waits and not self._present
        first = missed and not self._missed
        self._missed = missed
        return Reason.GRIPPER_ABSENT if first else None

    def ended(self, number: int | None) -> bool:
        """Take the end of a goal; return False if that goal had been given up already."""
        if number is None or number != self.outstanding:
            return False
        self.outstanding = None
        return True

    def expired(self, now_ns: int) -> bool:
        """Give up a goal that is past its deadline; return whether there was one."""
        if self.outstanding is None or now_ns - self._sent_ns <= self._deadline_ns:
            return False
        self.outstanding = None
        return True


def outcome(*, succeeded: bool, cancelled: bool, stalled: bool, reached: bool) -> Reason | None:
    """Return why a finished goal counts as failed; None if the fingers did what they could.

    Fingers that stall before the goal hold something: that is a grasp, whatever the controller
    calls it. A cancelled goal was cancelled by us.

    Args:
        succeeded: Whether the server calls the goal a success.
        cancelled: Whether the server calls it cancelled.
        stalled: Field of the result: full effort and no motion.
        reached: Field of the result.
    """
    good = succeeded or cancelled or stalled or reached
    return None if good else Reason.GRIPPER_FAILED
