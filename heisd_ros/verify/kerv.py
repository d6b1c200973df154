"""KERV: thresholds that follow the motion, and filling in what was rejected.

| part               | source                                                                  |
|--------------------|-------------------------------------------------------------------------|
| `DecayingSchedule` | KERV's published code: the tolerance falls with the step number         |
| `VariableSchedule` | ours, for the paper's "kinematic variability", whose formula is unknown |
| `KervContinuation` | KERV's compensation: the filter replaces re-inference in some steps     |

Not taken over: the published code also hangs a filtered tail below every node of the tree.
"""

from __future__ import annotations

import math

import numpy as np

from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.draft.kinematic import KalmanFilter
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import AcceptanceRule, Continuation
from heisd_ros.types import (
    ACTION_DIM,
    Draft,
    DraftRequest,
    FloatArray,
    IntArray,
    TokenTree,
    Verified,
)
from heisd_ros.verify.acceptance import TokenRelaxedAcceptance

GRIPPER = ACTION_DIM - 1

DECAY_TO = 1e-30
"""What is left of the relaxed part of the tolerance at the horizon (KERV's code)."""

KERV_FILTER = KalmanFilter("random_walk")


class DecayingSchedule:
    """Tolerance by step number: r(t) = low + (high - low) exp(-(t / tau)^3) (KERV's code).

    It relaxes the reach at the start of an episode and tightens towards its end.
    """

    def __init__(self, *, horizon: int = 220, low: float = 3.0, high: float = 15.0) -> None:
        """Set the curve.

        Args:
            horizon: T, steps of an episode; tau = T / (-ln 1e-30)^(1/3).
            low: r at the end, bins, >= 0.
            high: r at the start, bins, >= low.
        """
        _check_range(low, high)
        if horizon < 1:
            raise ConfigError(f"horizon must be >= 1 step, got {horizon}")
        self._low, self._high = low, high
        self._tau = horizon / (-math.log(DECAY_TO)) ** (1.0 / 3.0)

    def tolerance(self, step: int) -> float:
        """Return r of a step, bins."""
        return self._low + (self._high - self._low) * math.exp(-((step / self._tau) ** 3))

    def rule(self, request: DraftRequest, draft: Draft) -> AcceptanceRule:  # noqa: ARG002
        """Return the rule of this step; biases are whole, so r is rounded down."""
        return TokenRelaxedAcceptance(math.floor(self.tolerance(len(request.history))))

    def observe(self, verified: Verified) -> None:
        """Nothing to learn: time alone decides."""

    def reset(self) -> None:
        """Nothing to forget: the history is the clock."""


class VariableSchedule:
    """Tolerance by kinematic variability: the more accepted drafts deviate, the less is allowed.

    r = low + (high - low) (1 - clip(K / K_95, 0, 1)), K the moving average of |draft - target| over
    accepted tokens, in normalised action values, where a metre and a radian can be added up.
    Not in the paper: until something was accepted in an episode, r is `low`.
    """

    def __init__(
        self,
        tokenizer: ActionTokenizer,
        *,
        low: float = 5.0,
        high: float = 15.0,
        reference: float = 0.05,
        keep: float = 0.9,
    ) -> None:
        """Set the range.

        Args:
            tokenizer: Of the target.
            low: r under large variability, bins (KERV 5).
            high: r without any, bins (KERV 15).
            reference: K_95, variability from which r is `low`, normalised action values, > 0.
            keep: Weight of the past at every accepted token, [0, 1).
        """
        _check_range(low, high)
        if not (reference > 0.0 and 0.0 <= keep < 1.0):
            raise ConfigError(
                f"reference must be > 0 and keep in [0, 1), got {reference} and {keep}"
            )
        self._tokenizer = tokenizer
        self._low, self._high = low, high
        self._reference, self._keep = reference, keep
        self.variability: float | None = None

    def tolerance(self) -> float:
        """Return r of the next step, bins."""
        if self.variability is None:
            return self._low
        share = min(self.variability / self._reference, 1.0)
        return self._low + (self._high - self._low) * (1.0 - share)

    def rule(self, request: DraftRequest, draft: Draft) -> AcceptanceRule:  # noqa: ARG002
        """Return the rule of this step; biases are whole, so r is rounded down."""
        return TokenRelaxedAcceptance(math.floor(self.tolerance()))

    def observe(self, verified: Verified) -> None:
        """Move the average by every draft token that was accepted."""
        for deviation in self._deviations(verified):
            past = deviation if self.variability is None else self.variability
            self.variability = self._keep * past + (1.0 - self._keep) * deviation

    def reset(self) -> None:
        """Forget the episode."""
        self.variability = None

    def _deviations(self, verified: Verified) -> list[float]:
        nodes = verified.accepted.path[verified.known :]
        drafted = np.asarray(verified.tree.tokens)[nodes]
        wanted = verified.answer.target_next[1 + np.asarray(verified.tree.parent)[nodes]]
        decode = self._tokenizer.decode
        deviations: FloatArray = np.abs(decode(drafted) - decode(wanted))
        return [float(value) for value in deviations]


