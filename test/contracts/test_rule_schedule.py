"""What every schedule of acceptance rules promises."""

import numpy as np
import pytest
from fakes import HashTarget, some_request

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.decode.decoder import no_draft
from heisd_ros.draft.tree import DraftTree
from heisd_ros.protocols import AcceptanceRule, RuleSchedule
from heisd_ros.types import Draft, DraftKind, Verified
from heisd_ros.verify.acceptance import SequenceRelaxedAcceptance, TokenRelaxedAcceptance
from heisd_ros.verify.kerv import DecayingSchedule, VariableSchedule
from heisd_ros.verify.schedule import FixedSchedule, KindSchedule
from heisd_ros.verify.tightening import TighteningSchedule

WIDEST = TokenRelaxedAcceptance(15)
PAST = np.array([[31800, 31810, 31820, 31872, 31872, 31880, 31744]] * 3)
MAKERS = {
    "fixed": lambda: FixedSchedule(WIDEST),
    "by kind": lambda: KindSchedule(
        {DraftKind.AR: VariableSchedule(ActionTokenizer())}, FixedSchedule(WIDEST)
    ),
    "decaying": DecayingSchedule,
    "variable": lambda: VariableSchedule(ActionTokenizer()),
    "tightening": lambda: TighteningSchedule(FixedSchedule(WIDEST)),
}


def drafted(seed):
    """Return request, draft and verification of a step whose draft is a little off."""
    target = HashTarget(seed, spread=100)
    chain = np.clip(target.greedy() + np.array([1, 2, 0, 3, 1, 2, 0]), 31744, 31999)
    tree = DraftTree.chain(chain[:6])
    draft = Draft(DraftKind.RETRIEVAL, tree, np.ones(1, np.float32), chain[None], np.zeros((1, 7)))
    return some_request(history=PAST), draft, tree, target.start(None, None, tree)


def run(schedule, seeds):
    rules = []
    for seed in seeds:
        request, draft, tree, answer = drafted(seed)
        rules.append(schedule.rule(request, draft))
        accepted = rules[-1].accept(tree, answer.target_next)
        schedule.observe(Verified(tree, answer, accepted))
    return rules


@pytest.mark.parametrize("name", MAKERS)
class TestRuleSchedule:
    def test_implements_the_protocol(self, name):
        assert isinstance(MAKERS[name](), RuleSchedule)

    def test_every_step_gets_a_rule_even_without_a_draft(self, name):
        schedule = MAKERS[name]()
        assert isinstance(schedule.rule(some_request(), no_draft("")), AcceptanceRule)
        for rule in run(schedule, range(8)):
            assert isinstance(rule, AcceptanceRule)

    def test_after_a_reset_the_episode_repeats_itself(self, name):
        schedule = MAKERS[name]()
        run(schedule, range(5))
        schedule.reset()
        assert run(schedule, range(8)) == run(MAKERS[name](), range(8))

    def test_no_rule_is_wider_than_the_widest(self, name):
        for seed, rule in enumerate(run(MAKERS[name](), range(30))):
            _, _, tree, answer = drafted(seed)
            path = rule.accept(tree, answer.target_next).path
            assert len(path) <= len(WIDEST.accept(tree, answer.target_next).path)

    def test_asking_twice_gives_the_same_rule(self, name):
        schedule = MAKERS[name]()
        request, draft, _, _ = drafted(3)
        assert schedule.rule(request, draft) == schedule.rule(request, draft)


def test_tightening_keeps_the_kind_of_rule():
    schedule = TighteningSchedule(FixedSchedule(SequenceRelaxedAcceptance()))
    request, draft, _, _ = drafted(0)
    assert isinstance(schedule.rule(request, draft), SequenceRelaxedAcceptance)
