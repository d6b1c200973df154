"""What a run says about itself; the accept length is defined here and nowhere else.

**Accept length** of a step: the tokens gained per forward that verified a draft, that is the
accepted draft tokens plus the target's own next token. It is 1 when nothing was accepted and 7 when
the whole action came out of one forward. A forward without a draft (one token per forward) is not
counted, neither are skipped steps, which have no verification: their share stands beside it. A step
without any draft has accept length 1. The published code counts otherwise (7 for an unverified
step, which inflates its mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.gripper import BORDER
from heisd_ros.types import ACTION_DIM, DecodeReport, Draft, DraftKind, Verified
from heisd_ros.verify.verify_skip import spread


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts the forwards of one action.

    Attributes:
        forwards: Forward passes of the target.
        drafted: Those that verified a draft.
        gained: Tokens gained by those.
        nodes: Draft nodes verified.
    """

    forwards: int = 0
    drafted: int = 0
    gained: int = 0
    nodes: int = 0

    def add(self, verified: Verified) -> Tally:
        """Count one forward; what was known at the root is no draft and no gain."""
        nodes = len(verified.tree) - verified.known
        gained = verified.accepted.accept_length - verified.known
        return Tally(
            forwards=self.forwards + 1,
            drafted=self.drafted + (nodes > 0),
            gained=self.gained + (gained if nodes > 0 else 0),
            nodes=self.nodes + nodes,
        )

    @property
    def accept_length(self) -> float:
        """Tokens gained per forward that verified a draft; 1 if none did."""
        return self.gained / self.drafted if self.drafted else 1.0


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What the neighbours of a draft say together; the fields of the same name in `DecodeReport`.

    Attributes:
        scores: Similarity of each, best first.
        spread: Half ranges of their position tokens, summed, in bins; nan without neighbours.
        gripper_consensus: Share that want the gripper as the best one does; nan without neighbours.
    """

    scores: tuple[float, ...] = ()
    spread: float = float("nan")
    gripper_consensus: float = float("nan")

    @property
    def top_score(self) -> float:
        """Best similarity, nan without neighbours."""
        return self.scores[0] if self.scores else float("nan")

    @classmethod
    def of(cls, draft: Draft) -> Neighbourhood:
        """Return what was retrieved of a draft; other sources' chains in it do not count."""
        if not len(draft.scores):
            return cls()
        opens = draft.actions[: len(draft.scores), ACTION_DIM - 1] > BORDER
        return cls(
            scores=tuple(float(score) for score in draft.scores),
            spread=spread(draft),
            gripper_consensus=float(np.mean(opens == opens[0])),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a set of decoded steps.

    Attributes:
        steps: Number of steps.
        forwards_per_step: Mean forward passes of the target.
        accept_length: Mean over verified steps that had a draft, nan if there was none.
        skip_share: Share of steps executed without verification, [0, 1].
        mode_share: Share of steps per draft kind, [0, 1].
        total_ms_p50: Median time of a step, image in to action out, milliseconds.
        total_ms_p99: 99th percentile of the same.
        stage_ms: Mean milliseconds per stage.
    """

    steps: int
    forwards_per_step: float
    accept_length: float
    skip_share: float
    mode_share: dict[str, float]
    total_ms_p50: float
    total_ms_p99: float
    stage_ms: dict[str, float]


def summarise(reports: Sequence[DecodeReport]) -> Summary:
    """Return the figures of these steps; nan where there is nothing to average."""
    drafted = [r.accept_length for r in reports if not r.skipped and r.nodes]
    totals = [r.stage_ms.get("total", float("nan")) for r in reports]
    stages = sorted({stage for r in reports for stage in r.stage_ms})
    return Summary(
        steps=len(reports),
        forwards_per_step=_mean([r.forwards for r in reports]),
        accept_length=_mean(drafted),
        skip_share=_mean([r.skipped for r in reports]),
        mode_share={k.value: _mean([r.kind is k for r in reports]) for k in DraftKind if reports},
        total_ms_p50=float(np.percentile(totals, 50)) if totals else float("nan"),
        total_ms_p99=float(np.percentile(totals, 99)) if totals else float("nan"),
        stage_ms={s: _mean([r.stage_ms.get(s, 0.0) for r in reports]) for s in stages},
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
