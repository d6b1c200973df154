"""Let a store grow: what it already holds comes first, and what it knows is not stored twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.types import Float32Array, FloatArray

TWIN_COSINE = 1.0 - 1e-4
"""Below the likeness of consecutive frames (0.997) by far, above what float16 storage moves."""
TWIN_ACTION = 1e-3
"""Action units; half a token bin is 4e-3."""


def stored_episodes(store: MemoryStore) -> Iterator[EpisodeRows]:
    """Yield everything in a store, episode by episode, in its own order and precision."""
    for task in store.manifest.tasks:
        steps = store.rows_of(task.key)
        firsts = np.unique(steps.episode, return_index=True)[1]
        stops = [*firsts[1:].tolist(), len(steps)]
        for source, first, stop in zip(task.sources, firsts.tolist(), stops, strict=True):
            rows = steps.row[first:stop]
            yield EpisodeRows(
                task=task.key,
                source=source,
                vectors=store.stored_vectors(rows),
                actions=steps.action[first:stop],
                steps=steps.step[first:stop],
                positions=steps.position[first:stop],
                gripper=store.gripper_opening(rows),
                features=store.features(rows),
                target_tokens=store.target_tokens(rows),
            )


@dataclass(frozen=True, slots=True)
class _Sketch:
    """What is remembered of an episode: all actions, and the pictures of three steps."""

    actions: FloatArray
    vectors: Float32Array


class TwinFinder:
    """Knows the episodes of a store and tells whether another one is one of them again.

    Two episodes are twins if they have the same task and length, the same action in every step,
    and nearly the same pictures at the start, in the middle and at the end: a recording that was
    read twice, or stored in another precision.
    """

    def __init__(self) -> None:
        """Start with no episode."""
        self._known: dict[tuple[str, int], list[_Sketch]] = {}

    def add(self, rows: EpisodeRows) -> None:
        """Remember an episode."""
        self._known.setdefault(_key(rows), []).append(_sketch(rows))

    def knows(self, rows: EpisodeRows) -> bool:
        """Return whether the episode is one of those remembered."""
        mine = _sketch(rows)
        return any(_are_twins(mine, other) for other in self._known.get(_key(rows), []))


def _sketch(rows: EpisodeRows) -> _Sketch:
    last = len(rows.steps) - 1
    return _Sketch(rows.actions, np.asarray(rows.vectors[[0, last // 2, last]], dtype=np.float32))


def _key(rows: EpisodeRows) -> tuple[str, int]:
    return normalise_task(rows.task), len(rows.steps)


def _are_twins(one: _Sketch, other: _Sketch) -> bool:
    if np.abs(one.actions - other.actions).max() > TWIN_ACTION:
        return False
    return bool(np.einsum("ij,ij->i", one.vectors, other.vectors).min() >= TWIN_COSINE)
