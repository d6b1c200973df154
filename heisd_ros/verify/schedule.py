"""Which acceptance rule a step gets."""

from __future__ import annotations

from dataclasses import dataclass

from heisd_ros.protocols import AcceptanceRule
from heisd_ros.types import Draft, DraftRequest, Verified


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
