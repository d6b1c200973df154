"""Adaptive verify-skip, online (HeiSD Algorithm 1).

The features the paper compares are inputs of the target's lm_head, which a skipped step does not
have. A real skip can only use what is known without the target: the distance to the last verified
point (the paper shows that similarity follows it), the retrieval score, and the neighbours' word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.gripper import state_of_token
from heisd_ros.action_space.layout import SEQUENCE_SLICES
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.errors import ConfigError
from heisd_ros.types import ACTION_DIM, Draft, DraftKind, DraftRequest, FloatArray, Verified
from heisd_ros.verify.skip_thresholds import FeedbackSettings, SkipThresholds

GRIPPER = ACTION_DIM - 1
_POSITION = SEQUENCE_SLICES[ActionSequence.POSITION]


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
        near: The arm is within O_dist of the last verified point.
        similar: The best neighbour scores high enough.
        agreed: The neighbours agree on the position.
        gripper: All neighbours keep the gripper as last commanded: no skip across a grasp.
        allowed: Not too many skips in a row.
    """

    retrieved: bool
    near: bool = False
    similar: bool = False
    agreed: bool = False
    gripper: bool = False
    allowed: bool = False

    @property
    def skip(self) -> bool:
        """Whether all predicates hold."""
        return (
            self.retrieved
            and self.near
            and self.similar
            and self.agreed
            and self.gripper
            and self.allowed
        )


class VerifySkip:
    """Executes retrieved drafts unverified where the last verification still vouches for them."""

    def __init__(
        self,
        thresholds: SkipThresholds,
        settings: SkipSettings | None = None,
        feedback: FeedbackSettings | None = None,
    ) -> None:
        """Start from learned thresholds; they move with every task that skipped."""
        self.thresholds = thresholds
        self.last_decision = SkipDecision(retrieved=False)
        self._settings = settings or SkipSettings()
        self._feedback = feedback or FeedbackSettings()
        self._anchor: FloatArray | None = None
        self._row = 0
        self._episode_skips = 0

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:
        """Judge one draft; a True counts as a skip."""
        self.last_decision = self._decide(draft, request)
        if self.last_decision.skip:
            self._row += 1
            self._episode_skips += 1
        return self.last_decision.skip

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:  # noqa: ARG002
        """Anchor at the verified point."""
        self._anchor = request.position
        self._row = 0

    def end_episode(self, success: bool) -> None:
        """Move the thresholds if the episode skipped at all."""
        if self._episode_skips:
            self.thresholds = self.thresholds.after_task(success, self._feedback)
        self.reset()

    def reset(self) -> None:
        """Forget anchor and counts, keep the thresholds."""
        self._anchor = None
        self._row = 0
        self._episode_skips = 0

    def _decide(self, draft: Draft, request: DraftRequest) -> SkipDecision:
        if draft.kind is not DraftKind.RETRIEVAL or not len(draft.chains):
            return SkipDecision(retrieved=False)
        settings = self._settings
        return SkipDecision(
            retrieved=True,
            near=self._distance(request.position) <= self.thresholds.max_distance,
            similar=bool(draft.scores[0] >= settings.min_score),
            agreed=spread(draft) <= settings.max_spread,
            gripper=_gripper_holds(draft, request),
            allowed=self._row < settings.max_consecutive,
        )

    def _distance(self, position: FloatArray | None) -> float:
        if position is None or self._anchor is None:
            return float("inf")
        return float(np.linalg.norm(position - self._anchor))


class ScheduledSkip:
    """The published code's schedule: `skips` unverified retrieval steps, then a verified one."""

    def __init__(self, skips: int = 2) -> None:
        """Set the length of a run (published code: 2)."""
        self._skips = skips
        self._row = 0

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:  # noqa: ARG002
        """Skip until the run is used up."""
        if draft.kind is not DraftKind.RETRIEVAL or not len(draft.chains):
            return False
        if self._row >= self._skips:
            return False
        self._row += 1
        return True

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
    """Return how far the candidates' position tokens lie apart: half ranges, summed, in bins."""
    position = draft.chains[:, _POSITION]
    return float(np.ptp(position, axis=0).sum() / 2.0)


def _gripper_holds(draft: Draft, request: DraftRequest) -> bool:
    """Report whether every candidate wants the gripper as it was last commanded."""
    if not len(request.history):
        return False
    last = state_of_token(int(request.history[-1, GRIPPER]))
    return all(state_of_token(int(token)) is last for token in draft.chains[:, GRIPPER])
