"""What the decoder says about itself: one diagnostic status, and one log line per change."""

from __future__ import annotations

from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus

from heisd_ros.command.reasons import Reason
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.assembler import NO_CLOCK, ObservationAssembler
from heisd_ros.decode.pilot import Pilot
from heisd_ros.nodes.managed import Status
from heisd_ros.nodes.rivals import Rivals
from heisd_ros.nodes.worker import LatestWorker

BLOCKED = "decision_blocked"
EMERGENCIES = (Reason.ESTOP.value, Reason.ESTOP_SILENT.value)


class DecoderHealth:
    """Reads what it is given and changes nothing. Loggers are those of rclpy."""

    def __init__(
        self,
        pilot: Pilot,
        assembler: ObservationAssembler,
        worker: LatestWorker,
        rivals: Rivals,
        config: HeisdConfig,
        *,
        simulated: bool,
    ) -> None:
        """Take what is watched; `simulated`: whether time comes from /clock."""
        self._pilot, self._assembler, self._worker = pilot, assembler, worker
        self._rivals = rivals
        # In lockstep the arm rests whenever a decision takes longer than a command lives.
        self._quiet = simulated and config.simulation.clock == "lockstep"
        self._longest_ns = round(config.command.image_timeout_s * 1e9)
        self._reason = pilot.hold_reason

    def status(self) -> Status:
        """Return the state of this moment."""
        pilot = self._pilot
        values: dict[str, object] = {
            "waiting_for": self._assembler.reason,
            "holding": pilot.hold_reason or "decision",
            "armed": pilot.arming.armed,
            "skipped_pictures": self._worker.dropped,
            "other_publishers": ", ".join(self._rivals.found),
            **pilot.counts,
        }
        if self._worker.busy_ns() > self._longest_ns:
            return Status(DiagnosticStatus.ERROR, BLOCKED, values)
        if pilot.stopped or pilot.fatal:
            return Status(DiagnosticStatus.ERROR, pilot.fatal or pilot.stopped, values)
        if pilot.hold_reason in EMERGENCIES:
            return Status(DiagnosticStatus.ERROR, pilot.hold_reason, values)
        if self._rivals.found:
            # In a dry run somebody else may move the arm: that is what its silence is for.
            level = DiagnosticStatus.ERROR if pilot.arming.armed else DiagnosticStatus.WARN
            text = f"{Reason.FOREIGN_PUBLISHER.value} {', '.join(self._rivals.found)}"
            return Status(level, text, values)
        if pilot.hold_reason:
            text = f"{pilot.hold_reason} {self._assembler.reason}".strip()
            return Status(DiagnosticStatus.WARN, text, values)
        return Status(DiagnosticStatus.OK, "deciding", values)

    def watch_clock(self, logger: Any) -> None:  # noqa: ANN401
        """Warn while time stands at zero."""
        if self._assembler.reason == NO_CLOCK:
            logger.warning("waiting for /clock", throttle_duration_sec=10.0)

    def watch(self, logger: Any) -> None:  # noqa: ANN401
        """Log once when motion ends and once when it begins again."""
        reason = self._pilot.hold_reason
        if reason == self._reason or self._quiet:
            return
        if reason and not self._reason:
            logger.warning(f"the arm is at rest: {reason}, waiting for {self._assembler.reason}")
        elif not reason:
            logger.info("decisions arrive, the arm moves")
        self._reason = reason
