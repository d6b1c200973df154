"""Whether motion may leave at all: dry run until armed, emergency stop, dead man's switch.

Pure state: nodes feed it with what they hear and ask it before every command.
"""

from __future__ import annotations

import threading

from heisd_ros.command.reasons import Reason
from heisd_ros.config import ArmingConfig

SECOND_NS = 1_000_000_000


class Arming:
    """Answers one question at any moment: why may nothing move?

    Starting, an emergency stop, and silence of an emergency stop that must be heard all disarm;
    only `arm` ends that, never the passing of time or a released button. The dead man's switch is
    momentary: motion may begin again, with a new decision, as soon as it is held again.

    All times are of a clock that never jumps. May be called from any thread.
    """

    def __init__(self, config: ArmingConfig, *, simulated: bool) -> None:
        """Set up.

        Args:
            config: How to start, and what must be heard.
            simulated: Whether the arm is simulated; `start: auto` begins armed then.
        """
        self._lock = threading.Lock()
        self._disarmed: Reason | None = None
        self._estop_pressed = False
        self._estop_heard_ns: int | None = None
        self._held_ns: int | None = None
        self.configure(config, simulated=simulated)

    def configure(self, config: ArmingConfig, *, simulated: bool) -> None:
        """Begin as configured, once more; an emergency stop outlives this too.

        Args:
            config: As at the beginning.
            simulated: As at the beginning.
        """
        with self._lock:
            self._deadman_needed = config.deadman
            self._deadman_ns = round(config.deadman_timeout_s * SECOND_NS)
            self._estop_ns = round(config.estop_timeout_s * SECOND_NS)
            if self._disarmed in (Reason.ESTOP, Reason.ESTOP_SILENT):
                return
            armed = config.start == "armed" or (config.start == "auto" and simulated)
            self._disarmed = None if armed else Reason.DRY_RUN

    @property
    def armed(self) -> bool:
        """Whether decisions are meant to move the arm."""
        return self._disarmed is None

    def arm(self, now_ns: int) -> Reason | None:
        """Let motion through from now on; return None, or why that is refused."""
        with self._lock:
            if self._estop_pressed:
                return Reason.ESTOP
            if self._estop_is_silent(now_ns):
                return Reason.ESTOP_SILENT
            self._disarmed = None
            return None

    def disarm(self) -> None:
        """Let nothing move until `arm`; decisions go on: a dry run."""
        with self._lock:
            self._disarmed = Reason.DISARMED

    def estop(self, pressed: bool, now_ns: int) -> None:
        """Take a state of the emergency stop; pressed disarms, released does not arm."""
        with self._lock:
            self._estop_pressed = pressed
            self._estop_heard_ns = now_ns
            if pressed:
                self._disarmed = Reason.ESTOP

    def deadman(self, held: bool, now_ns: int) -> None:
        """Take a state of the dead man's switch; held counts for the configured time."""
        with self._lock:
            self._held_ns = now_ns if held else None

    def block(self, now_ns: int) -> Reason | None:
        """Return why nothing may move now; None if motion may leave."""
        with self._lock:
            if self._disarmed is None and self._estop_is_silent(now_ns):
                self._disarmed = Reason.ESTOP_SILENT
            if self._disarmed is not None:
                return self._disarmed
            return None if self._is_held(now_ns) else Reason.DEADMAN

    def _estop_is_silent(self, now_ns: int) -> bool:
        if self._estop_ns == 0:
            return False
        return self._estop_heard_ns is None or now_ns - self._estop_heard_ns > self._estop_ns

    def _is_held(self, now_ns: int) -> bool:
        if not self._deadman_needed:
            return True
        return self._held_ns is not None and now_ns - self._held_ns <= self._deadman_ns
