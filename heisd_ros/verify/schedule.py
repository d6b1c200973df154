"""Which acceptance rule a step gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heisd_ros.protocols import AcceptanceRule, RuleSchedule
from heisd_ros.types import Draft, DraftKind, DraftRequest, Verified


@dataclass(frozen=True, slots=True)
class FixedSchedule:
    """The same rule in every step.

    Attributes:
        fixed: The rule.
    """

    fixed: AcceptanceRule

    def rule(self, request: DraftRequest, draft: Draft) -> AcceptanceRule:  # noqa: ARG002
        """Return the fixed rule."""
        return self.fixed

    def observe(self, verified: Verified) -> None:
        """Nothing to learn."""

    def reset(self) -> None:
        """Nothing to forget."""


class KindSchedule:
    """One schedule per kind of draft: what is retrieved and what is predicted err differently."""

    def __init__(self, by_kind: Mapping[DraftKind, RuleSchedule], otherwise: RuleSchedule) -> None:
        """Set the schedules of some kinds, and the one of all others."""
        self._by_kind = dict(by_kind)
        self._otherwise = otherwise
        self._asked = otherwise

    def rule(self, request: DraftRequest, draft: Draft) -> AcceptanceRule:
        """Return the rule of the schedule of the draft's kind."""
        self._asked = self._by_kind.get(draft.kind, self._otherwise)
        return self._asked.rule(request, draft)

    def observe(self, verified: Verified) -> None:
        """Tell the schedule that gave the last rule."""
        self._asked.observe(verified)

    def reset(self) -> None:
        """Reset all of them."""
        for schedule in (*self._by_kind.values(), self._otherwise):
            schedule.reset()
