"""From the episode files of an evaluation to its figures: per task and method, and in pairs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from heisd_ros.decode.methods import METHODS
from heisd_ros.decode.report import summarise
from heisd_ros.errors import DataError
from heisd_ros.offline.evaluation_plan import EPISODES, RUN_FILE, split_label
from heisd_ros.offline.intervals import mcnemar, wilson
from heisd_ros.offline.latency_model import DeviceProfile, project_step
from heisd_ros.offline.records import EpisodeRecord, StepRecord, read_records
from heisd_ros.offline.results import ALL_TASKS, BASE, Deviation, Pair, Results, Row
from heisd_ros.types import ACTION_DIM, FloatArray, IntArray

OVERHEAD_MS = 10.0
"""Our overhead from camera to twist, bounded from above: see bench/node_latency.py."""

GRIPPER_FLIP = 64
"""Open and closed are 128 bins apart: from half of that on, the gripper does something else."""


def summarise_run(
    folder: Path, profile: DeviceProfile | None = None, *, overhead_ms: float = OVERHEAD_MS
) -> Results:
    """Read a run's folder and return its figures.

    Args:
        folder: Of the run.
        profile: Device that the steps are projected onto.
        overhead_ms: Overhead of a second projection, in place of the profile's.

    Raises:
        DataError: If the folder holds no run.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise DataError(f"{folder} holds no {RUN_FILE}; make one with `heisd evaluate`")
    about = json.loads(path.read_text(encoding="utf-8"))
    records = list(read_records(folder / EPISODES))
    if not records:
        raise DataError(f"{folder} holds no episode yet; run `heisd evaluate` on it again")
    methods = _in_order(record.key.method for record in records)
    tasks = sorted({record.key.task for record in records})
    rows = []
    for task in (ALL_TASKS, *tasks):
        for method in methods:
            chosen = [
                r for r in records if r.key.method == method and task in (ALL_TASKS, r.key.task)
            ]
            if chosen:
                row = row_of(task, method, chosen, records, profile)
                lean = _projected(method, chosen, _with_overhead(profile, overhead_ms))
                rows.append(dataclasses.replace(row, lean_ms=lean))
    return Results(
        settings=about["settings"],
        runs=about["runs"],
        instructions={record.key.task: record.instruction for record in records},
        profile=profile.name if profile else "",
        overhead_ms=overhead_ms,
        rows=rows,
        pairs=[pair_of(method, records) for method in methods if method != BASE],
    )


def row_of(
    task: int,
    method: str,
    chosen: Sequence[EpisodeRecord],
    everything: Sequence[EpisodeRecord],
    profile: DeviceProfile | None,
) -> Row:
    """Return the figures of some episodes of one method."""
    ended = [record for record in chosen if not record.crash]
    solved = [record for record in ended if record.success]
    interval = wilson(len(solved), len(ended))
    steps = [row for record in ended for row in record.rows]
    summary = summarise([row.report for row in steps])
    return Row(
        task=task,
        method=method,
        episodes=len(ended),
        successes=len(solved),
        low=interval.low,
        high=interval.high,
        crashes=len(chosen) - len(ended),
        steps=_mean([record.steps for record in ended]),
        success_steps=_mean([record.steps for record in solved]),
        forwards=summary.forwards_per_step,
        accept_length=summary.accept_length,
        skip_share=summary.skip_share,
        mode_share=summary.mode_share,
        p50_ms=summary.total_ms_p50,
        p99_ms=summary.total_ms_p99,
        projected_ms=_projected(method, chosen, profile),
        deviation=deviation_of(steps),
        unverified_share=_mean([row.report.unverified for row in steps]) / ACTION_DIM,
        same_as_base=_same_as_base(method, ended, everything),
    )


def deviation_of(steps: Sequence[StepRecord]) -> Deviation | None:
    """Return how far the executed tokens are from the shadow's; None without a shadow."""
    asked = [row for row in steps if len(row.shadow_tokens)]
    if not asked:
        return None
    bias: IntArray = np.array([np.abs(row.tokens - row.shadow_tokens) for row in asked])
    apart: FloatArray = np.array([row.values - row.shadow_values for row in asked])
    largest = bias[:, :6].max(axis=1)
    return Deviation(
        steps=len(asked),
        equal_share=float((bias == 0).all(axis=1).mean()),
        l1=float(bias[:, :6].sum(axis=1).mean()),
        linf=float(largest.mean()),
        linf_p95=float(np.percentile(largest, 95)),
        gripper_share=float((bias[:, 6] >= GRIPPER_FLIP).mean()),
        translation=float(np.linalg.norm(apart[:, 0:3], axis=1).mean()),
        rotation=float(np.linalg.norm(apart[:, 3:6], axis=1).mean()),
    )


def pair_of(method: str, records: Sequence[EpisodeRecord]) -> Pair:
    """Return a method's successes against `BASE`'s from the same initial states."""
    ours, base = _outcomes(method, records), _outcomes(BASE, records)
    both = sorted(ours.keys() & base.keys())
    only_base = sum(base[key] and not ours[key] for key in both)
    only_method = sum(ours[key] and not base[key] for key in both)
    return Pair(method, len(both), only_base, only_method, mcnemar(only_base, only_method))


def _projected(
    method: str, chosen: Sequence[EpisodeRecord], profile: DeviceProfile | None
) -> float:
    known = METHODS.get(split_label(method)[0])
    if profile is None or known is None:
        return math.nan
    steps = [row.report for record in chosen if not record.crash for row in record.rows]
    return _mean([project_step(report, profile, known) for report in steps])


def _with_overhead(profile: DeviceProfile | None, overhead_ms: float) -> DeviceProfile | None:
    return None if profile is None else dataclasses.replace(profile, overhead=overhead_ms)


def _same_as_base(
    method: str, ended: Sequence[EpisodeRecord], everything: Sequence[EpisodeRecord]
) -> int:
    if split_label(method)[0] not in METHODS:
        return -1
    base = {
        (record.key.task, record.key.init): record
        for record in everything
        if record.key.method == BASE and not record.crash
    }
    pairs = [(r, base[r.key.task, r.key.init]) for r in ended if (r.key.task, r.key.init) in base]
    return sum(_same_tokens(ours, theirs) for ours, theirs in pairs) if pairs else -1


def _same_tokens(first: EpisodeRecord, second: EpisodeRecord) -> bool:
    if len(first.rows) != len(second.rows):
        return False
    pairs = zip(first.rows, second.rows, strict=True)
    return all(np.array_equal(one.tokens, other.tokens) for one, other in pairs)


def _outcomes(method: str, records: Sequence[EpisodeRecord]) -> dict[tuple[int, int], bool]:
    return {
        (record.key.task, record.key.init): record.success
        for record in records
        if record.key.method == method and not record.crash
    }


def _in_order(labels: Iterable[str]) -> list[str]:
    """Return each label once: `BASE` first, then the methods in their own order, then others."""
    order = [BASE, *METHODS]
    known = set(labels)

    def rank(label: str) -> tuple[int, str]:
        name = split_label(label)[0]
        return (order.index(name) if name in order else len(order), label)

    return sorted(known, key=rank)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
