"""Keeps a flickering gripper decision from opening and closing the fingers."""

from __future__ import annotations

import math

from heisd_ros.action_space.gripper import GripperState, state_of
from heisd_ros.errors import ConfigError


class GripperDebounce:
    """Switches the gripper only after several equal decisions in a row.

    The first decision is taken at once. Exactly 0.5 and values that are not finite decide
    nothing: they keep the state and interrupt a row of equal decisions.

    Attributes:
        opening: Current output, 1.0 open or 0.0 closed.
        changes: How often the output has switched since the first decision.
    """

    def __init__(self, steps: int = 1, *, opening: float = 1.0) -> None:
        """Set up.

        Args:
            steps: Equal decisions before the output switches; 1 switches at once.
            opening: Output before the first decision, [0, 1]: the measured opening.

        Raises:
            ConfigError: If steps is below 1 or the opening outside [0, 1].
        """
        if steps < 1 or not 0.0 <= opening <= 1.0:
            raise ConfigError(
                f"debounce needs steps >= 1 and an opening in [0, 1], got {steps} and {opening}"
            )
        self._steps = steps
        self.reset(opening=opening)

    def reset(self, *, opening: float = 1.0) -> None:
        """Forget the decisions so far; the next one is taken at once."""
        self.opening = float(opening)
        self.changes = 0
        self._state: GripperState | None = None
        self._equal = 0

    def update(self, value: float) -> float:
        """Take one decision (model value, 1 = open) and return the opening to command."""
        wanted = state_of(value, None) if math.isfinite(value) else None
        if wanted is None or wanted is self._state:
            self._equal = 0
            return self.opening
        self._equal += 1
        if self._state is None or self._equal >= self._steps:
            self.changes += self._state is not None
            self._state = wanted
            self._equal = 0
            self.opening = float(wanted)
        return self.opening
