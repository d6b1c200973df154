"""Which acceptance rule each step gets, and which drafts are executed unverified."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.config import SkipConfig, VerifyConfig
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import AcceptanceRule, RuleSchedule, SkipRule
from heisd_ros.share import config_file
from heisd_ros.types import DraftKind
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)
from heisd_ros.verify.audit import AuditSettings
from heisd_ros.verify.kerv import DecayingSchedule, VariableSchedule
from heisd_ros.verify.remembered_skip import RememberedSkip, restore
from heisd_ros.verify.schedule import FixedSchedule, KindSchedule
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.skip_table import SkipCalibration
from heisd_ros.verify.tightening import TighteningSchedule, TighteningSettings
from heisd_ros.verify.verify_skip import ScheduledSkip, SkipSettings


def build_schedule(verify: VerifyConfig, tokenizer: ActionTokenizer) -> RuleSchedule:
    """Return which acceptance rule each step gets."""
    retrieved = FixedSchedule(build_rule(verify))
    schedule = KindSchedule({DraftKind.DRAFTER: _drafter_schedule(verify, tokenizer)}, retrieved)
    if not verify.tighten:
        return schedule
    settings = TighteningSettings(
        min_scale=verify.tighten_min_scale,
        reference=verify.tighten_reference,
        contact_scale=verify.tighten_contact_scale,
        contact_steps=verify.tighten_contact_steps,
        min_height=verify.tighten_min_height,
        max_force=verify.tighten_max_force,
    )
    return TighteningSchedule(schedule, settings, tokenizer=tokenizer)


def build_rule(config: VerifyConfig) -> AcceptanceRule:
    """Return the configured acceptance rule."""
    if config.rule == "exact":
        return ExactAcceptance()
    if config.rule == "token_relaxed":
        return TokenRelaxedAcceptance(config.token_budget)
    if config.rule == "sequence_relaxed":
        return SequenceRelaxedAcceptance(
            config.sequence_budget, config.token_budget, strict=config.strict
        )
    raise ConfigError(f"unknown acceptance rule {config.rule!r}")


def build_skip(
    config: SkipConfig, *, suite: str = "", tokenizer: ActionTokenizer | None = None
) -> SkipRule:
    """Return which drafts are executed unverified.

    Args:
        config: The section `skip`.
        suite: Names the shipped thresholds when `skip.thresholds` is empty.
        tokenizer: Of the target; None for OpenVLA's.

    Raises:
        ConfigError: If no thresholds are shipped for the suite.
        DataError: If a file is damaged, foreign, or holds impossible values.
    """
    if config.rule in ("never", "always"):
        return FixedSkip(config.rule == "always")
    if config.rule == "schedule":
        return ScheduledSkip(config.max_consecutive)
    shipped = f"calibration/{suite}_skip.json"
    path = Path(config.thresholds) if config.thresholds else config_file(shipped)
    state_path = Path(config.state) if config.state else None
    table = SkipCalibration.load(path).tables[config.learned]
    audit = AuditSettings(config.audit_rate, config.max_deviation, config.max_share)
    return RememberedSkip(
        restore(state_path, table, fresh=config.state_fresh),
        settings=SkipSettings(config.min_score, config.max_spread, config.max_consecutive),
        audit=audit if config.rule == "audited" else None,
        rng=np.random.default_rng(config.seed),
        tokenizer=tokenizer,
        path=state_path,
    )


def _drafter_schedule(verify: VerifyConfig, tokenizer: ActionTokenizer) -> RuleSchedule:
    """Return the rule of steps below the boundary."""
    if verify.drafter_rule == "kinematic":
        return VariableSchedule(tokenizer)
    if verify.drafter_rule == "decaying":
        return DecayingSchedule()
    tolerance = verify.drafter_tolerance if verify.drafter_rule == "token_relaxed" else 0
    return FixedSchedule(TokenRelaxedAcceptance(tolerance) if tolerance else ExactAcceptance())
