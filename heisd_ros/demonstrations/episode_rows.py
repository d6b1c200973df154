"""One embedded episode as the store keeps it, and the columns that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.demonstrations.prefix import Matrix
from heisd_ros.errors import DataError
from heisd_ros.types import ACTION_DIM, Float32Array, FloatArray, IntArray

NORM_TOLERANCE = 1e-4
FLOAT16_TOLERANCE = 1e-3
"""Of the norm of a vector that comes out of a float16 store."""


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """One embedded episode, ready to be stored.

    Attributes:
        task: Instruction.
        source: Where the episode came from, for people.
        vectors: float32 (n, E), unit norm; float16 if they come out of such a store.
        actions: float64 (n, 7), model convention (gripper 1 = open, 0 = closed).
        steps: int64 (n,), index in the episode, strictly ascending; holes are dropped steps.
        positions: float64 (n, 3), end-effector position in metres, nan if unknown.
        gripper: float64 (n,), measured finger opening [0, 1], nan if unknown.
        features: float (n, F), inputs of the target's lm_head in front of the action; None if
            unknown.
        target_tokens: int64 (n, 7), what the target itself decodes here; None if unknown.
    """

    task: str
    source: str
    vectors: Float32Array
    actions: FloatArray
    steps: IntArray
    positions: FloatArray
    gripper: FloatArray
    features: Float32Array | None = None
    target_tokens: IntArray | None = None


def check_episode(rows: EpisodeRows, length: int) -> None:
    """Refuse rows that would make a damaged store or a wrong action.

    Raises:
        DataError: If shapes disagree, or anything is not finite, unit norm or in range.
    """
    n = len(rows.steps)
    expected = {
        "vectors": (n, length),
        "actions": (n, ACTION_DIM),
        "steps": (n,),
        "positions": (n, 3),
        "gripper": (n,),
    }
    for name, shape in expected.items():
        if getattr(rows, name).shape != shape or n == 0:
            got = getattr(rows, name).shape
            raise DataError(f"{rows.source}: {name} must have shape {shape}, n > 0, got {got}")
    _check_answers(rows, n)
    if not np.isfinite(rows.actions).all():
        raise DataError(f"{rows.source}: actions must be finite; drop such steps first")
    opening = rows.actions[:, -1]
    if opening.min() < 0.0 or opening.max() > 1.0:
        raise DataError(
            f"{rows.source}: gripper actions must lie in [0, 1] with 1 = open, got "
            f"[{opening.min()}, {opening.max()}]; convert them to the model's convention"
        )
    if n > 1 and np.diff(rows.steps).min() < 1:
        raise DataError(f"{rows.source}: steps must ascend, got {rows.steps.tolist()}")
    half = rows.vectors.dtype == np.float16
    tolerance = FLOAT16_TOLERANCE if half else NORM_TOLERANCE
    norms = np.linalg.norm(np.asarray(rows.vectors, dtype=np.float32), axis=1)
    if not (np.abs(norms - 1.0) <= tolerance).all():
        raise DataError(
            f"{rows.source}: vectors must be finite and of unit norm, got norms from "
            f"{norms.min()} to {norms.max()}; normalise them"
        )


def _check_answers(rows: EpisodeRows, n: int) -> None:
    features, tokens = rows.features, rows.target_tokens
    if tokens is not None and tokens.shape != (n, ACTION_DIM):
        raise DataError(
            f"{rows.source}: target_tokens must have shape {(n, ACTION_DIM)}, got {tokens.shape}"
        )
    if features is None:
        return
    if features.ndim != 2 or len(features) != n or not np.isfinite(features).all():
        raise DataError(
            f"{rows.source}: features must be finite, one row for each of {n} steps, got shape "
            f"{features.shape}"
        )


def following_actions(
    actions: FloatArray, steps: IntArray, count: int
) -> tuple[FloatArray, IntArray]:
    """Return the next `count` actions of every step, and how many of them are real.

    A dropped step ends the look-ahead as the end of the episode does.

    Args:
        actions: (n, 7).
        steps: (n,), strictly ascending.
        count: L.

    Returns:
        float64 (n, L, 7), zero-padded, and int64 (n,) in [0, L].
    """
    n = len(steps)
    ahead = np.zeros((n, count, ACTION_DIM), dtype=np.float64)
    valid = np.zeros(n, dtype=np.int64)
    for j in range(1, count + 1):
        follows = np.zeros(n, dtype=bool)
        follows[: max(n - j, 0)] = steps[j:] - steps[: max(n - j, 0)] == j
        rows = np.flatnonzero(follows)
        ahead[rows, j - 1] = actions[rows + j]
        valid[rows] = j
    return ahead, valid


def store_columns(episodes: Sequence[EpisodeRows], lookahead: int) -> dict[str, Matrix]:
    """Return every column but the vectors, for episodes in store order."""
    ahead = [following_actions(e.actions, e.steps, lookahead) for e in episodes]
    counts = [len(episode.steps) for episode in episodes]
    columns: dict[str, Matrix] = {
        "action": np.concatenate([e.actions for e in episodes]).astype(np.float64),
        "lookahead": np.concatenate([actions for actions, _ in ahead]),
        "valid_length": np.concatenate([valid for _, valid in ahead]),
        "episode": np.repeat(np.arange(len(episodes), dtype=np.int64), counts),
        "step": np.concatenate([e.steps for e in episodes]).astype(np.int64),
        "position": np.concatenate([e.positions for e in episodes]).astype(np.float64),
        "gripper": np.concatenate([e.gripper for e in episodes]).astype(np.float64),
    }
    if episodes[0].features is not None:
        features = [np.asarray(e.features, dtype=np.float16) for e in episodes]
        columns["feature"] = np.concatenate(features)
    if episodes[0].target_tokens is not None:
        tokens = [np.asarray(e.target_tokens, dtype=np.int32) for e in episodes]
        columns["target_tokens"] = np.concatenate(tokens)
    return columns
