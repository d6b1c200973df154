"""What a row is on a Qdrant server: plain Python values, checked when they come back."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heisd_ros.demonstrations.manifest import TaskRecord
from heisd_ros.demonstrations.qdrant_export import Export
from heisd_ros.errors import StoreError
from heisd_ros.types import ACTION_DIM, Float32Array, FloatArray, Hits, IntArray

SCORE_SLACK = 1e-3
"""Rounding may lift the dot product of two unit vectors a little above 1."""


FEATURE_TYPE = np.dtype("<f2")
"""Numbers of a stored feature, as in the folder; a base64 text of them, since JSON is ten times as
long."""


class ReplacedError(StoreError):
    """A row belongs to another export than the manifest that was read."""


def payload_of(
    export: Export,
    task: str,
    steps: Hits,
    i: int,
    *,
    gripper: float,
    target_tokens: IntArray | None = None,
) -> dict[str, Any]:
    """Return the payload of one row of a task.

    Args:
        export: What the row belongs to.
        task: Task key.
        steps: Rows of the task.
        i: Which of them.
        gripper: Measured finger opening, nan if unknown.
        target_tokens: int64 (7,), what the target itself decodes there; None if not stored.
    """
    payload = {
        "task": task,
        "store": export.digest,
        "episode": int(steps.episode[i]),
        "step": int(steps.step[i]),
        "action": steps.action[i].tolist(),
        "lookahead": steps.lookahead[i].tolist(),
        "valid_length": int(steps.valid_length[i]),
        "position": _or_null(steps.position[i]),
        "gripper": _or_null(np.array([gripper]))[0],
    }
    if steps.feature is not None:
        numbers = steps.feature[i].astype(FEATURE_TYPE).tobytes()
        payload["feature"] = base64.b64encode(numbers).decode("ascii")
    if target_tokens is not None:
        payload["target_tokens"] = target_tokens.tolist()
    return payload


def features_of(payloads: Sequence[Mapping[str, Any]], size: int) -> Float32Array | None:
    """Return the lm_head features of checked payloads, float32 (n, size); None if size is 0."""
    if not size:
        return None
    texts = [payload["feature"] for payload in payloads]
    rows = [np.frombuffer(base64.b64decode(text), FEATURE_TYPE) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(len(payloads), size)


def hits_of_points(
    points: Sequence[Any], scores: Sequence[float], export: Export, task: TaskRecord | None
) -> Hits:
    """Return points of the server as hits, in the order given.

    Args:
        points: Scored points or records of qdrant-client.
        scores: Cosine of each.
        export: What every row must belong to.
        task: The only task that may be among them; None for any.

    Raises:
        ReplacedError: If a row is of another export.
        StoreError: If a point has no usable payload, score or row number, or is of another task.
    """
    lookahead = export.manifest.lookahead
    payloads = [checked_payload(point, export, task) for point in points]
    if not all(math.isfinite(score) and abs(score) <= 1 + SCORE_SLACK for score in scores):
        raise StoreError(f"expected cosines as scores, got {list(scores)}; is the distance DOT?")
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
        feature=features_of(payloads, export.manifest.feature_size),
    )


def checked_payload(
    point: Any,  # noqa: ANN401
    export: Export,
    task: TaskRecord | None = None,
) -> Mapping[str, Any]:
    """Return the payload of a row, or refuse what would become a wrong action.

    Raises:
        ReplacedError: If the row is of another export.
        StoreError: If it is malformed or of another task.
    """
    payload = point.payload or {}
    if payload.get("store") != export.digest:
        raise ReplacedError(
            f"row {point.id} of collection {export.name!r} belongs to another export than its "
            "manifest: the store is being replaced, or an export broke off"
        )
    first, stop = (task.first_row, task.stop_row) if task else (0, export.manifest.rows)
    inside = isinstance(point.id, int) and first <= point.id < stop
    if not inside or (task and payload.get("task") != task.key):
        raise StoreError(f"row {point.id} is none of {task.key if task else 'the store'!r}")
    if not _is_sane(payload, export.manifest.lookahead):
        raise StoreError(
            f"row {point.id} of the Qdrant collection has no usable action "
            f"({json.dumps(payload.get('action'))[:200]}); export the store again"
        )
    if not _has_answers(payload, export):
        raise StoreError(
            f"row {point.id} of the Qdrant collection lacks the lm_head feature or the target's "
            "tokens that its manifest promises; export the store again with this version"
        )
    return payload


def _is_sane(payload: Mapping[str, Any], lookahead: int) -> bool:
    try:
        action = np.array(payload["action"], dtype=np.float64)
        ahead = np.array(payload["lookahead"], dtype=np.float64).reshape(-1, ACTION_DIM)
        return (
            action.shape == (ACTION_DIM,)
            and len(ahead) == lookahead
            and bool(np.isfinite(action).all() and np.isfinite(ahead).all())
            and 0 <= int(payload["valid_length"]) <= lookahead
            and isinstance(payload["episode"], int)
            and isinstance(payload["step"], int)
            and np.array(payload["position"], dtype=np.float64).shape == (3,)
        )
    except (KeyError, TypeError, ValueError):
        return False


def _has_answers(payload: Mapping[str, Any], export: Export) -> bool:
    """Return whether a row carries what the model itself answered, as far as it was stored."""
    size, tokens = export.manifest.feature_size, payload.get("target_tokens")
    try:
        feature = np.frombuffer(base64.b64decode(payload.get("feature") or ""), FEATURE_TYPE)
        has_tokens = np.array(tokens or [], dtype=np.int64).shape == (ACTION_DIM,)
    except (TypeError, ValueError, OverflowError):
        return False
    sound = len(feature) == size and bool(np.isfinite(feature).all())
    return (sound or not size) and (has_tokens or not export.manifest.target_tokens)


def _or_null(values: FloatArray) -> list[float | None]:
    """JSON knows no nan; numpy reads null as nan."""
    return [float(value) if np.isfinite(value) else None for value in values]
