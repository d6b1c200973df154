"""Verify-skip that keeps what it learned: the state is written after each task (Algorithm 1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.protocols import SkipRule
from heisd_ros.types import Draft, DraftRequest, Verified
from heisd_ros.verify.audit import AuditedSkip, AuditSettings
from heisd_ros.verify.skip_table import SkipState, SkipTable
from heisd_ros.verify.skip_thresholds import FeedbackSettings
from heisd_ros.verify.verify_skip import SkipSettings, VerifySkip


class RememberedSkip:
    """`VerifySkip`, audited if asked, whose thresholds and audits outlive the process."""

    def __init__(
        self,
        state: SkipState,
        *,
        settings: SkipSettings | None = None,
        feedback: FeedbackSettings | None = None,
        audit: AuditSettings | None = None,
        rng: np.random.Generator | None = None,
        tokenizer: ActionTokenizer | None = None,
        path: Path | None = None,
    ) -> None:
        """Set up.

        Args:
            state: What is known so far (see `restore`).
            settings: Limits that are not learned.
            feedback: How far one task moves the thresholds.
            audit: Rate and limits of the audits; None: no audits.
            rng: Draws the audits; None: seed 0.
            tokenizer: Of the target; None for OpenVLA's.
            path: Written after each task; None: nothing is kept.
        """
        self.adaptive = VerifySkip(state.table, settings, feedback)
        self._rule: SkipRule = self.adaptive
        self._audited: AuditedSkip | None = None
        if audit is not None:
            self._audited = AuditedSkip(
                self.adaptive,
                rng=rng or np.random.default_rng(0),
                settings=audit,
                record=state.audits,
                tokenizer=tokenizer,
            )
            self._rule = self._audited
        self._before = state
        self._path = path

    @property
    def state(self) -> SkipState:
        """What is known now."""
        audits = self._before.audits if self._audited is None else self._audited.record
        return SkipState(self.adaptive.table, audits, self._before.origin)

    @property
    def vetoes(self) -> tuple[str, ...]:
        """Ask the rule."""
        return self._rule.vetoes

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:
        """Ask the rule."""
        return self._rule.should_skip(draft, request)

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:
        """Tell the rule."""
        self._rule.observe(draft, request, verified)

    def end_episode(self, success: bool) -> None:
        """Let the rule learn, then write the state if it has changed.

        Raises:
            DataError: If the state cannot be written; what was learned stays in memory.
        """
        before = self._before
        self._rule.end_episode(success)
        self._before = self.state
        if self._path is not None and self._before != before:
            self._before.save(self._path)

    def reset(self) -> None:
        """Forget the episode, keep what was learned."""
        self._rule.reset()


def restore(path: Path | None, table: SkipTable, *, fresh: bool = False) -> SkipState:
    """Return the stored state, or the first one if there is no file yet or a fresh one is wanted.

    Args:
        path: Of the state file; None: nothing is kept.
        table: The calibrated thresholds.
        fresh: Start anew, whatever the file holds.

    Raises:
        DataError: If the file is damaged, foreign, or grew from other thresholds.
    """
    if path is None or fresh or not path.exists():
        return SkipState.fresh(table)
    return SkipState.load(path, table.digest)
