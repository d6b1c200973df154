"""Learns the thresholds of verify-skip from judged tracks, and tests them on held-out episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heisd_ros.errors import DataError
from heisd_ros.offline.skip_tracks import SkipTrack
from heisd_ros.types import BoolArray, FloatArray
from heisd_ros.verify.audit import clopper_pearson_upper
from heisd_ros.verify.skip_table import Learned, SkipCalibration, SkipTable
from heisd_ros.verify.skip_thresholds import (
    SkipThresholds,
    learn_calibrated,
    learn_distance,
    learn_paper,
)

WINDOW = 15
"""L: a pair is at most this many steps apart."""

HOLD_OUT_EVERY = 5
"""Every fifth episode of a task tests what the others taught."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs (i, j) of steps of one track, i before j.

    Attributes:
        similarity: float64 (n,), cosine of the features.
        distance: float64 (n,), metres.
        acceptable: bool (n,), of the later step's draft.
        eligible: bool (n,), of the later step.
    """

    similarity: FloatArray
    distance: FloatArray
    acceptable: BoolArray
    eligible: BoolArray


def pairs_of(tracks: Sequence[SkipTrack], window: int = WINDOW) -> Pairs:
    """Return all pairs of each track that are at most `window` steps apart."""
    columns: list[tuple[FloatArray, FloatArray, BoolArray, BoolArray]] = []
    for track in tracks:
        norms = np.linalg.norm(track.features, axis=1, keepdims=True)
        unit = np.float64(track.features) / np.maximum(norms, 1e-30)
        for apart in range(1, min(window, len(track) - 1) + 1):
            first, later = slice(0, -apart), slice(apart, None)
            columns.append(
                (
                    np.einsum("ij,ij->i", unit[first], unit[later]),
                    np.linalg.norm(track.positions[first] - track.positions[later], axis=1),
                    track.acceptable[later],
                    track.eligible[later],
                )
            )
    if not columns:
        raise DataError("expected demonstrations of at least 2 steps, got none")
    return Pairs(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def learn(
    suite: str, tracks: Sequence[SkipTrack], *, floor: float = 0.90, error: float = 0.05
) -> SkipCalibration:
    """Learn both ways, for each task and for all together.

    Args:
        suite: Its name.
        tracks: Judged demonstrations.
        floor: T.
        error: Largest share of unacceptable pairs, for the calibrated way.
    """
    tasks = sorted({track.task for track in tracks})
    groups = {task: [t for t in tracks if t.task == task] for task in tasks}
    held = {task: group[HOLD_OUT_EVERY // 2 :: HOLD_OUT_EVERY] for task, group in groups.items()}
    fit = {t: [k for k in g if not any(k is h for h in held[t])] for t, g in groups.items()}
    tables: dict[str, SkipTable] = {}
    tests: dict[str, Any] = {}
    for name, way in _ways(floor, error).items():
        known = {task: way(pairs_of(fit[task])) for task in tasks}
        tables[name] = SkipTable(way(pairs_of(_joined(fit))), known)
        tests[name] = {
            "default": held_out(tables[name].default, _joined(held)),
            "tasks": {task: held_out(known[task], held[task]) for task in tasks},
        }
    facts = {
        "floor": floor,
        "max_error": error,
        "window": WINDOW,
        "episodes": len(tracks),
        "steps": sum(map(len, tracks)),
        "acceptable_share": _share(tracks, eligible=False),
        "eligible_share": float(np.mean(np.concatenate([t.eligible for t in tracks]))),
        "acceptable_share_of_eligible": _share(tracks, eligible=True),
        "held_out": tests,
    }
    return SkipCalibration(suite, tables, facts)


def learn_bounds(pairs: Pairs, *, floor: float, error: float) -> SkipThresholds:
    """Learn from eligible pairs; the distance must hold by itself too, where no feature is stored.

    Raises:
        DataError: If nothing can be learned within the error.
    """
    use = pairs.eligible
    s, d, ok = pairs.similarity[use], pairs.distance[use], pairs.acceptable[use]
    both = learn_calibrated(s, d, ok, error=error, floor=floor)
    alone = learn_distance(d, ok, error=error)
    return dataclasses.replace(both, max_distance=min(both.max_distance, alone))


def held_out(known: Learned, tracks: Sequence[SkipTrack]) -> dict[str, Any]:
    """Return how often the thresholds were wrong on tracks that did not teach them.

    `distance`: predicate A alone; `distance_and_feature`: A and B. The bound treats the pairs of an
    episode as independent, which they are not.
    """
    if known is None or not tracks:
        return {}
    pairs = pairs_of(tracks)
    near = pairs.eligible & (pairs.distance <= known.max_distance)
    alike = near & (pairs.similarity >= known.min_similarity)
    return {
        "distance": _errors(near, pairs),
        "distance_and_feature": _errors(alike, pairs),
    }


def _ways(floor: float, error: float) -> dict[str, Callable[[Pairs], Learned]]:
    def paper(pairs: Pairs) -> SkipThresholds:
        return learn_paper(pairs.similarity, pairs.distance, pairs.acceptable, floor=floor)

    def calibrated(pairs: Pairs) -> SkipThresholds:
        return learn_bounds(pairs, floor=floor, error=error)

    return {"paper": _or_none(paper), "calibrated": _or_none(calibrated)}


def _or_none(way: Callable[[Pairs], SkipThresholds]) -> Callable[[Pairs], Learned]:
    """Return the same way of learning, None where the data allow no skip."""

    def learned(pairs: Pairs) -> Learned:
        try:
            return way(pairs)
        except DataError:
            return None

    return learned


def _errors(chosen: BoolArray, pairs: Pairs) -> dict[str, float]:
    count = int(chosen.sum())
    bad = int((chosen & ~pairs.acceptable).sum())
    return {
        "pairs": count,
        "unacceptable": bad,
        "upper_95": round(clopper_pearson_upper(bad, count), 4),
    }


def _joined(groups: dict[str, list[SkipTrack]]) -> list[SkipTrack]:
    return [track for group in groups.values() for track in group]


def _share(tracks: Sequence[SkipTrack], *, eligible: bool) -> float:
    ok = np.concatenate([track.acceptable for track in tracks])
    use = np.concatenate([track.eligible for track in tracks])
    chosen = ok[use] if eligible else ok
    return float(np.mean(chosen)) if len(chosen) else float("nan")
