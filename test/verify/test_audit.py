"""Bounded-deviation skip: the bound by hand, unbiased audits, and the brake."""

import dataclasses

import numpy as np
import pytest
from fakes import some_request

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.protocols import SkipRule
from heisd_ros.types import Draft, DraftKind, Verification, Verified
from heisd_ros.verify.acceptance import ExactAcceptance
from heisd_ros.verify.audit import (
    AuditedSkip,
    AuditRecord,
    AuditSettings,
    clopper_pearson_upper,
    top_deviation,
)
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.skip_thresholds import SkipThresholds
from heisd_ros.verify.verify_skip import VerifySkip

OPEN, CLOSED = 31744, 31872
CHAIN = [31800, 31801, 31802, 31803, 31804, 31805]
TREE = DraftTree.chain(CHAIN)
REQUEST = some_request()


def draft(gripper=OPEN):
    scores = np.array([0.9], np.float32)
    return Draft(DraftKind.RETRIEVAL, TREE, scores, np.array([[*CHAIN, gripper]]), np.zeros((1, 7)))


def verified(bias=(0,) * 6, gripper=OPEN, tree=TREE):
    answers = np.array([*(np.array(CHAIN) + bias), gripper])[: 1 + len(tree)]
    return Verified(tree, Verification(answers), ExactAcceptance().accept(tree, answers))


class CountingSkip(FixedSkip):
    def __init__(self):
        super().__init__(True)
        object.__setattr__(self, "calls", [])

    def observe(self, *_):
        self.calls.append("observe")

    def end_episode(self, success):
        self.calls.append(f"end {success}")

    def reset(self):
        self.calls.append("reset")


def audited(record=None, inner=None, seed=0, **settings):
    rng = np.random.default_rng(seed)
    inner = inner or FixedSkip(True)
    return AuditedSkip(inner, rng=rng, settings=AuditSettings(**settings), record=record)


@pytest.mark.parametrize(
    ("failures", "trials", "bound"),
    # 0 of n: 1 - .05^(1/n). 1 of 2: P(X <= 1) = 1 - p^2 = .05 at p = sqrt(.95) = .9747.
    [(0, 60, 0.0487), (0, 300, 0.00994), (0, 1, 0.95), (1, 2, 0.9747), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_bound_is_that_of_clopper_and_pearson(failures, trials, bound):
    assert clopper_pearson_upper(failures, trials) == pytest.approx(bound, rel=2e-3)


@pytest.mark.parametrize(
    ("failures", "trials", "confidence", "bound"),
    # The upper bound is the quantile of a beta distribution; values from scipy.stats.beta.
    [
        (1, 20, 0.95, 0.2161061642),
        (7, 100, 0.90, 0.1149028166),
        (40, 500, 0.99, 0.1126890687),
        (999, 1000, 0.95, 0.9999487080),
    ],
)
def test_bound_equals_the_beta_quantile(failures, trials, confidence, bound):
    got = clopper_pearson_upper(failures, trials, confidence=confidence)
    assert got == pytest.approx(bound, abs=1e-9)


def test_impossible_counts_are_refused():
    with pytest.raises(DataError, match="3 of 2"):
        clopper_pearson_upper(3, 2)
    with pytest.raises(DataError):
        AuditRecord(1, 2)


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"max_share": 0.0}, {"confidence": 1.0}, {"max_deviation": -1}]
)
def test_settings_that_could_show_nothing_are_refused(wrong):
    with pytest.raises(ConfigError):
        AuditSettings(**wrong)


def test_deviation_is_the_largest_token_bias_under_the_drafts_own_prefix():
    tokenizer = ActionTokenizer()
    assert top_deviation(draft(), verified((0, 3, -7, 1, 0, 2)), tokenizer) == 7
    assert top_deviation(draft(), verified(), tokenizer) == 0


def test_another_gripper_state_is_never_harmless():
    tokenizer = ActionTokenizer()
    assert top_deviation(draft(OPEN), verified(gripper=CLOSED), tokenizer) == np.inf
    # 31745 and 31744 are both open: the same state, whatever the token.
    assert top_deviation(draft(OPEN), verified(gripper=31745), tokenizer) == 0
    assert top_deviation(draft(OPEN), verified(gripper=278), tokenizer) == np.inf


def test_a_draft_that_was_not_verified_counts_as_wrong():
    cut = DraftTree.chain(CHAIN[:3])
    assert top_deviation(draft(), verified((0, 0, 0, 0, 0, 0), tree=cut), ActionTokenizer()) == (
        np.inf
    )


