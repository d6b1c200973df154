"""The composition root hands every setting of the acceptance rules on."""

import dataclasses
import gc
import subprocess
import sys

import numpy as np
import pytest
from fakes import some_metric, some_request

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.build import build_rule, build_schedule, build_skip, build_target
from heisd_ros.config import HeisdConfig, SkipConfig, VerifyConfig, replace
from heisd_ros.errors import ConfigError
from heisd_ros.types import Draft, DraftKind
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)
from heisd_ros.verify.kerv import DecayingSchedule, VariableSchedule
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.verify_skip import ScheduledSkip

OPEN, CLOSED = 31744, 31872


def draft(kind, gripper=OPEN):
    chains = np.array([[31800] * 6 + [gripper]])
    return Draft(kind, None, np.ones(1, np.float32), chains, np.zeros((1, 7)))


def request(fused=0.9, z=0.3, grippers=(OPEN,), force=None):
    past = np.array([[31800] * 6 + [g] for g in grippers])
    asked = dataclasses.replace(some_request(history=past), metric=some_metric(fused))
    return dataclasses.replace(asked, position=np.array([0.0, 0.0, z]), force=force)


def rule_of(verify, kind=DraftKind.RETRIEVAL, *, gripper=OPEN, **asked):
    schedule = build_schedule(verify, ActionTokenizer())
    return schedule.rule(request(**asked), draft(kind, gripper))


def test_every_named_rule_gets_its_budgets():
    assert build_rule(VerifyConfig(rule="exact")) == ExactAcceptance()
    token = VerifyConfig(rule="token_relaxed", token_budget=11)
    assert build_rule(token) == TokenRelaxedAcceptance(11)
    sequence = VerifyConfig(sequence_budget=45, token_budget=25, strict=True)
    assert build_rule(sequence) == SequenceRelaxedAcceptance(45, 25, strict=True)
    assert build_rule(VerifyConfig()) == SequenceRelaxedAcceptance(30, 15)
    with pytest.raises(ConfigError, match="unknown acceptance rule 'loose'"):
        build_rule(VerifyConfig(rule="loose"))


def test_steps_below_the_boundary_have_their_own_tolerance():
    verify = VerifyConfig()
    assert rule_of(verify, DraftKind.RETRIEVAL) == SequenceRelaxedAcceptance(30, 15)
    assert rule_of(verify, DraftKind.KINEMATIC) == SequenceRelaxedAcceptance(30, 15)
    assert rule_of(verify, DraftKind.DRAFTER) == TokenRelaxedAcceptance(9)
    exact = VerifyConfig(drafter_rule="exact")
    assert rule_of(exact, DraftKind.DRAFTER) == ExactAcceptance()
    assert rule_of(VerifyConfig(drafter_tolerance=0), DraftKind.DRAFTER) == ExactAcceptance()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Nothing accepted yet: r_min. The first step of an episode of 220: r = 15 - 0.0003.
        ("kinematic", VariableSchedule(ActionTokenizer()).rule(request(), draft(DraftKind.AR))),
        ("decaying", DecayingSchedule().rule(request(), draft(DraftKind.AR))),
    ],
)
def test_kervs_schedules_are_rules_of_the_drafter(name, expected):
    assert rule_of(VerifyConfig(drafter_rule=name), DraftKind.DRAFTER) == expected


def budgets(rule):
    return rule.sequence_budget, rule.token_budget


def test_every_setting_of_the_tightening_arrives():
    verify = VerifyConfig(
        tighten=True,
        tighten_min_scale=0.4,
        tighten_reference=0.5,
        tighten_contact_scale=0.5,
        tighten_contact_steps=2,
        tighten_min_height=0.1,
    )
    assert budgets(rule_of(verify, fused=0.5)) == (30, 15)
    # Half way to the reference: .4 + .6 / 2 = .7; at rest .4.
    assert budgets(rule_of(verify, fused=0.25)) == (21, 10)
    assert budgets(rule_of(verify, fused=0.0)) == (12, 6)
    assert budgets(rule_of(verify, z=0.09)) == (15, 7)  # low
    assert budgets(rule_of(verify, gripper=CLOSED)) == (15, 7)  # a transition is drafted
    assert budgets(rule_of(verify, grippers=(CLOSED, OPEN, OPEN))) == (15, 7)
    assert budgets(rule_of(verify, grippers=(CLOSED, OPEN, OPEN, OPEN))) == (30, 15)


def test_the_largest_force_arrives():
    verify = VerifyConfig(tighten=True, tighten_max_force=5.0)
    assert budgets(rule_of(verify, force=4.0)) == (30, 15)
    assert budgets(rule_of(verify, force=6.0)) == (9, 4)
    assert budgets(rule_of(verify, force=None)) == (9, 4)
    assert budgets(rule_of(VerifyConfig(tighten=True), force=6.0)) == (30, 15)


def test_by_default_no_height_is_low():
    assert budgets(rule_of(VerifyConfig(tighten=True), z=-5.0)) == (30, 15)


def test_skip_rules_without_thresholds():
    assert build_skip(SkipConfig()) == FixedSkip(False)
    assert build_skip(SkipConfig(rule="always")) == FixedSkip(True)
    scheduled = build_skip(SkipConfig(rule="schedule", max_consecutive=1))
    assert isinstance(scheduled, ScheduledSkip)
    asked, retrieved = request(), draft(DraftKind.RETRIEVAL)
    assert [scheduled.should_skip(retrieved, asked) for _ in range(2)] == [True, False]


def test_a_missing_checkpoint_is_told_before_torch_is_loaded():
    code = """
import sys
from heisd_ros.build import build_target
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.errors import ModelError
try:
    build_target(replace(HeisdConfig(), model__checkpoint="/nowhere"))
except ModelError as error:
    print("torch" in sys.modules, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False no checkpoint folder at /nowhere"), done


@pytest.mark.parametrize("wanted", [True, False])
def test_garbage_collection_is_as_before_after_a_model_was_loaded(tmp_path, wanted):
    tiny = pytest.importorskip("heisd_ros.models.tiny", exc_type=ImportError)
    config = replace(
        HeisdConfig(), model__checkpoint=str(tiny.make_tiny_checkpoint(tmp_path)), model__threads=1
    )
    try:
        (gc.enable if wanted else gc.disable)()
        build_target(replace(config, model__self_check=False))
        assert gc.isenabled() is wanted
    finally:
        gc.enable()
