"""What a gripper number means: model, LIBERO and robot conventions, and their truth table.

| state  | model | LIBERO raw and env | open_is_one | minus_one_open | position_m |
|--------|-------|--------------------|-------------|----------------|------------|
| open   | 1     | -1                 | 1           | -1             | maximum    |
| closed | 0     | +1                 | 0           | +1             | 0          |
"""

from __future__ import annotations

import math
from enum import Enum, IntEnum

from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.errors import ConfigError, DataError

BORDER = 0.5
"""Model value between closed and open; exactly there a gripper stays as it is."""

MAX_OPENING_M = 0.08
"""Finger distance of an open Panda gripper, metres."""


class GripperState(IntEnum):
    """The two states of a binary gripper, as model values."""

    CLOSED = 0
    OPEN = 1


class GripperConvention(str, Enum):
    """How a robot spells the opening."""

    OPEN_IS_ONE = "open_is_one"
    MINUS_ONE_OPEN = "minus_one_open"
    POSITION_M = "position_m"

    @classmethod
    def named(cls, name: str) -> GripperConvention:
        """Return the convention of this name.

        Raises:
            ConfigError: If there is none.
        """
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(item.value for item in cls)
            raise ConfigError(f"gripper convention must be one of {known}; got {name!r}") from None


def to_convention(
    opening: float, convention: str, *, max_opening_m: float = MAX_OPENING_M
) -> float:
    """Return an opening in [0, 1] as the robot spells it.

    Raises:
        ConfigError: If the convention is unknown.
        DataError: If the opening is not in [0, 1].

    Example:
        >>> to_convention(1.0, "minus_one_open"), to_convention(1.0, "position_m")
        (-1.0, 0.08)
    """
    kind = GripperConvention.named(convention)
    if not 0.0 <= opening <= 1.0:
        raise DataError(f"gripper opening must be in [0, 1], got {opening}")
    if kind is GripperConvention.MINUS_ONE_OPEN:
        return 1.0 - 2.0 * opening
    if kind is GripperConvention.POSITION_M:
        return opening * max_opening_m
    return float(opening)


def from_convention(
    value: float, convention: str, *, max_opening_m: float = MAX_OPENING_M
) -> float:
    """Return the opening in [0, 1] that the robot's number means, clipped; undoes `to_convention`.

    Raises:
        ConfigError: If the convention is unknown.
        DataError: If the value is not finite.
    """
    kind = GripperConvention.named(convention)
    if not math.isfinite(value):
        raise DataError(f"gripper value must be finite, got {value}")
    if kind is GripperConvention.MINUS_ONE_OPEN:
        value = (1.0 - value) / 2.0
    elif kind is GripperConvention.POSITION_M:
        value = value / max_opening_m
    return min(max(float(value), 0.0), 1.0)


def libero_to_model(raw: float) -> float:
    """Return the model's gripper value of a raw LIBERO action: -1 (open) -> 1, +1 (close) -> 0.

    Demonstrations must be converted before they are tokenised. The clip, which also sends 0 to
    1, is part of the data set the public checkpoints were trained on.
    """
    return 1.0 - min(max(float(raw), 0.0), 1.0)


def model_to_libero(value: float) -> float:
    """Return the environment's gripper action of a model value: open -> -1, closed -> +1, 0.5 -> 0.

    Only for values the model produced: a raw demonstration action is in this convention already.
    """
    if value == BORDER:
        return 0.0
    return -1.0 if value > BORDER else 1.0


def state_of(value: float, previous: GripperState | None = None) -> GripperState | None:
    """Return the state a model value asks for; exactly 0.5 keeps the previous one.

    Raises:
        DataError: If the value is not finite.
    """
    if not math.isfinite(value):
        raise DataError(f"gripper value must be finite, got {value}; keep the previous state")
    if value == BORDER:
        return previous
    return GripperState.OPEN if value > BORDER else GripperState.CLOSED


def state_of_token(token: int, tokenizer: ActionTokenizer | None = None) -> GripperState:
    """Return the state a gripper token asks for: ids up to 31808 open, from 31809 on close.

    Raises:
        DataError: If it is not an action id.
    """
    value = float((tokenizer or ActionTokenizer()).decode(token))
    return GripperState.OPEN if value > BORDER else GripperState.CLOSED
