"""The two skip rules without state: never skip (lossless), always skip (retrieval alone)."""

from __future__ import annotations

from dataclasses import dataclass

from heisd_ros.types import Draft, DraftRequest, Verified


@dataclass(frozen=True, slots=True)
class FixedSkip:
    """Skip every verification, or none.

    Attributes:
        skip: True executes every draft unverified: the retrieval-only baseline (HeiSD Table 1).
    """

    skip: bool

    @property
    def vetoes(self) -> tuple[str, ...]:
        """Nothing is weighed here."""
        return ()

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:  # noqa: ARG002
        """Skip if told so and there is something to execute."""
        return self.skip and len(draft.chains) > 0

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:
        """Nothing to learn."""

    def end_episode(self, success: bool) -> None:
        """Nothing to learn."""

    def reset(self) -> None:
        """Nothing to forget."""
