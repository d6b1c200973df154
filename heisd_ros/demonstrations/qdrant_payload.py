"""What a row is on a Qdrant server: plain Python values, checked when they come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from heisd_ros.errors import StoreError
from heisd_ros.types import ACTION_DIM, FloatArray, Hits


def payload_of(task: str, steps: Hits, i: int, gripper: float) -> dict[str, Any]:
    """Return the payload of one row of a task.

    Args:
        task: Task key.
        steps: Rows of the task.
        i: Which of them.
        gripper: Measured finger opening, nan if unknown.
    """
    return {
        "task": task,
        "episode": int(steps.episode[i]),
        "step": int(steps.step[i]),
        "action": steps.action[i].tolist(),
        "lookahead": steps.lookahead[i].tolist(),
        "valid_length": int(steps.valid_length[i]),
        "position": _or_null(steps.position[i]),
        "gripper": _or_null(np.array([gripper]))[0],
    }


def hits_of_points(points: Sequence[Any], scores: Sequence[float], lookahead: int) -> Hits:
    """Return points of the server as hits, in the order given.

    Raises:
        StoreError: If a point has no usable payload.
    """
    payloads = [_checked_payload(point, lookahead) for point in points]
    count = len(payloads)

    def column(name: str, *shape: int, dtype: type = np.float64) -> Any:  # noqa: ANN401
        values = [payload[name] for payload in payloads]
        return np.array(values, dtype=dtype).reshape(count, *shape)

    return Hits(
        score=np.array(scores, dtype=np.float32),
        row=np.array([point.id for point in points], dtype=np.int64),
        episode=column("episode", dtype=np.int64),
        step=column("step", dtype=np.int64),
        action=column("action", ACTION_DIM),
        lookahead=column("lookahead", lookahead, ACTION_DIM),
        valid_length=column("valid_length", dtype=np.int64),
        position=column("position", 3),
    )


def _checked_payload(point: Any, lookahead: int) -> dict[str, Any]:  # noqa: ANN401
    """Return the payload, or refuse what would become a wrong action."""
    payload = dict(point.payload or {})
    try:
        action = np.array(payload["action"], dtype=np.float64)
        ahead = np.array(payload["lookahead"], dtype=np.float64).reshape(-1, ACTION_DIM)
        valid = int(payload["valid_length"])
        sane = (
            action.shape == (ACTION_DIM,)
            and len(ahead) == lookahead
            and bool(np.isfinite(action).all() and np.isfinite(ahead).all())
            and 0 <= valid <= lookahead
            and isinstance(payload["episode"], int)
            and isinstance(payload["step"], int)
        )
        sane = sane and len(payload["position"]) == 3
    except (KeyError, TypeError, ValueError):
        sane = False
    if not sane:
        raise StoreError(
            f"row {point.id} of the Qdrant collection has no usable action "
            f"({json.dumps(payload.get('action'))}); export the store again"
        )
    return payload


def _or_null(values: FloatArray) -> list[float | None]:
    """JSON knows no nan; numpy reads null as nan."""
    return [float(value) if np.isfinite(value) else None for value in values]
