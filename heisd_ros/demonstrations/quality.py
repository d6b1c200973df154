"""How good a store is: duplicates, and what leave-one-episode-out search finds.

A step that is searched in the other episodes of its task stands for a step of a live episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heisd_ros.demonstrations.calibration import SCORE_TOLERANCE
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.types import BoolArray, FloatArray, Hits

K = 5


@dataclass(frozen=True, slots=True)
class TaskQuality:
    """What was measured of one task.

    Attributes:
        task: Task key.
        rows: Steps.
        episodes: Episodes.
        duplicates: Rows whose embedding equals an earlier row's, bit for bit.
        queries: Steps that were searched for.
        top1_cosine: Mean cosine of the best hit in the other episodes; nan with one episode.
        top1_distance: Mean Euclidean distance of the best hit's pose delta, action units.
        best_distance: The same of the best of five hits.
        gripper_agreement: Share of best hits with the same gripper state.
        recall: Share of the true five best that the store's own search found.
        drift: Mean best cosine of steps of the newest fifth of the episodes minus that of all
            others; far below 0, what was added last looks different. nan with few episodes.
    """

    task: str
    rows: int
    episodes: int
    duplicates: int
    queries: int
    top1_cosine: float
    top1_distance: float
    best_distance: float
    gripper_agreement: float
    recall: float
    drift: float


def measure_task(store: MemoryStore, task: str, *, queries: int = 200) -> TaskQuality:
    """Search for up to `queries` steps, evenly spread over the task, in its other episodes."""
    steps = store.rows_of(task)
    asked = np.unique(np.linspace(0, len(steps) - 1, min(queries, len(steps))).round().astype(int))
    results: list[tuple[float, ...]] = []
    newest: list[bool] = []
    episodes = np.unique(steps.episode)
    for i in asked:
        query = store.vectors(steps.row[i : i + 1])[0]
        query /= np.linalg.norm(query)  # float16 rows are not exactly of unit norm
        own = int(steps.episode[i])
        truth = store.search(query, task, K, exclude_episode=own, exact=True)
        found = store.search(query, task, K, exclude_episode=own)
        if len(truth):
            results.append(_judge(steps, int(i), found, truth))
            newest.append(own in episodes[len(episodes) * 4 // 5 :])
    means = np.mean(results, axis=0) if results else np.full(5, np.nan)
    cosine, top1, best, gripper, recall = means.tolist()
    return TaskQuality(
        task=task,
        rows=len(steps),
        episodes=len(episodes),
        duplicates=_duplicates(store, steps),
        queries=len(results),
        top1_cosine=cosine,
        top1_distance=top1,
        best_distance=best,
        gripper_agreement=gripper,
        recall=recall,
        drift=_drift(np.array([result[0] for result in results]), np.array(newest, dtype=bool)),
    )


def _drift(cosines: FloatArray, newest: BoolArray) -> float:
    if newest.all() or not newest.any():
        return float("nan")
    return float(cosines[newest].mean() - cosines[~newest].mean())


def _judge(steps: Hits, i: int, found: Hits, truth: Hits) -> tuple[float, ...]:
    distances = np.linalg.norm(found.action[:, :6] - steps.action[i, :6], axis=1)
    same_gripper = (found.action[0, 6] >= 0.5) == (steps.action[i, 6] >= 0.5)
    recall = np.mean(found.score >= truth.score[-1] - SCORE_TOLERANCE)
    return (
        float(found.score[0]),
        float(distances[0]),
        float(distances.min()),
        float(same_gripper),
        float(recall),
    )


def _duplicates(store: MemoryStore, steps: Hits) -> int:
    rows = (store.vectors(np.array([row]))[0].tobytes() for row in steps.row)
    return len(steps) - len({hash(row) for row in rows})
