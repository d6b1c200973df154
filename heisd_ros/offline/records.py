"""What an evaluation leaves behind: one file per episode, one row per decoded step.

A file is written once, whole, when its episode has ended. That makes an evaluation resumable: an
episode whose file exists is not run again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.errors import DataError, MissingDependencyError
from heisd_ros.files import whole_file
from heisd_ros.types import DecodeReport, DraftKind, FloatArray, IntArray, TrajectoryMetric

STAGES = ("vision", "draft", "prefill", "decode", "total")
"""Stages of a step, in order of time; see `decode/policy.py`."""

SUFFIX = ".parquet"
_META = b"episode"
_INSTALL = "pyarrow is needed for the records of an evaluation: pip install 'heisd_ros[report]'"


@dataclass(frozen=True, slots=True)
class EpisodeKey:
    """Which episode: the same (suite, task, init) is the same initial state for every method."""

    suite: str
    task: int
    init: int
    method: str

    @property
    def file_name(self) -> str:
        """Name of the episode's file."""
        return f"{self.suite}-task{self.task:02d}-init{self.init:02d}-{self.method}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One decoded step.

    Attributes:
        report: How it was decoded.
        tokens: int64 (7,), what was executed.
        values: float64 (7,), the same in action units.
        position: float64 (3,), measured end-effector position before the step, metres.
        metric: Kinematics of the window; None without a measured pose.
        shadow_tokens: int64 (7,), what autoregression would have done on the very same
            observation, or (0,) if it was not asked.
        shadow_values: float64 (7,), the same in action units, or (0,).
    """

    report: DecodeReport
    tokens: IntArray
    values: FloatArray
    position: FloatArray
    metric: TrajectoryMetric | None
    shadow_tokens: IntArray
    shadow_values: FloatArray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One finished episode.

    Attributes:
        key: Which one.
        instruction: The task in words.
        success: Whether the task was solved.
        steps: Control steps executed.
        crash: Text of the exception that ended it, else empty; such an episode is no failure.
        wall_s: Seconds it took.
        rows: Its steps.
    """

    key: EpisodeKey
    instruction: str
    success: bool
    steps: int
    crash: str
    wall_s: float
    rows: tuple[StepRecord, ...] = ()


def write_record(folder: Path, record: EpisodeRecord) -> Path:
    """Write one episode; a reader sees the whole file or none of it."""
    arrow, parquet = _arrow()
    facts = {**asdict(record.key), **_facts(record)}
    table = arrow.Table.from_pylist(
        [_to_row(number, row) for number, row in enumerate(record.rows)], schema=_schema(arrow)
    ).replace_schema_metadata({_META: json.dumps(facts).encode()})
    path = folder / record.key.file_name
    with whole_file(path) as stream:
        parquet.write_table(table, stream)
    return path


def read_record(path: Path, *, rows: bool = True) -> EpisodeRecord:
    """Read one episode.

    Args:
        path: A file of `write_record`.
        rows: False leaves the steps out, which is much faster.

    Raises:
        DataError: If it is not such a file.
    """
    arrow, parquet = _arrow()
    try:
        facts = json.loads(parquet.read_schema(path).metadata[_META])
        content = parquet.read_table(path).to_pylist() if rows else []
        key = EpisodeKey(*(facts.pop(name) for name in ("suite", "task", "init", "method")))
        return EpisodeRecord(key=key, rows=tuple(map(_from_row, content)), **facts)
    except (arrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not an episode record: {error}; delete it and run the evaluation again"
        ) from error


def read_records(folder: Path, *, rows: bool = True) -> Iterator[EpisodeRecord]:
    """Yield all episodes of a folder in the order of their file names."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield read_record(path, rows=rows)


def _facts(record: EpisodeRecord) -> dict[str, Any]:
    names = ("instruction", "success", "steps", "crash", "wall_s")
    return {name: getattr(record, name) for name in names}


def _to_row(number: int, record: StepRecord) -> dict[str, Any]:
    report, metric = record.report, record.metric
    row: dict[str, Any] = {
        "step": number,
        "kind": report.kind.value,
        "skipped": bool(report.skipped),
        "accept_length": float(report.accept_length),
        "forwards": int(report.forwards),
        "nodes": int(report.nodes),
        "prefill_nodes": int(report.prefill_nodes),
        "unverified": int(report.unverified),
        "top_score": float(report.top_score),
        "reason": report.reason,
        "vetoes": list(report.vetoes),
        "scores": list(report.scores),
        "spread": float(report.spread),
        "gripper_consensus": float(report.gripper_consensus),
        "fused": float(report.fused),
        "tokens": [int(token) for token in record.tokens],
        "values": [float(value) for value in record.values],
        "position": [float(value) for value in record.position],
        "shadow_tokens": [int(token) for token in record.shadow_tokens],
        "shadow_values": [float(value) for value in record.shadow_values],
    }
    row.update({f"{stage}_ms": report.stage_ms.get(stage, math.nan) for stage in STAGES})
    for name in ("curvature_radius", "displacement", "straightness", "speed"):
        row[name] = float(getattr(metric, name)) if metric else math.nan
    row["samples"] = metric.samples if metric else 0
    return row


def _from_row(row: dict[str, Any]) -> StepRecord:
    stages = {stage: row[f"{stage}_ms"] for stage in STAGES}
    report = DecodeReport(
        kind=DraftKind(row["kind"]),
        skipped=row["skipped"],
        accept_length=row["accept_length"],
        forwards=row["forwards"],
        stage_ms={stage: value for stage, value in stages.items() if not math.isnan(value)},
        fused=row["fused"],
        nodes=row["nodes"],
        top_score=row["top_score"],
        reason=row["reason"],
        prefill_nodes=row["prefill_nodes"],
        unverified=row["unverified"],
        # Older records have none of these.
        vetoes=tuple(row.get("vetoes") or ()),
        scores=tuple(row.get("scores") or ()),
        spread=row.get("spread", math.nan),
        gripper_consensus=row.get("gripper_consensus", math.nan),
    )
    metric = TrajectoryMetric(
        row["curvature_radius"],
        row["displacement"],
        row["fused"],
        row["straightness"],
        row["speed"],
        row["samples"],
    )
    return StepRecord(
        report,
        np.array(row["tokens"], dtype=np.int64),
        np.array(row["values"], dtype=np.float64),
        np.array(row["position"], dtype=np.float64),
        metric if row["samples"] else None,
        np.array(row["shadow_tokens"], dtype=np.int64),
        np.array(row["shadow_values"], dtype=np.float64),
    )


def _schema(arrow: Any) -> Any:  # noqa: ANN401  (pyarrow has no types)
    numbers = ["accept_length", "top_score", "fused", *(f"{stage}_ms" for stage in STAGES)]
    numbers += ["curvature_radius", "displacement", "straightness", "speed"]
    numbers += ["spread", "gripper_consensus"]
    whole = ["step", "forwards", "nodes", "prefill_nodes", "unverified", "samples"]
    fields = [(name, arrow.int32()) for name in whole]
    fields += [(name, arrow.float64()) for name in numbers]
    fields += [("kind", arrow.string()), ("reason", arrow.string()), ("skipped", arrow.bool_())]
    fields += [(name, arrow.list_(arrow.int32())) for name in ("tokens", "shadow_tokens")]
    fields += [
        (name, arrow.list_(arrow.float64()))
        for name in ("values", "position", "shadow_values", "scores")
    ]
    fields.append(("vetoes", arrow.list_(arrow.string())))
    return arrow.schema(fields)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(_INSTALL) from error
    return pyarrow, parquet
