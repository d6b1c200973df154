"""Adaptive verify-skip, online (HeiSD Algorithm 1).

The features the paper compares are inputs of the target's lm_head, which a skipped step does not
have. A real skip can only use what is known without the target: the distance to the last verified
point (the paper shows that similarity follows it), the retrieval score, and the neighbours' word.
Where the store keeps the feature of each demonstrated step, the best neighbour's is compared with
that of the last verified step as well; without them that predicate is left out, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.action_space.gripper import state_of_token
from heisd_ros.action_space.layout import SEQUENCE_SLICES
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.types import (
    ACTION_DIM,
    Draft,
    DraftKind,
    DraftRequest,
    FloatArray,
    IntArray,
    Verified,
)
from heisd_ros.verify.skip_table import SkipTable
from heisd_ros.verify.skip_thresholds import FeedbackSettings, SkipThresholds

GRIPPER = ACTION_DIM - 1
_POSITION = SEQUENCE_SLICES[ActionSequence.POSITION]

PREDICATES = ("retrieved", "near", "alike", "similar", "agreed", "gripper", "allowed")
"""Fields of `SkipDecision`, in the order they are described there."""


@dataclass(frozen=True, slots=True)
class SkipSettings:
    """Fixed limits of a skip.

    Attributes:
        min_score: Smallest cosine of the best neighbour, [-1, 1].
        max_spread: Largest disagreement of the neighbours' position tokens, summed bins.
        max_consecutive: Most skips in a row (the published code: 2).
    """

    min_score: float = 0.90
    max_spread: float = 30.0
    max_consecutive: int = 2

    def __post_init__(self) -> None:
        if self.max_consecutive < 0:
            raise ConfigError(f"max_consecutive must be >= 0 steps, got {self.max_consecutive}")


@dataclass(frozen=True, slots=True)
class SkipDecision:
    """Every predicate of one decision; all must hold for a skip.

    Attributes:
        retrieved: The draft comes from retrieval.
        near: The arm is within O_dist of the last verified point (A).
        alike: The best neighbour's feature is within min_S of the last verified one (B); None: the
            store keeps no features, only the distance speaks for it.
        similar: The best neighbour scores high enough.
        agreed: The neighbours agree on the position.
        gripper: All neighbours keep the gripper as last commanded: no skip across a grasp.
        allowed: Not too many skips in a row.
    """

    retrieved: bool
    near: bool = False
    alike: bool | None = None
    similar: bool = False
    agreed: bool = False
    gripper: bool = False
    allowed: bool = False

    @property
    def vetoes(self) -> tuple[str, ...]:
        """Names of the predicates that do not hold; only the first one without a retrieval."""
        names = PREDICATES if self.retrieved else PREDICATES[:1]
        return tuple(name for name in names if getattr(self, name) is False)

    @property
    def skip(self) -> bool:
        """Whether all predicates hold."""
        return not self.vetoes


class VerifySkip:
    """Executes retrieved drafts unverified where the last verification still vouches for them.

    `table` holds what was learned; every task that skipped moves its own thresholds.
    """

    def __init__(
        self,
        thresholds: SkipTable | SkipThresholds,
        settings: SkipSettings | None = None,
        feedback: FeedbackSettings | None = None,
    ) -> None:
        """Start from learned thresholds.

        Args:
            thresholds: Of each task, or one for all.
            settings: Limits that are not learned.
            feedback: How far one task moves them.
        """
        if isinstance(thresholds, SkipThresholds):
            thresholds = SkipTable(thresholds)
        self.table = thresholds
        self.last_decision = SkipDecision(retrieved=False)
        self._settings = settings or SkipSettings()
        self._feedback = feedback or FeedbackSettings()
        self._anchor: FloatArray | None = None
        self._feature: FloatArray | None = None
        self._row = 0
        self._waved_through: str | None = None
        self._skipped_task: str | None = None

    @property
    def vetoes(self) -> tuple[str, ...]:
        """Names of the predicates that did not hold for the last draft."""
        return self.last_decision.vetoes

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:
        """Judge one draft; a True counts as a skip."""
        self._settle()
        self.last_decision = self._decide(draft, request)
        if self.last_decision.skip:
            self._row += 1
            self._waved_through = request.task
        return self.last_decision.skip

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:
        """Anchor at the verified point; its feature is only fetched if drafts carry theirs."""
        self._waved_through = None  # an audit verified the step that would have been skipped
        self._anchor = request.position
        self._feature = None
        if draft.features is not None and verified.answer.hidden is not None:
            self._feature = to_numpy(verified.answer.hidden[0])
        self._row = 0

    def end_episode(self, success: bool) -> None:
        """Move the task's thresholds if the episode skipped at all."""
        self._settle()
        if self._skipped_task is not None:
            self.table = self.table.after_task(self._skipped_task, success, self._feedback)
        self.reset()

    def reset(self) -> None:
        """Forget anchor and counts, keep the thresholds."""
        self._anchor = None
        self._feature = None
        self._row = 0
        self._waved_through = None
        self._skipped_task = None

    def _settle(self) -> None:
        """Count the last skip: no verification has come in its place."""
        if self._waved_through is not None:
            self._skipped_task = self._waved_through
        self._waved_through = None

    def _decide(self, draft: Draft, request: DraftRequest) -> SkipDecision:
        known = self.table.of(request.task)
        if draft.kind is not DraftKind.RETRIEVAL or not len(draft.scores) or known is None:
            return SkipDecision(retrieved=False)
        settings = self._settings
        return SkipDecision(
            retrieved=True,
            near=self._distance(request.position) <= known.max_distance,
            alike=self._alike(draft, known.min_similarity),
            similar=bool(draft.scores[0] >= settings.min_score),
            agreed=spread(draft) <= settings.max_spread,
            gripper=_gripper_holds(draft, request),
            allowed=self._row < settings.max_consecutive,
        )

    def _distance(self, position: FloatArray | None) -> float:
        if position is None or self._anchor is None:
            return float("inf")
        return float(np.linalg.norm(position - self._anchor))

    def _alike(self, draft: Draft, smallest: float) -> bool | None:
        if draft.features is None:
            return None
        return self._feature is not None and cosine(draft.features[0], self._feature) >= smallest