class KervContinuation:
    """Finishes some steps from the filter instead of the target, once a draft was rejected.

    The accepted tokens and the target's own correction stand; the remaining degrees of freedom are
    the filter's prediction and are executed *unverified*, the gripper as it was last commanded. A
    gripper transition can therefore come one step late, in a compensated step.
    """

    def __init__(
        self,
        inner: Continuation,
        tokenizer: ActionTokenizer,
        *,
        kalman: KalmanFilter = KERV_FILTER,
        context: int = 10,
        period: int = 4,
    ) -> None:
        """Wrap what finishes the other steps.

        Args:
            inner: Proposes trees as long as the step is not compensated.
            tokenizer: Of the target: predictions are kept inside its action ids.
            kalman: The filter; KERV's is a random walk, which all but holds the last token.
            context: Actions looked back, >= 1 (KERV's text 10; its runner takes the episode).
            period: Every how many steps may be compensated, >= 1 (KERV's code 4).
        """
        if context < 1 or period < 1:
            raise ConfigError(f"context and period must be >= 1, got {context} and {period}")
        self._inner = inner
        self._tokenizer = tokenizer
        self._kalman = kalman
        self._context = context
        self._period = period
        self._filled: IntArray | None = None

    def begin(self, request: DraftRequest, draft: Draft) -> None:
        """Predict the action if this step may be compensated."""
        self._inner.begin(request, draft)
        step = len(request.history)
        due = step > 0 and (step + 1) % self._period == 0
        self._filled = self._predict(request.history[-self._context :]) if due else None

    def propose(self, tokens: IntArray, last: Verified) -> TokenTree:
        """Let the inner continuation propose."""
        return self._inner.propose(tokens, last)

    def finish(self, tokens: IntArray, last: Verified) -> IntArray:
        """Return the tokens, filled up to a whole action if a draft has just been rejected.

        Args:
            tokens: int64 (k,), decided so far.
            last: The last verification of this action.
        """
        if self._filled is None or last.accepted.rejected_sequence is None:
            return tokens
        return np.concatenate([tokens, self._filled[len(tokens) :]])

    def _predict(self, history: IntArray) -> IntArray:
        # Rounded like KERV's tree; its direct path truncates, which is biased by half a bin.
        predicted = np.rint(self._kalman.predict(history)).astype(np.int64)
        predicted[GRIPPER] = history[-1, GRIPPER]
        return np.clip(predicted, self._tokenizer.first_id, self._tokenizer.last_id)


def _check_range(low: float, high: float) -> None:
    if not 0.0 <= low <= high:
        raise ConfigError(f"expected 0 <= low <= high bins, got {low} and {high}")
