"""Near-contact budgets: relax less where a wrong step cannot be repaired (our own).

lambda = clip(l_min + (1 - l_min) min(1, F / F_ref), l_min, 1), times g near a contact. Not in the
paper: HeiSD spends the same budgets in free motion and at the grasp. Tightening costs no time of
its own, only accepted drafts; at lambda = 0 the rule is exact and the step lossless.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.gripper import GripperState, state_of_token
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import AcceptanceRule, RuleSchedule
from heisd_ros.types import ACTION_DIM, Draft, DraftRequest, Verified
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)

GRIPPER = ACTION_DIM - 1


@dataclass(frozen=True, slots=True)
class TighteningSettings:
    """How the budgets follow motion and contact.

    Attributes:
        min_scale: l_min, lambda of an arm at rest in free space, [0, 1].
        reference: F_ref, the fused metric from which the budgets are whole, (0, 1].
        contact_scale: g, factor near a contact, [0, 1]; 0 makes those steps exact.
        contact_steps: m, steps after a gripper transition that count as near, >= 0.
        max_force: f0, a measured force above it counts as contact, newtons, >= 0; 0 looks at none.
        min_height: z0, height of the end effector below which contact is near, metres, base frame.
    """

    min_scale: float = 0.5
    reference: float = 0.2
    contact_scale: float = 0.3
    contact_steps: int = 8
    max_force: float = 0.0
    min_height: float = -math.inf

    def __post_init__(self) -> None:
        if not (0.0 <= self.min_scale <= 1.0 and 0.0 <= self.contact_scale <= 1.0):
            raise ConfigError(
                "min_scale and contact_scale must be in [0, 1], got "
                f"{self.min_scale} and {self.contact_scale}"
            )
        if not (0.0 < self.reference <= 1.0 and self.contact_steps >= 0):
            raise ConfigError(
                "reference must be in (0, 1] and contact_steps >= 0, got "
                f"{self.reference} and {self.contact_steps}"
            )
        if not self.max_force >= 0.0:
            raise ConfigError(
                f"max_force must be 0 (no wrench is used) or more newtons, got {self.max_force}"
            )


@dataclass(frozen=True, slots=True)
class Tightening:
    """Why a step got the budgets it got.

    Attributes:
        scale: lambda, factor of both budgets, [0, 1].
        transition: The gripper has just changed, or a draft wants it to.
        touching: The measured force is too large, or it is looked at and unknown.
        low: The end effector is too low.
    """

    scale: float
    transition: bool = False
    touching: bool = False
    low: bool = False

    @property
    def contact(self) -> bool:
        """Whether any sign of a contact was seen."""
        return self.transition or self.touching or self.low


class TighteningSchedule:
    """Scales the budgets of another schedule's rule with speed and contact.

    `last` tells why the last step got its rule.
    """

    def __init__(
        self,
        inner: RuleSchedule,
        settings: TighteningSettings | None = None,
        *,
        tokenizer: ActionTokenizer | None = None,
    ) -> None:
        """Wrap a schedule.

        Args:
            inner: Gives the rule of free motion.
            settings: How much to tighten.
            tokenizer: Of the target; None for OpenVLA's.
        """
        self.last = Tightening(scale=1.0)
        self._inner = inner
        self._settings = settings or TighteningSettings()
        self._tokenizer = tokenizer or ActionTokenizer()
        self._predicted_at: int | None = None

    def rule(self, request: DraftRequest, draft: Draft) -> AcceptanceRule:
        """Return the inner rule with scaled budgets."""
        self.last = self._judge(request, draft)
        return scaled(self._inner.rule(request, draft), self.last.scale)

    def observe(self, verified: Verified) -> None:
        """Tell the inner schedule."""
        self._inner.observe(verified)

    def reset(self) -> None:
        """Forget the episode."""
        self.last = Tightening(scale=1.0)
        self._predicted_at = None
        self._inner.reset()

    def _judge(self, request: DraftRequest, draft: Draft) -> Tightening:
        settings = self._settings
        signs = Tightening(
            scale=motion_scale(request.metric.fused, settings),
            transition=self._transition(request, draft),
            touching=settings.max_force > 0.0 and not _below(request.force, settings.max_force),
            low=request.position is not None and bool(request.position[2] < settings.min_height),
        )
        if not signs.contact:
            return signs
        return dataclasses.replace(signs, scale=signs.scale * settings.contact_scale)

    def _transition(self, request: DraftRequest, draft: Draft) -> bool:
        """Report a transition in the last m steps, or one that was drafted in them."""
        step, near = len(request.history), self._settings.contact_steps
        recent = self._states(request.history[-(near + 1) :])
        drafted = self._states(draft.chains)
        if len(set(drafted + recent[-1:])) > 1:
            self._predicted_at = step
        predicted = self._predicted_at is not None and step - self._predicted_at <= near
        return predicted or len(set(recent)) > 1

    def _states(self, chains: np.ndarray) -> list[GripperState]:
        return [state_of_token(int(token), self._tokenizer) for token in chains[:, GRIPPER]]


def _below(force: float | None, limit: float) -> bool:
    """Report a force known to be at most the limit; unknown (None, nan) is not."""
    return force is not None and force <= limit


def motion_scale(fused: float, settings: TighteningSettings) -> float:
    """Return lambda of free motion, [l_min, 1]; an unknown F (nan) counts as standing still."""
    speed = 0.0 if math.isnan(fused) else min(max(fused / settings.reference, 0.0), 1.0)
    return settings.min_scale + (1.0 - settings.min_scale) * speed


def scaled(rule: AcceptanceRule, scale: float) -> AcceptanceRule:
    """Return a relaxed rule with its budgets times `scale`, rounded down.

    Budgets of zero give the exact rule; a rule without budgets is returned as it is.
    """
    if isinstance(rule, TokenRelaxedAcceptance):
        tolerance = math.floor(scale * rule.tolerance)
        return TokenRelaxedAcceptance(tolerance) if tolerance else ExactAcceptance()
    if not isinstance(rule, SequenceRelaxedAcceptance):
        return rule
    sequence = math.floor(scale * rule.sequence_budget)
    token = math.floor(scale * rule.token_budget)
    # Not the rule with zero budgets: compared with <, as the published code does, those would
    # refuse even the exact token.
    if not sequence or not token:
        return ExactAcceptance()
    return dataclasses.replace(rule, sequence_budget=sequence, token_budget=token)
