"""What every skip rule promises."""

import dataclasses

import numpy as np
import pytest
from fakes import some_request

from heisd_ros.decode.decoder import no_draft
from heisd_ros.draft.tree import DraftTree
from heisd_ros.protocols import SkipRule
from heisd_ros.types import Draft, DraftKind, Verification, Verified
from heisd_ros.verify.acceptance import ExactAcceptance
from heisd_ros.verify.audit import AuditedSkip, AuditRecord, AuditSettings
from heisd_ros.verify.remembered_skip import RememberedSkip
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.skip_table import SkipState, SkipTable
from heisd_ros.verify.skip_thresholds import SkipThresholds
from heisd_ros.verify.verify_skip import ScheduledSkip, SkipSettings, VerifySkip

CHAIN = [31800, 31801, 31802, 31803, 31804, 31805, 31744]
CHAINS = np.array([CHAIN, CHAIN])
TREE = DraftTree.from_chains(CHAINS)
SCORES = np.array([0.95, 0.94], np.float32)
DRAFT = Draft(DraftKind.RETRIEVAL, TREE, SCORES, CHAINS, np.zeros((2, 7)))
REQUEST = dataclasses.replace(some_request("bowl", CHAINS), position=np.zeros(3))
ANSWERS = np.array(CHAIN)
VERIFIED = Verified(TREE, Verification(ANSWERS), ExactAcceptance().accept(TREE, ANSWERS))
TABLE = SkipTable(SkipThresholds(0.9, 0.02))
TRUSTED = AuditRecord(audits=300)
SETTINGS = SkipSettings(max_consecutive=2)


def audited():
    rng = np.random.default_rng(0)
    return AuditedSkip(
        VerifySkip(TABLE, SETTINGS), rng=rng, settings=AuditSettings(0.01), record=TRUSTED
    )


MAKERS = {
    "never": lambda: FixedSkip(False),
    "always": lambda: FixedSkip(True),
    "schedule": lambda: ScheduledSkip(2),
    "adaptive": lambda: VerifySkip(TABLE, SETTINGS),
    "audited": audited,
    "remembered": lambda: RememberedSkip(SkipState.fresh(TABLE), settings=SETTINGS),
}


def steps(rule, count, draft=DRAFT):
    """Run some steps as the loop does and return what was skipped."""
    skipped = []
    for _ in range(count):
        skipped.append(rule.should_skip(draft, REQUEST))
        if not skipped[-1]:
            rule.observe(draft, REQUEST, VERIFIED)
    return skipped


@pytest.mark.parametrize("name", MAKERS)
class TestSkipRule:
    def test_implements_the_protocol(self, name):
        assert isinstance(MAKERS[name](), SkipRule)

    def test_answers_yes_or_no(self, name):
        assert set(map(type, steps(MAKERS[name](), 6))) == {bool}

    def test_without_a_draft_there_is_nothing_to_execute(self, name):
        rule = MAKERS[name]()
        rule.observe(DRAFT, REQUEST, VERIFIED)
        assert not any(steps(rule, 4, no_draft("unknown_task")))

    def test_after_a_reset_an_episode_repeats_itself(self, name):
        rule = MAKERS[name]()
        steps(rule, 5)
        rule.reset()
        again = steps(rule, 5)
        assert again == steps(MAKERS[name](), 5)

    def test_the_end_of_a_task_ends_the_episode_too(self, name):
        rule = MAKERS[name]()
        steps(rule, 2)
        rule.end_episode(True)
        assert steps(rule, 5) == steps(MAKERS[name](), 5)

    def test_nothing_it_is_shown_is_changed(self, name):
        before = [DRAFT.chains.copy(), DRAFT.scores.copy(), REQUEST.history.copy()]
        steps(MAKERS[name](), 6)
        for shown, kept in zip((DRAFT.chains, DRAFT.scores, REQUEST.history), before, strict=True):
            assert np.array_equal(shown, kept)


@pytest.mark.parametrize("name", ["adaptive", "audited", "remembered"])
def test_learning_rules_verify_the_first_step_of_an_episode_and_every_third(name):
    assert steps(MAKERS[name](), 7) == [False, True, True, False, True, True, False]


@pytest.mark.parametrize("name", ["schedule", "adaptive", "audited", "remembered"])
def test_whoever_weighs_says_what_spoke_against_a_skip(name):
    rule = MAKERS[name]()
    for draft in [DRAFT] * 4 + [no_draft("unknown_task")]:
        skipped = rule.should_skip(draft, REQUEST)
        assert skipped is not bool(rule.vetoes)
        if not skipped:
            rule.observe(DRAFT, REQUEST, VERIFIED)
    assert rule.vetoes == ("retrieved",)


@pytest.mark.parametrize("name", ["never", "always"])
def test_whoever_weighs_nothing_has_no_veto(name):
    rule = MAKERS[name]()
    rule.should_skip(DRAFT, REQUEST)
    assert rule.vetoes == ()


@pytest.mark.parametrize("name", ["schedule", "adaptive", "audited", "remembered"])
def test_only_retrieved_drafts_are_executed_unverified(name):
    rule = MAKERS[name]()
    rule.observe(DRAFT, REQUEST, VERIFIED)
    for kind in set(DraftKind) - {DraftKind.RETRIEVAL}:
        assert not rule.should_skip(dataclasses.replace(DRAFT, kind=kind), REQUEST)
