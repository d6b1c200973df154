"""The last check before the arm: finite, limited, fresh, right frame, current instruction."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.command.command import to_command, zero_command
from heisd_ros.command.limits import limit_change, limit_norm, limit_to_box
from heisd_ros.command.reasons import Reason
from heisd_ros.config import CommandConfig
from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.types import Action, EndEffectorCommand, FloatArray

PICTURE_AHEAD_NS = 20_000_000
"""A camera clock may run ahead of ours by this much; more is a stamp from the future."""


GuardReason = Reason
"""The name this enumeration had when only the guard had reasons."""


@dataclass(frozen=True, slots=True)
class GuardResult:
    """What may be sent, and what was done to it.

    Attributes:
        command: Safe to send; zero with the gripper unchanged if the decision was refused.
        reasons: Everything that was changed or wrong, in the order it was found.
        passed: True if the command carries the decision, as it was or scaled.
    """

    command: EndEffectorCommand
    reasons: tuple[Reason, ...]
    passed: bool


class CommandGuard:
    """Lets through commands that are safe, scales those that are too fast, refuses the rest.

    The change is limited from what was published last, so the guard must be told of every command
    that is (`sent`): a decision may never leave, and a zero may leave late. The gripper opening of
    the last passed command is kept when a decision is refused. Not thread-safe: whoever decides in
    one thread and publishes in another joins `check` and `sent` by a lock.
    """

    def __init__(self, config: CommandConfig, *, gripper: float = 1.0) -> None:
        """Set up.

        Args:
            config: Limits, frame and time-outs.
            gripper: Opening to keep until the first command passes, [0, 1].

        Raises:
            ConfigError: If a limit is missing, not positive or of the wrong length.
        """
        self._config = config
        self._box = _checked_box(config.workspace_low, config.workspace_high)
        for name in ("max_linear", "max_angular", "max_linear_step", "max_angular_step"):
            if not 0.0 < getattr(config, name) < math.inf:
                raise ConfigError(f"command.{name} must be positive, got {getattr(config, name)}")
        if not config.frame_id:
            raise ConfigError("command.frame_id must name the frame of the twist")
        self._gripper = zero_command(config.frame_id, gripper).gripper
        self._counts: Counter[Reason] = Counter()
        self._linear: FloatArray = np.zeros(3)
        self._angular: FloatArray = np.zeros(3)
        self._changed_ns: int | None = None
        self._sent_ns = 0

    @property
    def counts(self) -> dict[Reason, int]:
        """How often each reason occurred."""
        return dict(self._counts)

    def sent(self, command: EndEffectorCommand, now_ns: int) -> None:
        """Take what is being published, whatever it comes from: decision, hold, or a stop.

        Args:
            command: The next one on the wire.
            now_ns: Time on the clock of the stamps, nanoseconds.
        """
        if not (command.linear.any() or command.angular.any()):
            self._changed_ns = None
        elif (command.linear != self._linear).any() or (command.angular != self._angular).any():
            self._changed_ns = now_ns
        self._linear, self._angular, self._sent_ns = command.linear, command.angular, now_ns

    def check(
        self,
        command: EndEffectorCommand,
        now_ns: int,
        *,
        instruction: str | None = None,
        position: ArrayLike | None = None,
        position_frame: str = "",
        arrival_age_ns: int | None = None,
    ) -> GuardResult:
        """Return the command that may be sent.

        Args:
            command: The decision.
            now_ns: Time on the clock of the stamps, nanoseconds.
            instruction: The instruction that is active now; None skips the comparison.
            position: Measured end-effector position (3,), metres, frame of the command; None
                skips the workspace box.
            position_frame: Frame of the position; empty: not known, taken for the command's.
            arrival_age_ns: How long ago the oldest picture arrived here, nanoseconds of a clock
                that never jumps: a camera with a wrong clock makes old pictures look new. None
                skips the comparison.
        """
        where = None if position is None else np.asarray(position, dtype=np.float64)
        refusals = [
            *_value_faults(command, where),
            *self._frame_faults(command, position_frame),
            *self._time_faults(command, now_ns, arrival_age_ns),
        ]
        if instruction is not None and command.instruction != instruction:
            refusals.append(Reason.OLD_INSTRUCTION)
        if refusals:
            return self._refused(refusals, now_ns)
        return self._limited(command, now_ns, where)

    def check_action(
        self,
        action: Action | ArrayLike,
        now_ns: int,
        *,
        observed_ns: int,
        decided_for: str = "",
        instruction: str | None = None,
        position: ArrayLike | None = None,
        position_frame: str = "",
        arrival_age_ns: int | None = None,
    ) -> GuardResult:
        """Convert an action with the configured rate, scales and frame, then check it.

        A wrong number of values is refused here with a reason, where `to_command` raises.

        Args:
            action: Pose delta and gripper (7,).
            now_ns: Time on the clock of the stamps, nanoseconds.
            observed_ns: Stamp of the oldest picture it was decided from, nanoseconds.
            decided_for: The instruction it was decided for.
            instruction: As in `check`.
            position: As in `check`.
            position_frame: As in `check`.
            arrival_age_ns: As in `check`.
        """
        config = self._config
        try:
            command = to_command(
                action,
                config.control_hz,
                config.frame_id,
                translation_scale=config.translation_scale,
                rotation_scale=config.rotation_scale,
                stamp_ns=now_ns,
                observed_ns=observed_ns,
                instruction=decided_for,
            )
        except ShapeError:
            return self.refuse(Reason.WRONG_LENGTH, now_ns)
        return self.check(
            command,
            now_ns,
            instruction=instruction,
            position=position,
            position_frame=position_frame,
            arrival_age_ns=arrival_age_ns,
        )

    def refuse(self, reason: Reason, now_ns: int) -> GuardResult:
        """Return a counted zero command for a step that produced no decision."""
        return self._refused([reason], now_ns)

    def _refused(self, reasons: list[Reason], now_ns: int) -> GuardResult:
        self._counts.update(reasons)
        zero = zero_command(self._config.frame_id, self._gripper, stamp_ns=now_ns)
        return GuardResult(zero, tuple(reasons), passed=False)

    def _limited(
        self, command: EndEffectorCommand, now_ns: int, position: FloatArray | None
    ) -> GuardResult:
        config = self._config
        share = self._share_of_step(now_ns)
        reasons = []
        linear, over = limit_norm(command.linear, config.max_linear)
        reasons += [Reason.LINEAR_LIMIT] * over
        angular, over = limit_norm(command.angular, config.max_angular)
        reasons += [Reason.ANGULAR_LIMIT] * over
        linear, moved = self._near(linear, self._linear, config.max_linear_step, now_ns)
        reasons += [Reason.LINEAR_STEP] * moved
        angular, turned = self._near(angular, self._angular, config.max_angular_step, now_ns)
        reasons += [Reason.ANGULAR_STEP] * turned
        reasons += [Reason.RATE_LIMIT] * ((moved or turned) and share < 1.0)
        if position is not None:
            horizon_s = max(config.lifetime_s, 1.0 / config.control_hz)
            linear, over = limit_to_box(linear, position, self._box, horizon_s)
            reasons += [Reason.OUTSIDE_WORKSPACE] * over
        gripper = min(max(float(command.gripper), 0.0), 1.0)
        reasons += [Reason.GRIPPER_LIMIT] * (gripper != command.gripper)
        self._counts.update(reasons)
        self._gripper = gripper
        safe = dataclasses.replace(command, linear=linear, angular=angular, gripper=gripper)
        return GuardResult(safe, tuple(reasons), passed=True)

    def _near(
        self, wanted: FloatArray, last: FloatArray, step: float, now_ns: int
    ) -> tuple[FloatArray, bool]:
        """Return the velocity within its share of a step from the last one sent, and if changed.

        After a silence longer than a command lives nobody knows whether the arm still moves: its
        controller may have stopped it. Then the velocity is also at most a step away from rest, as
        far as the distance from the last one allows.
        """
        near, changed = wanted, False
        if now_ns - self._sent_ns > self._config.lifetime_s * 1e9:
            near, changed = limit_norm(near, step)
        near, over = limit_change(near, last, step * self._share_of_step(now_ns))
        return near, changed or over

    def _share_of_step(self, now_ns: int) -> float:
        """Return how much of the step limits a decision may use that comes this soon.

        Without it, decisions at ten times the control rate could change the velocity ten times as
        fast. Whoever starts from rest has the whole step, and so has the first decision after the
        clock has gone back.
        """
        if self._changed_ns is None or now_ns < self._changed_ns:
            return 1.0
        periods = (now_ns - self._changed_ns) * 1e-9 * self._config.control_hz
        return min(1.0, periods * self._config.rate_margin)

    def _frame_faults(self, command: EndEffectorCommand, position_frame: str) -> list[Reason]:
        if not command.frame_id:
            return [Reason.EMPTY_FRAME]
        faults = [Reason.WRONG_FRAME] * (command.frame_id != self._config.frame_id)
        other = position_frame not in ("", self._config.frame_id)
        return faults + [Reason.WRONG_POSE_FRAME] * other

    def _time_faults(
        self, command: EndEffectorCommand, now_ns: int, arrival_age_ns: int | None
    ) -> list[Reason]:
        config = self._config
        faults = []
        picture_ahead = command.observed_ns > now_ns + PICTURE_AHEAD_NS
        if command.stamp_ns > now_ns or picture_ahead:
            faults.append(Reason.FUTURE_STAMP)
        if now_ns - command.observed_ns > config.image_timeout_s * 1e9:
            faults.append(Reason.STALE_IMAGE)
        if arrival_age_ns is not None and arrival_age_ns > config.image_timeout_s * 1e9:
            faults.append(Reason.STALE_ARRIVAL)
        if now_ns - command.stamp_ns > config.lifetime_s * 1e9:
            faults.append(Reason.STALE_COMMAND)
        return faults


def _value_faults(command: EndEffectorCommand, position: FloatArray | None) -> list[Reason]:
    parts = [np.asarray(command.linear), np.asarray(command.angular)]
    parts += [] if position is None else [position]
    if any(part.shape != (3,) for part in parts):
        return [Reason.WRONG_LENGTH]
    finite = np.isfinite(np.concatenate([*parts, [command.gripper]])).all()
    return [] if finite else [Reason.NON_FINITE]


def _checked_box(low: Sequence[float], high: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    box = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if box[0].shape != (3,) or box[1].shape != (3,) or not (box[0] < box[1]).all():
        raise ConfigError(
            "command.workspace_low and workspace_high must be three numbers each, low < high; "
            f"got {list(low)} and {list(high)}"
        )
    return box
