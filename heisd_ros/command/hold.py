"""What to send between two decisions: the last one while it lives, then zero."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np

from heisd_ros.command.command import zero_command
from heisd_ros.command.reasons import Reason
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.types import EndEffectorCommand

EMPTY = Reason.EMPTY.value
STALE = Reason.STALE.value
CLOCK_BACK = Reason.CLOCK_BACK.value


class CommandHold:
    """Holds one command for its lifetime. Decider and publisher may be different threads.

    Time is passed in and should come from a monotonic clock: a jump of the wall clock must not
    prolong a motion.
    """

    def __init__(self, lifetime_ns: int, *, frame_id: str = "base", gripper: float = 1.0) -> None:
        """Set up, empty.

        Args:
            lifetime_ns: A command is repeated this long after `put`, nanoseconds.
            frame_id: Frame of the zero command before the first `put`.
            gripper: Opening of the zero command before the first `put`, [0, 1].

        Raises:
            ConfigError: If the lifetime is not positive or the frame is empty.
        """
        if lifetime_ns <= 0 or not frame_id:
            raise ConfigError(
                f"hold needs a positive lifetime and a frame, got {lifetime_ns} ns and {frame_id!r}"
            )
        self._lifetime_ns = lifetime_ns
        self._lock = threading.Lock()
        self._command: EndEffectorCommand | None = None
        self._put_ns = 0
        self._zero = zero_command(frame_id, gripper)
        self._reason = EMPTY

    def put(self, command: EndEffectorCommand, now_ns: int) -> None:
        """Take a new decision that has passed the guard.

        Raises:
            DataError: If a value is not finite; the hold is empty then.
        """
        numbers = np.array([*command.linear, *command.angular, command.gripper], dtype=np.float64)
        with self._lock:
            if not np.isfinite(numbers).all():
                self._command = None
                self._reason = Reason.NON_FINITE.value
                raise DataError(
                    f"a held command must be finite, got {numbers.tolist()}; pass it through "
                    "CommandGuard.check first"
                )
            self._command = command
            self._put_ns = now_ns
            self._reason = ""
            self._zero = zero_command(
                command.frame_id, command.gripper, instruction=command.instruction
            )

    def at(self, now_ns: int, *, stamp_ns: int | None = None) -> EndEffectorCommand:
        """Return what to send now, freshly stamped: the held command, or zero, gripper kept.

        Args:
            now_ns: Time on the clock of `put`, nanoseconds.
            stamp_ns: Stamp of the result if messages use another clock, nanoseconds.
        """
        stamp = now_ns if stamp_ns is None else stamp_ns
        with self._lock:
            if self._command is not None:
                age_ns = now_ns - self._put_ns
                if age_ns > self._lifetime_ns:
                    self._drop(STALE)
                elif age_ns < 0:
                    self._drop(CLOCK_BACK)
            held = self._command or self._zero
        return dataclasses.replace(held, stamp_ns=stamp)

    def clear(self, reason: str = EMPTY) -> None:
        """Send zero from now on; `reason` is a short machine word, e.g. `stop_requested`."""
        with self._lock:
            self._drop(reason)

    @property
    def reason(self) -> str:
        """Why zero is being sent; empty while a command is held."""
        with self._lock:
            return self._reason

    def _drop(self, reason: str) -> None:
        self._command = None
        self._reason = reason
