"""Bounded-deviation verify-skip: skip only while audits bound how often that is wrong (4.6).

Now and then a step that would be skipped is verified after all. These audits are a random sample of
the steps that are skipped, so the share of bad ones among them bounds the share among all skips.

What the bound says, plainly. It is *marginal*: over all steps like the audited ones, at most this
share deviates by more than `max_deviation` bins. It says nothing about a single step, a single task
or a scene unlike the audited ones; consecutive steps of one episode are not independent; and since
it is looked at in every step, it is a little more optimistic than a bound at a number of audits
fixed beforehand. It is a brake, not a guarantee; the command guard stands behind it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.gripper import state_of_token
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.draft.tree import ROOT, children
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.protocols import SkipRule
from heisd_ros.types import ACTION_DIM, Draft, DraftRequest, IntArray, Verified

GRIPPER = ACTION_DIM - 1
BISECTIONS = 45
"""Halvings of [0, 1]: to 3e-14, and never quite to 1."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How much to audit and what must be shown.

    Attributes:
        rate: rho, probability of verifying a step that would be skipped, (0, 1].
        max_deviation: z_max, largest harmless deviation of a token, bins.
        max_share: epsilon, largest tolerated share of skipped steps beyond it, (0, 1).
        confidence: Of the one-sided bound, (0, 1).
    """

    rate: float = 0.1
    max_deviation: int = 15
    max_share: float = 0.05
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ConfigError(
                f"rate must be in (0, 1], got {self.rate}; without audits there is no bound"
            )
        if not (0.0 < self.max_share < 1.0 and 0.0 < self.confidence < 1.0):
            raise ConfigError(
                "max_share and confidence must be in (0, 1), got "
                f"{self.max_share} and {self.confidence}"
            )
        if self.max_deviation < 0:
            raise ConfigError(f"max_deviation must be >= 0 bins, got {self.max_deviation}")


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What the audits have shown so far.

    Attributes:
        audits: Steps that would have been skipped and were verified.
        failures: Those whose best draft deviated by more than `max_deviation`.
    """

    audits: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.failures <= self.audits:
            raise DataError(
                f"expected 0 <= failures <= audits, got {self.failures} of {self.audits}"
            )

    def add(self, failed: bool) -> AuditRecord:
        """Return the record with one audit more."""
        return AuditRecord(self.audits + 1, self.failures + failed)


class AuditedSkip:
    """Lets another rule skip only while the audits vouch for it.

    Until the bound is low enough every step that would be skipped is verified, and counts: with the
    default 5 % that takes 59 audits without a failure. `record` survives episodes and may be stored
    and passed in again.
    """

    def __init__(
        self,
        inner: SkipRule,
        *,
        rng: np.random.Generator,
        settings: AuditSettings | None = None,
        record: AuditRecord | None = None,
        tokenizer: ActionTokenizer | None = None,
    ) -> None:
        """Wrap a skip rule.

        Args:
            inner: Proposes the skips.
            rng: Draws the audits; nothing about the step may influence it.
            settings: Rate and limits.
            record: Earlier audits under the same rule, model and tasks; None to start anew.
            tokenizer: Of the target; None for OpenVLA's.
        """
        self.record = record or AuditRecord()
        self._inner = inner
        self._rng = rng
        self._settings = settings or AuditSettings()
        self._tokenizer = tokenizer or ActionTokenizer()
        self._auditing = False
        self._bound = self._upper()

    @property
    def bound(self) -> float:
        """Upper confidence bound of P(deviation > max_deviation | skipped), [0, 1]."""
        return self._bound

    @property
    def vetoes(self) -> tuple[str, ...]:
        """Those of the inner rule; `audit` if only the audit verified the last draft."""
        return ("audit",) if self._auditing else self._inner.vetoes

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:
        """Skip if the inner rule would, the bound holds, and no audit is due."""
        self._auditing = False
        if not self._inner.should_skip(draft, request):
            return False
        due = bool(self._rng.random() < self._settings.rate)
        self._auditing = due or self._bound > self._settings.max_share
        return not self._auditing

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:
        """Count the audit if this verification was one; tell the inner rule in any case."""
        if self._auditing:
            deviation = top_deviation(draft, verified, self._tokenizer)
            self.record = self.record.add(deviation > self._settings.max_deviation)
            self._bound = self._upper()
        self._auditing = False
        self._inner.observe(draft, request, verified)

    def end_episode(self, success: bool) -> None:
        """Tell the inner rule; the audits are kept."""
        self._auditing = False
        self._inner.end_episode(success)

    def reset(self) -> None:
        """Forget the episode, keep the audits."""
        self._auditing = False
        self._inner.reset()

    def _upper(self) -> float:
        record = self.record
        return clopper_pearson_upper(
            record.failures, record.audits, confidence=self._settings.confidence
        )


def top_deviation(draft: Draft, verified: Verified, tokenizer: ActionTokenizer) -> float:
    """Return z, the largest token deviation of the best draft from the target, in bins.

    Each token is judged under the draft's own prefix. inf if the gripper state differs, and if the
    best draft is not in the verified tree: what was not checked counts as wrong.
    """
    chain: IntArray = draft.chains[0]
    answers = verified.answer.target_next
    node, worst = ROOT, 0
    for token in chain[:GRIPPER].tolist():
        worst = max(worst, abs(token - int(answers[1 + node])))
        match = [c for c in children(verified.tree, node) if int(verified.tree.tokens[c]) == token]
        if not match:
            return math.inf
        node = match[0]
    wanted = int(answers[1 + node])
    if not tokenizer.is_action(wanted):
        return math.inf
    drafted = state_of_token(int(chain[GRIPPER]), tokenizer)
    return float(worst) if state_of_token(wanted, tokenizer) is drafted else math.inf


def clopper_pearson_upper(failures: int, trials: int, *, confidence: float = 0.95) -> float:
    """Return the exact one-sided upper bound of a failure probability.

    It is the largest p under which so few failures are still as likely as 1 - confidence.

    Args:
        failures: k, 0 <= k <= trials.
        trials: n; without a trial the bound is 1.
        confidence: (0, 1).

    Raises:
        DataError: If there are more failures than trials, or either is negative.

    Example:
        >>> round(clopper_pearson_upper(0, 60), 3), round(clopper_pearson_upper(0, 300), 3)
        (0.049, 0.01)
    """
    if not 0 <= failures <= trials:
        raise DataError(f"expected 0 <= failures <= trials, got {failures} of {trials}")
    if failures == trials:
        return 1.0
    k = np.arange(failures + 1)
    # log C(n, k), the product of (n - i + 1) / i over i = 1 .. k.
    log_ways = np.concatenate(([0.0], np.cumsum(np.log((trials - k[1:] + 1) / k[1:]))))
    low, high = failures / trials, 1.0
    for _ in range(BISECTIONS):
        chance = (low + high) / 2.0
        # P(X <= k); chance stays inside (0, 1), where both logarithms are finite.
        terms = log_ways + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        if np.exp(terms).sum() > 1.0 - confidence:
            low = chance
        else:
            high = chance
    return high
