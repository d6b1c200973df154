"""The figures of an evaluation, and their JSON file."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heisd_ros.errors import DataError

BASE = "ar"
"""The method that the others are compared with."""

RESULTS_FILE = "results.json"
ALL_TASKS = -1
"""`Row.task` of the row over all tasks."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far executed actions are from autoregression's on the very same observations.

    Attributes:
        steps: Steps compared.
        equal_share: Steps with seven equal tokens, [0, 1].
        l1: Mean of the summed bias of the six continuous tokens, bins.
        linf: Mean of the largest bias of the six continuous tokens, bins.
        linf_p95: 95th percentile of the same, bins.
        gripper_share: Steps in which the gripper does something else, [0, 1].
        translation: Mean distance of the translations (x, y, z), action units.
        rotation: Mean distance of the rotations (rx, ry, rz), action units.
    """

    steps: int
    equal_share: float
    l1: float
    linf: float
    linf_p95: float
    gripper_share: float
    translation: float = math.nan
    rotation: float = math.nan


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one method on one task, or on all.

    Attributes:
        task: Task number, `ALL_TASKS` for the row over all.
        method: Label of the method.
        episodes: Episodes that ended in success or failure.
        successes: Episodes that solved the task.
        low: Lower bound of the success rate, Wilson 95 %.
        high: Upper bound of the success rate.
        crashes: Episodes that ended in an exception; in no other figure of the row.
        steps: Mean control steps of an episode.
        success_steps: Mean control steps of the successful ones, nan if none.
        forwards: Mean forwards of the target per step.
        accept_length: As defined in `decode/report.py`, nan without verified drafts.
        skip_share: Steps executed without verification, [0, 1].
        mode_share: Share of steps per draft kind, [0, 1].
        p50_ms: Median time of a step on the machine of the run.
        p99_ms: 99th percentile of the same.
        projected_ms: Mean time of a step by the device profile, nan without one.
        deviation: From autoregression; None if it was not asked.
        same_as_base: Episodes with exactly the tokens of `BASE`'s episode from the same initial
            state, or -1 if none can be compared.
        lean_ms: `projected_ms` with `Results.overhead_ms` in place of the profile's overhead.
        unverified_share: Executed tokens that the target did not decide, [0, 1].
    """

    task: int
    method: str
    episodes: int
    successes: int
    low: float
    high: float
    crashes: int
    steps: float
    success_steps: float
    forwards: float
    accept_length: float
    skip_share: float
    mode_share: dict[str, float]
    p50_ms: float
    p99_ms: float
    projected_ms: float
    deviation: Deviation | None
    same_as_base: int
    lean_ms: float = math.nan
    unverified_share: float = math.nan


@dataclass(frozen=True, slots=True)
class Pair:
    """A method against `BASE` on the initial states that both ended without a crash.

    Attributes:
        method: Label of the method.
        pairs: Initial states compared.
        only_base: Solved by `BASE` alone.
        only_method: Solved by the method alone.
        p: Exact two-sided p of McNemar's test.
    """

    method: str
    pairs: int
    only_base: int
    only_method: int
    p: float


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a results page needs.

    Attributes:
        settings: Of the run, see `run.json`.
        runs: Provenance of every call that added episodes.
        instructions: Task number -> the task in words.
        profile: Name of the device profile of `projected_ms`, empty without one.
        rows: Methods over all tasks first, then task by task.
        pairs: Every other method against `BASE`.
        overhead_ms: What a step costs outside the model in `Row.lean_ms`.
    """

    settings: dict[str, Any]
    runs: list[dict[str, Any]]
    instructions: dict[int, str]
    profile: str
    rows: list[Row]
    pairs: list[Pair]
    overhead_ms: float = math.nan


def write_results(results: Results, path: Path) -> None:
    """Write the figures as JSON; what does not exist becomes null."""
    text = json.dumps(_without_nan(asdict(results)), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_results(path: Path) -> Results:
    """Read what `write_results` wrote.

    Raises:
        DataError: If it is not such a file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        instructions = {int(task): text for task, text in content.pop("instructions").items()}
        rows = [_row(row) for row in content.pop("rows")]
        pairs = [Pair(**pair) for pair in content.pop("pairs")]
        return Results(instructions=instructions, rows=rows, pairs=pairs, **content)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} holds no results: {error}; run `heisd evaluate` again") from error


def _row(values: dict[str, Any]) -> Row:
    deviation = values.pop("deviation")
    numbers: dict[str, Any] = {k: math.nan if v is None else v for k, v in values.items()}
    return Row(deviation=Deviation(**deviation) if deviation else None, **numbers)


def _without_nan(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(entry) for entry in value]
    return value
