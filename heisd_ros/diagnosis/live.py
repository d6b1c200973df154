"""The state behind the live view: what was decided in the last minute, without ROS."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field

from heisd_ros.types import DecodeReport

MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """One decision as it was reported.

    Attributes:
        at_ns: Time of arrival, nanoseconds of a steady clock.
        report: How it was decoded.
        decided: False: there was no action, the command is zero.
        picture_age_s: Command stamp minus picture stamp, seconds.
        instruction: The task in words.
        guard: What the guard changed or refused, machine words separated by commas.
    """

    at_ns: int
    report: DecodeReport
    decided: bool
    picture_age_s: float
    instruction: str = ""
    guard: str = ""


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """One diagnostic status: level 0 ok, 1 warn, 2 error, 3 stale."""

    level: int
    text: str
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """The last minute in figures; nan or 0 where there was nothing.

    Attributes:
        decisions: Decisions.
        hz: Decisions per second, from the first to the last.
        forwards: Mean forward passes of the target per decision.
        accept_length: Mean tokens gained per verification, of decisions that verified a draft.
        skipped: Share executed without verification, [0, 1].
        stage_ms: Mean wall time per stage, ms.
        modes: Draft source or `skipped` -> decisions.
        reasons: Why it fell back or stopped -> decisions.
        guard: What the guard did -> decisions.
    """

    decisions: int
    hz: float
    forwards: float
    accept_length: float
    skipped: float
    stage_ms: dict[str, float]
    modes: Counter[str]
    reasons: Counter[str]
    guard: Counter[str]


class LiveState:
    """Collects what the topics say. Not thread-safe.

    Attributes:
        threshold: The boundary on F; nan if unknown.
        fused: The newest F, [0, 1]; nan if unknown.
        fused_at_ns: When it came, steady clock; -1 never.
        statuses: Diagnostic status by name.
    """

    def __init__(self, threshold: float = math.nan) -> None:
        """Start empty."""
        self.threshold = threshold
        self.fused = math.nan
        self.fused_at_ns = -1
        self.statuses: dict[str, LiveStatus] = {}
        self._decisions: deque[LiveDecision] = deque()

    @property
    def last(self) -> LiveDecision | None:
        """The newest decision."""
        return self._decisions[-1] if self._decisions else None

    def offer_decision(self, decision: LiveDecision) -> None:
        """Take a decision; what is older than a minute before it is forgotten, but the newest."""
        self._decisions.append(decision)
        while self._decisions[0].at_ns < decision.at_ns - MINUTE_NS:
            self._decisions.popleft()

    def offer_fused(self, fused: float, at_ns: int) -> None:
        """Take the newest F."""
        self.fused, self.fused_at_ns = fused, at_ns

    def offer_status(self, name: str, status: LiveStatus) -> None:
        """Take a diagnostic status."""
        self.statuses[name] = status

    def figures(self, now_ns: int) -> Figures:
        """Return the figures of the minute before `now_ns`."""
        recent = [d for d in self._decisions if now_ns - d.at_ns <= MINUTE_NS]
        moved = [d.report for d in recent if d.decided]
        verified = [r.accept_length for r in moved if r.nodes > 0 and not r.skipped]
        span_s = (recent[-1].at_ns - recent[0].at_ns) * 1e-9 if len(recent) > 1 else 0.0
        words = [word for d in recent for word in d.guard.split(",") if word]
        return Figures(
            decisions=len(recent),
            hz=(len(recent) - 1) / span_s if span_s > 0.0 else 0.0,
            forwards=_mean([float(report.forwards) for report in moved]),
            accept_length=_mean(verified),
            skipped=_mean([float(report.skipped) for report in moved]),
            stage_ms=_stage_means(moved),
            modes=Counter("skipped" if r.skipped else r.kind.value for r in moved),
            reasons=Counter(d.report.reason for d in recent if d.report.reason),
            guard=Counter(words),
        )


def _stage_means(reports: list[DecodeReport]) -> dict[str, float]:
    names = dict.fromkeys(name for report in reports for name in report.stage_ms)
    return {
        name: _mean([r.stage_ms[name] for r in reports if name in r.stage_ms]) for name in names
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
