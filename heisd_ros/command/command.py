"""An action to an end-effector velocity, and the way back."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.action_space.layout import SEQUENCE_SLICES, Sequence
from heisd_ros.errors import ConfigError, DataError, ShapeError
from heisd_ros.types import ACTION_DIM, Action, EndEffectorCommand, FloatArray


def to_command(
    action: Action | ArrayLike,
    control_hz: float,
    frame_id: str,
    *,
    translation_scale: float = 1.0,
    rotation_scale: float = 1.0,
    stamp_ns: int = 0,
    observed_ns: int = 0,
    instruction: str = "",
) -> EndEffectorCommand:
    """Return the constant velocity that makes the action's pose delta in one control period.

    Values that are not finite pass through: the guard refuses and counts them.

    Args:
        action: Pose delta per step and gripper (7,): action units of the checkpoint, 1 = open.
        control_hz: Decisions per second; the delta lasts 1/control_hz seconds.
        frame_id: Frame of the twist.
        translation_scale: Metres per action unit of translation.
        rotation_scale: Radians per action unit of rotation.
        stamp_ns: Time of the command, nanoseconds.
        observed_ns: Stamp of the oldest picture it was decided from, nanoseconds.
        instruction: The instruction it was decided for.

    Raises:
        ShapeError: If the action does not have seven values.
        ConfigError: If rate or scales are not positive and finite.

    Example:
        >>> to_command([0.01, 0, 0, 0, 0, 0.02, 1], 5.0, "base").linear.tolist()
        [0.05, 0.0, 0.0]
    """
    _check_factors(control_hz, translation_scale, rotation_scale)
    values = np.asarray(action.values if isinstance(action, Action) else action, dtype=np.float64)
    if values.shape != (ACTION_DIM,):
        raise ShapeError(
            f"an action must have {ACTION_DIM} values (x y z rx ry rz gripper), got shape "
            f"{values.shape}"
        )
    with np.errstate(over="ignore"):  # 1e308 * hz becomes inf, which the guard refuses
        linear = values[SEQUENCE_SLICES[Sequence.POSITION]] * (translation_scale * control_hz)
        angular = values[SEQUENCE_SLICES[Sequence.ROTATION]] * (rotation_scale * control_hz)
    opening = float(values[-1])
    if math.isfinite(opening):
        opening = min(max(opening, 0.0), 1.0)
    return EndEffectorCommand(
        linear, angular, opening, frame_id, stamp_ns, observed_ns, instruction
    )


def to_action_values(
    command: EndEffectorCommand,
    control_hz: float,
    *,
    translation_scale: float = 1.0,
    rotation_scale: float = 1.0,
) -> FloatArray:
    """Return the action (7,) that one control period of this command makes; undoes `to_command`.

    Raises:
        ConfigError: If rate or scales are not positive and finite.
    """
    _check_factors(control_hz, translation_scale, rotation_scale)
    return np.concatenate(
        [
            command.linear / (translation_scale * control_hz),
            command.angular / (rotation_scale * control_hz),
            [command.gripper],
        ]
    )


def zero_command(
    frame_id: str,
    gripper: float,
    *,
    stamp_ns: int = 0,
    observed_ns: int = 0,
    instruction: str = "",
) -> EndEffectorCommand:
    """Return the command that stops the arm and leaves the gripper where it is told to be.

    Raises:
        DataError: If the gripper value is not in [0, 1].
    """
    if not 0.0 <= gripper <= 1.0:
        raise DataError(f"gripper must be in [0, 1], got {gripper}; pass the last good opening")
    return EndEffectorCommand(
        np.zeros(3), np.zeros(3), gripper, frame_id, stamp_ns, observed_ns, instruction
    )


def _check_factors(control_hz: float, translation_scale: float, rotation_scale: float) -> None:
    for name, value in (
        ("control_hz", control_hz),
        ("translation_scale", translation_scale),
        ("rotation_scale", rotation_scale),
    ):
        if not (math.isfinite(value) and value > 0.0):
            raise ConfigError(f"{name} must be positive and finite, got {value}")
