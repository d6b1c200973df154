"""Drafts from the motion itself: hold the last action, or filter it (KERV)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError
from heisd_ros.types import (
    ACTION_DIM,
    Acceptance,
    Draft,
    DraftKind,
    DraftRequest,
    FloatArray,
    IntArray,
)

GRIPPER = ACTION_DIM - 1


@dataclass(frozen=True, slots=True)
class KalmanFilter:
    """One scalar filter per degree of freedom over token ids.

    Attributes:
        model: `constant_velocity` extrapolates; `random_walk` is KERV's published filter, whose
            steady gain of 0.9990 makes it hold the last token.
        process_noise: Q, bins^2 per step (KERV 1.0).
        measurement_noise: R, bins^2 (KERV 1e-3).
        initial_variance: P0, bins^2 (KERV 10).
    """

    model: str = "constant_velocity"
    process_noise: float = 1.0
    measurement_noise: float = 1e-3
    initial_variance: float = 10.0

    def __post_init__(self) -> None:
        if self.model not in ("constant_velocity", "random_walk"):
            raise ConfigError(
                f"model must be 'constant_velocity' or 'random_walk', got {self.model!r}"
            )

    def predict(self, history: IntArray) -> FloatArray:
        """Return the predicted next tokens, float64 (n,), for a history (T, n), T >= 1."""
        samples = np.asarray(history, dtype=np.float64)
        moving = self.model == "constant_velocity"
        transition = np.array([[1.0, float(moving)], [0.0, float(moving)]])
        # Noise enters the velocity of the moving model, the position of the random walk.
        noise = np.diag([0.0, self.process_noise] if moving else [self.process_noise, 0.0])
        state = np.zeros((2, samples.shape[1]))
        state[0] = samples[0]
        covariance = np.diag([self.initial_variance, self.initial_variance * moving])
        for sample in samples:
            gain = covariance[:, 0] / (covariance[0, 0] + self.measurement_noise)
            state = state + np.outer(gain, sample - state[0])
            covariance = covariance - np.outer(gain, covariance[0])
            state = transition @ state
            covariance = transition @ covariance @ transition.T + noise
        predicted: FloatArray = state[0]
        return predicted


class KalmanDraftSource:
    """Drafts the filtered continuation of the last actions; the gripper is held."""

    def __init__(
        self,
        tokenizer: ActionTokenizer,
        statistics: ActionStatistics,
        *,
        kalman: KalmanFilter | None = None,
        context: int = 10,
    ) -> None:
        """Set up.

        Args:
            tokenizer: Of the target: predictions are kept inside its action ids.
            statistics: Of the target.
            kalman: The filter; None for the constant-velocity one.
            context: Actions looked back, >= 1 (KERV 10).
        """
        if context < 1:
            raise ConfigError(f"context must be >= 1 action, got {context}")
        self._tokenizer = tokenizer
        self._statistics = statistics
        self._kalman = kalman or KalmanFilter()
        self._context = context

    def draft(self, request: DraftRequest) -> Draft:
        """Draft one chain; nothing in the first step of an episode."""
        if not len(request.history):
            return _chain_draft(None, self._tokenizer, self._statistics)
        past = request.history[-self._context :]
        predicted = np.rint(self._kalman.predict(past)).astype(np.int64)
        predicted[GRIPPER] = past[-1, GRIPPER]
        return _chain_draft(predicted, self._tokenizer, self._statistics)

    def observe(self, acceptance: Acceptance) -> None:
        """Nothing to learn: the history already holds what was decoded."""

    def reset(self) -> None:
        """Nothing to forget."""


class HoldDraftSource:
    """Drafts the previous action again."""

    def __init__(self, tokenizer: ActionTokenizer, statistics: ActionStatistics) -> None:
        """Set up for a target's tokens."""
        self._tokenizer = tokenizer
        self._statistics = statistics

    def draft(self, request: DraftRequest) -> Draft:
        """Draft one chain; nothing in the first step of an episode."""
        last = request.history[-1] if len(request.history) else None
        return _chain_draft(last, self._tokenizer, self._statistics)

    def observe(self, acceptance: Acceptance) -> None:
        """Nothing to learn."""

    def reset(self) -> None:
        """Nothing to forget."""


def _chain_draft(
    tokens: IntArray | None, tokenizer: ActionTokenizer, statistics: ActionStatistics
) -> Draft:
    if tokens is None:
        return Draft.nothing(DraftKind.KINEMATIC, "no_history")
    scores = np.zeros(0, dtype=np.float32)
    chain = np.clip(tokens, tokenizer.first_id, tokenizer.last_id)[None]
    actions = statistics.denormalize(tokenizer.decode(chain))
    return Draft(DraftKind.KINEMATIC, DraftTree.from_chains(chain), scores, chain, actions)