class ScheduledSkip:
    """The published code's schedule: `skips` unverified retrieval steps, then a verified one."""

    def __init__(self, skips: int = 2) -> None:
        """Set the length of a run (published code: 2)."""
        self._skips = skips
        self._row = 0
        self._vetoes: tuple[str, ...] = ()

    @property
    def vetoes(self) -> tuple[str, ...]:
        """`retrieved` without a retrieval, `allowed` after the end of a run."""
        return self._vetoes

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:  # noqa: ARG002
        """Skip until the run is used up."""
        retrieved = draft.kind is DraftKind.RETRIEVAL and len(draft.scores) > 0
        if not retrieved:
            self._vetoes = ("retrieved",)
        elif self._row >= self._skips:
            self._vetoes = ("allowed",)
        else:
            self._vetoes = ()
            self._row += 1
        return not self._vetoes

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:  # noqa: ARG002
        """Start a new run."""
        self._row = 0

    def end_episode(self, success: bool) -> None:  # noqa: ARG002
        """Start a new run."""
        self._row = 0

    def reset(self) -> None:
        """Start a new run."""
        self._row = 0


def spread(draft: Draft) -> float:
    """Return how far the neighbours' position tokens lie apart: half ranges, summed, in bins."""
    position = neighbours(draft)[:, _POSITION]
    return float(np.ptp(position, axis=0).sum() / 2.0)


def neighbours(draft: Draft) -> IntArray:
    """Return the chains that were retrieved, int64 (K, 7); a merged draft appends others."""
    return draft.chains[: len(draft.scores)]


def cosine(first: ArrayLike, second: ArrayLike) -> float:
    """Return the cosine of two features, [-1, 1]; nan if one of them is zero.

    Raises:
        ShapeError: If they are not vectors of one length: the store was built with another model.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ShapeError(
            f"features must be vectors of one length, got {a.shape} in the store and {b.shape} of "
            "the target; build the store's features with this checkpoint"
        )
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else float("nan")


def to_numpy(feature: Any) -> FloatArray:  # noqa: ANN401  (array or device tensor)
    """Return a feature vector as float64 on the host."""
    if hasattr(feature, "detach"):
        feature = feature.detach().float().cpu().numpy()
    return np.asarray(feature, dtype=np.float64)


def _gripper_holds(draft: Draft, request: DraftRequest) -> bool:
    """Report whether every neighbour wants the gripper as it was last commanded."""
    if not len(request.history):
        return False
    last = state_of_token(int(request.history[-1, GRIPPER]))
    return all(state_of_token(int(token)) is last for token in neighbours(draft)[:, GRIPPER])
