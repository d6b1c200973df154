"""Open-loop replay of one demonstration: how far a task goes without looking at all.

A task that this baseline solves says nothing about a policy. It stands beside every success rate.
"""

from __future__ import annotations

import numpy as np

from heisd_ros.errors import DataError, ShapeError
from heisd_ros.types import (
    ACTION_DIM,
    Action,
    DecodeReport,
    DecodeResult,
    DraftKind,
    FloatArray,
    Observation,
)

REASON = "open_loop"
"""`DecodeReport.reason` of a replayed step."""

AFTER_THE_END = "demonstration_over"
"""`DecodeReport.reason` of a step after the demonstration's last one."""


class OpenLoopReplay:
    """Executes the actions of one demonstration, then stands still with the last gripper state."""

    def __init__(self, actions: FloatArray) -> None:
        """Keep the actions.

        Args:
            actions: (T, 7), executed actions in action units, gripper 1 = open.

        Raises:
            ShapeError: If the actions are not (T, 7).
            DataError: If there are none, or one is not finite.
        """
        if actions.ndim != 2 or actions.shape[1] != ACTION_DIM:
            raise ShapeError(f"actions must have shape (T, {ACTION_DIM}), got {actions.shape}")
        if not len(actions) or not np.isfinite(actions).all():
            raise DataError(f"expected at least one finite action, got {len(actions)} actions")
        self._actions = np.array(actions, dtype=np.float64)
        self._step = 0

    def reset(self, instruction: str) -> None:  # noqa: ARG002  (it does not listen either)
        """Start from the first action."""
        self._step = 0

    def act(self, observation: Observation) -> DecodeResult:  # noqa: ARG002
        """Return the next action, whatever is seen."""
        over = self._step >= len(self._actions)
        values = self._actions[-1 if over else self._step].copy()
        if over:
            values[: ACTION_DIM - 1] = 0.0
        self._step += 1
        report = DecodeReport(
            kind=DraftKind.RETRIEVAL,
            skipped=True,
            accept_length=0,
            forwards=0,
            stage_ms={},
            reason=AFTER_THE_END if over else REASON,
        )
        return DecodeResult(Action(np.zeros(ACTION_DIM, dtype=np.int64), values), report)

    def end_episode(self, success: bool) -> None:
        """Nothing to learn."""
