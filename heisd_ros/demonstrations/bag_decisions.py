"""What a bag says about decisions and episodes: reports joined with the commands of their stamp."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heisd_ros.demonstrations.bag_files import BagMessage
from heisd_ros.errors import DataError
from heisd_ros.types import DecodeReport, DraftKind, FloatArray, IntArray

SECOND_NS = 1_000_000_000
EPISODE_END = "episode_end"
"""Reason of the report that only acknowledges the end of an episode; it is no decision."""


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One decode report of a bag with the commands of its stamp.

    Attributes:
        image_ns: Stamp of the oldest picture it was decided from.
        stamp_ns: Stamp of the report and its commands.
        instruction: The instruction it was decided for.
        decided: False when the command is zero.
        report: How it was decoded.
        guard: What the command guard changed or refused.
        tokens: int64 (7,).
        action: float64 (7,), model units.
        twist: float64 (6,), m/s and rad/s, nan if no twist of this stamp was recorded.
        opening: Commanded opening [0, 1], nan likewise.
    """

    image_ns: int
    stamp_ns: int
    instruction: str
    decided: bool
    report: DecodeReport
    guard: str
    tokens: IntArray
    action: FloatArray
    twist: FloatArray
    opening: float


@dataclass(frozen=True, slots=True)
class RecordedStatus:
    """One episode status of a bag; fields as in the message."""

    stamp_ns: int
    suite: str
    task: int
    init: int
    instruction: str
    step: int
    success: bool
    done: bool
    reason: str


def read_decisions(
    reports: Sequence[BagMessage], twists: Sequence[BagMessage], grippers: Sequence[BagMessage]
) -> list[RecordedDecision]:
    """Return the decisions in the order of their reports, each with the commands of its stamp.

    Raises:
        DataError: If a report names a draft source that this version does not know.
    """
    twist_at = {stamp_of(message): message.content.twist for message in twists}
    opening_at = {stamp_of(message): float(message.content.opening) for message in grippers}
    decisions = []
    for message in reports:
        content, stamp_ns = message.content, stamp_of(message)
        if content.reason == EPISODE_END:
            continue
        decisions.append(
            RecordedDecision(
                image_ns=to_ns(content.image_stamp),
                stamp_ns=stamp_ns,
                instruction=content.instruction,
                decided=bool(content.decided),
                report=_report(content),
                guard=content.guard,
                tokens=np.asarray(content.tokens, dtype=np.int64),
                action=np.asarray(content.action, dtype=np.float64),
                twist=velocities(twist_at.get(stamp_ns)),
                opening=opening_at.get(stamp_ns, math.nan),
            )
        )
    return decisions


def _report(content: Any) -> DecodeReport:  # noqa: ANN401  (a message)
    return DecodeReport(
        kind=_kind(content.kind),
        skipped=bool(content.skipped),
        accept_length=float(content.accept_length),
        forwards=int(content.forwards),
        stage_ms={
            name: float(value) for name, value in zip(content.stage, content.stage_ms, strict=False)
        },
        fused=float(content.fused),
        nodes=int(content.nodes),
        top_score=float(content.top_score),
        reason=content.reason,
        # Bags of older versions have none of these.
        scores=tuple(float(score) for score in getattr(content, "scores", ())),
        spread=float(getattr(content, "spread", math.nan)),
        gripper_consensus=float(getattr(content, "gripper_consensus", math.nan)),
    )


def _kind(name: str) -> DraftKind:
    known = [kind.value for kind in DraftKind]
    if name and name not in known:
        raise DataError(
            f"a decode report names draft source {name!r}, expected one of {', '.join(known)}; "
            "read the bag with the version that recorded it"
        )
    return DraftKind(name or DraftKind.AR.value)


def velocities(twist: Any) -> FloatArray:  # noqa: ANN401  (geometry_msgs/Twist or None)
    """Return linear and angular velocity (6,), m/s and rad/s; nan for None."""
    if twist is None:
        return np.full(6, math.nan)
    linear, angular = twist.linear, twist.angular
    return np.array([linear.x, linear.y, linear.z, angular.x, angular.y, angular.z])


def read_status(message: BagMessage) -> RecordedStatus:
    """Return an episode status."""
    names = [item.name for item in dataclasses.fields(RecordedStatus) if item.name != "stamp_ns"]
    return RecordedStatus(
        stamp_of(message), **{name: getattr(message.content, name) for name in names}
    )


def stamp_of(message: BagMessage) -> int:
    """Return the header's stamp, nanoseconds; the time of reception where it is not set."""
    return to_ns(message.content.header.stamp) or message.log_ns


def to_ns(stamp: Any) -> int:  # noqa: ANN401  (builtin_interfaces/Time)
    """Return a message stamp in nanoseconds."""
    return int(stamp.sec) * SECOND_NS + int(stamp.nanosec)
