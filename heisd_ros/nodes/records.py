"""Messages that record what happened: decode reports, episode statuses, diagnostics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from heisd_ros.decode.pilot import Decision
from heisd_ros.msg import DecodeReport as DecodeReportMsg
from heisd_ros.msg import EpisodeStatus
from heisd_ros.nodes.conversions import to_array, to_stamp
from heisd_ros.types import DecodeReport, DraftKind

EPISODE_END = "episode_end"
"""Reason of the report that acknowledges a finished episode; its image stamp is the status's."""

UNKNOWN = dict.fromkeys(("fused", "top_score", "spread", "gripper_consensus"), math.nan)
"""Numbers of a report that are not known where nothing was decided."""


def decision_to_report(decision: Decision, stamp_ns: int, sequence: int) -> DecodeReportMsg:
    """Return the record of a decision, stamped like its twist."""
    message = DecodeReportMsg(
        instruction=decision.observation.instruction,
        sequence=sequence,
        decided=decision.moves,
        guard=",".join(decision.guard),
        **UNKNOWN,
        reason=decision.reason,
    )
    message.header.stamp = to_stamp(stamp_ns)
    message.header.frame_id = decision.command.frame_id
    message.image_stamp = to_stamp(decision.observation.stamp_ns)
    if decision.result is not None:
        _fill_report(message, decision)
    return message


def episode_end_report(status_ns: int, stamp_ns: int) -> DecodeReportMsg:
    """Return the acknowledgement that the episode of this status is closed."""
    message = DecodeReportMsg(reason=EPISODE_END, **UNKNOWN)
    message.header.stamp = to_stamp(stamp_ns)
    message.image_stamp = to_stamp(status_ns)
    return message


def message_to_report(message: DecodeReportMsg) -> DecodeReport:
    """Return the record of a decision in a message."""
    return DecodeReport(
        kind=DraftKind(message.kind or DraftKind.AR.value),
        skipped=message.skipped,
        accept_length=message.accept_length,
        forwards=message.forwards,
        stage_ms=dict(zip(message.stage, message.stage_ms, strict=False)),
        fused=message.fused,
        nodes=message.nodes,
        top_score=message.top_score,
        reason=message.reason,
        scores=tuple(message.scores),
        spread=message.spread,
        gripper_consensus=message.gripper_consensus,
    )


def to_diagnostics(
    name: str, level: bytes, message: str, values: Mapping[str, object], stamp_ns: int
) -> DiagnosticArray:
    """Return one status with its key-value pairs."""
    pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
    status = DiagnosticStatus(
        level=level, name=name, message=message, hardware_id="heisd_ros", values=pairs
    )
    result = DiagnosticArray(status=[status])
    result.header.stamp = to_stamp(stamp_ns)
    return result


def to_episode_status(stamp_ns: int, **fields: Any) -> EpisodeStatus:  # noqa: ANN401
    """Return an episode status of these fields, stamped."""
    message = EpisodeStatus(**fields)
    message.header.stamp = to_stamp(stamp_ns)
    return message


def _fill_report(message: DecodeReportMsg, decision: Decision) -> None:
    if decision.result is None:
        return
    report, action = decision.result.report, decision.result.action
    message.kind, message.skipped = report.kind.value, bool(report.skipped)
    message.accept_length, message.forwards = float(report.accept_length), int(report.forwards)
    message.nodes = int(report.nodes)
    message.fused, message.top_score = float(report.fused), float(report.top_score)
    message.scores = to_array("d", report.scores)
    message.spread = float(report.spread)
    message.gripper_consensus = float(report.gripper_consensus)
    message.stage = list(report.stage_ms)
    message.stage_ms = to_array("d", list(report.stage_ms.values()))
    if np.shape(action.tokens) == message.tokens.shape:
        message.tokens = np.asarray(action.tokens, dtype=np.int32)
    if np.shape(action.values) == message.action.shape:
        message.action = np.asarray(action.values, dtype=np.float64)