def test_nothing_is_skipped_until_enough_audits_were_clean():
    rule = audited()
    assert isinstance(rule, SkipRule)
    steps = 0
    while not rule.should_skip(draft(), REQUEST):
        rule.observe(draft(), REQUEST, verified())
        steps += 1
    # 1 - .05^(1/58) = .0503 > .05 >= .0495 = 1 - .05^(1/59).
    assert rule.record == AuditRecord(steps, 0)
    assert steps >= 59
    assert rule.bound <= 0.05


def test_one_in_ten_skips_is_audited():
    rule = audited(AuditRecord(1000, 0))
    skipped = 0
    for _ in range(5000):
        if rule.should_skip(draft(), REQUEST):
            skipped += 1
        else:
            rule.observe(draft(), REQUEST, verified())
    assert skipped == pytest.approx(4500, abs=75)  # 3.5 standard deviations
    assert rule.record.audits == 1000 + 5000 - skipped


def test_a_rising_bound_stops_the_skips_and_clean_audits_bring_them_back():
    rule = audited(AuditRecord(60, 0), rate=1.0)
    assert rule.bound < 0.05
    assert not rule.should_skip(draft(), REQUEST)
    assert rule.vetoes == ("audit",)
    rule.observe(draft(), REQUEST, verified((16, 0, 0, 0, 0, 0)))
    assert rule.record == AuditRecord(61, 1)
    assert rule.bound == pytest.approx(0.0755, abs=5e-4)  # beta(.95; 2, 60)
    rule = audited(rule.record, rate=1e-9)
    # One failure in 93 audits is the first record below 5 %.
    while not rule.should_skip(draft(), REQUEST):
        rule.observe(draft(), REQUEST, verified((15, 0, 0, 0, 0, 0)))
    assert rule.record == AuditRecord(93, 1)


def test_verifications_that_were_no_audit_do_not_count():
    rule = audited(inner=FixedSkip(False))
    assert not rule.should_skip(draft(), REQUEST)
    rule.observe(draft(), REQUEST, verified((99, 0, 0, 0, 0, 0)))
    assert rule.record == AuditRecord(0, 0)


def test_a_wrong_rule_is_found_out():
    """A skip rule that is wrong in 20 % of its steps soon skips nothing."""
    rule = audited(AuditRecord(100, 0), seed=3)
    rng = np.random.default_rng(4)
    skipped = [False] * 500
    for step in range(500):
        skipped[step] = rule.should_skip(draft(), REQUEST)
        if not skipped[step]:
            bias = 50 if rng.random() < 0.2 else 0
            rule.observe(draft(), REQUEST, verified((bias, 0, 0, 0, 0, 0)))
    assert not any(skipped[250:])
    assert rule.bound > 0.15


def test_inner_rule_hears_everything_and_audits_survive_the_episode():
    inner = CountingSkip()
    rule = audited(inner=inner)
    rule.should_skip(draft(), REQUEST)
    rule.observe(draft(), REQUEST, verified())
    rule.end_episode(True)
    rule.reset()
    assert inner.calls == ["observe", "end True", "reset"]
    assert rule.record == AuditRecord(1, 0)


def adaptive(record):
    """An audited rule of learned thresholds, anchored where its request is."""
    request = dataclasses.replace(
        some_request(history=np.array([[31800] * 6 + [OPEN]])), position=np.zeros(3)
    )
    inner = VerifySkip(SkipThresholds(0.94, 0.02))
    rule = audited(record, inner, rate=1e-9)
    rule.observe(draft(), request, verified())
    return rule, inner, request


def test_an_episode_whose_skips_were_all_audited_teaches_nothing():
    """Regression: thresholds moved in episodes that had not executed a single unverified draft."""
    rule, inner, request = adaptive(AuditRecord())
    for _ in range(3):
        assert not rule.should_skip(draft(), request)
        assert rule.vetoes == ("audit",)
        rule.observe(draft(), request, verified())
    rule.end_episode(success=False)
    assert inner.table.of(request.task) == SkipThresholds(0.94, 0.02)


def test_one_executed_skip_counts_whatever_is_audited_behind_it():
    rule, inner, request = adaptive(AuditRecord(1000, 0))
    assert rule.should_skip(draft(), request)
    rule.record, rule._bound = AuditRecord(1, 1), 1.0  # from here on everything is audited
    assert not rule.should_skip(draft(), request)
    rule.observe(draft(), request, verified())
    rule.end_episode(success=False)
    assert inner.table.of(request.task).max_distance == pytest.approx(0.02 / 1.2)
