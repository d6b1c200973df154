"""Verify-skip, predicate by predicate; the published 2:1 schedule; feedback."""

import dataclasses

import numpy as np
import pytest
from fakes import some_request

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ShapeError
from heisd_ros.types import Acceptance, Draft, DraftKind, Verification, Verified
from heisd_ros.verify.skip_table import SkipTable
from heisd_ros.verify.skip_thresholds import SkipThresholds
from heisd_ros.verify.verify_skip import ScheduledSkip, SkipSettings, VerifySkip, spread

OPEN, CLOSED = 31744, 31872
VERIFIED = Verified(
    DraftTree.from_paths([]),
    Verification(np.array([31800])),
    Acceptance(np.array([31800]), 1, np.zeros(0, int), None, np.zeros(0, int)),
)


def draft(*offsets, score=0.95, gripper=OPEN, kind=DraftKind.RETRIEVAL):
    chains = np.array([[31800 + o] * 6 + [gripper] for o in offsets or (0,)])
    scores = np.full(len(chains), score, np.float32)
    return Draft(kind, DraftTree.from_chains(chains), scores, chains, np.zeros((len(chains), 7)))


def request(x=0.0, gripper=OPEN):
    past = np.array([[31800] * 6 + [gripper]])
    return dataclasses.replace(some_request(history=past), position=np.array([x, 0.0, 0.3]))


def anchored(max_consecutive=2):
    rule = VerifySkip(SkipThresholds(0.94, 0.02), SkipSettings(max_consecutive=max_consecutive))
    rule.observe(draft(), request(0.0), VERIFIED)
    return rule


def test_skips_near_the_last_verified_point():
    assert anchored().should_skip(draft(), request(0.019))


@pytest.mark.parametrize(
    ("predicate", "the_draft", "the_request"),
    [
        ("retrieved", draft(kind=DraftKind.KINEMATIC), request()),
        ("near", draft(), request(0.021)),
        ("similar", draft(score=0.89), request()),
        ("agreed", draft(0, 21), request()),  # half of 21 bins on three axes: 31.5 > 30
        ("gripper", draft(gripper=CLOSED), request(gripper=OPEN)),
    ],
)
def test_each_predicate_alone_prevents_a_skip(predicate, the_draft, the_request):
    rule = anchored()
    assert not rule.should_skip(the_draft, the_request)
    assert getattr(rule.last_decision, predicate) is False
    assert rule.vetoes == (predicate,)


def test_never_before_the_first_verification_of_an_episode():
    rule = VerifySkip(SkipThresholds(0.94, 0.02))
    assert not rule.should_skip(draft(), request())
    rule = anchored()
    rule.reset()
    assert not rule.should_skip(draft(), request())


def test_at_most_so_many_in_a_row_and_again_after_a_verification():
    rule = anchored(max_consecutive=2)
    assert [rule.should_skip(draft(), request()) for _ in range(3)] == [True, True, False]
    rule.observe(draft(), request(), VERIFIED)
    assert rule.should_skip(draft(), request())


def test_disagreeing_grippers_are_never_skipped():
    mixed = draft(0, 0)
    mixed.chains[1, 6] = CLOSED
    assert not anchored().should_skip(mixed, request())


def test_the_outcome_counts_only_if_something_was_skipped():
    rule = anchored()
    rule.end_episode(success=False)
    assert rule.table.of("pick it").max_distance == 0.02
    rule = anchored()
    rule.should_skip(draft(), request())
    rule.end_episode(success=False)
    assert rule.table.of("pick it").max_distance == pytest.approx(0.02 / 1.2)


def test_feedback_moves_the_task_that_skipped_and_no_other():
    rule = anchored()
    rule.should_skip(draft(), request())
    rule.end_episode(success=True)
    assert rule.table.of("pick it").max_distance == pytest.approx(0.02 * 1.05)
    assert rule.table.of("another task").max_distance == 0.02


def test_a_task_without_thresholds_is_never_skipped():
    rule = VerifySkip(SkipTable(SkipThresholds(0.94, 0.02), {"pick it": None}))
    rule.observe(draft(), request(), VERIFIED)
    assert not rule.should_skip(draft(), request())
    other = dataclasses.replace(request(), task="another task")
    assert rule.should_skip(draft(), other)


def test_chains_that_were_not_retrieved_have_no_word():
    far = draft(0, 100, gripper=OPEN)
    far.chains[1, 6] = CLOSED
    merged = dataclasses.replace(far, scores=far.scores[:1])  # the second chain is a filter's
    assert spread(merged) == 0.0
    assert anchored().should_skip(merged, request())


def featured(*feature):
    return dataclasses.replace(draft(), features=np.array([feature], np.float32))


def test_stored_features_are_compared_with_the_last_verified_one():
    answer = Verification(np.array([31800]), hidden=np.array([[1.0, 0.0], [0.0, 1.0]]))
    rule = VerifySkip(SkipThresholds(0.94, 0.02))
    rule.observe(featured(1, 0), request(), dataclasses.replace(VERIFIED, answer=answer))
    assert rule.should_skip(featured(1, 0.3), request())  # cosine 0.958
    assert rule.last_decision.alike is True
    assert not rule.should_skip(featured(1, 0.4), request())  # cosine 0.928
    assert rule.last_decision.alike is False


def test_without_stored_features_the_predicate_says_that_it_is_not_available():
    rule = anchored()
    assert rule.should_skip(draft(), request())
    assert rule.last_decision.alike is None


def test_a_verified_step_without_a_feature_is_no_anchor_for_features():
    rule = anchored()  # anchored by a draft without features
    assert not rule.should_skip(featured(1, 0), request())


def test_features_of_another_model_are_refused():
    answer = Verification(np.array([31800]), hidden=np.ones((1, 3)))
    rule = VerifySkip(SkipThresholds(0.94, 0.02))
    rule.observe(featured(1, 0), request(), dataclasses.replace(VERIFIED, answer=answer))
    with pytest.raises(ShapeError, match="this checkpoint"):
        rule.should_skip(featured(1, 0), request())


def test_published_schedule_is_skip_skip_verify():
    rule = ScheduledSkip(2)
    seen = []
    for _ in range(6):
        seen.append(rule.should_skip(draft(), request()))
        if not seen[-1]:
            rule.observe(draft(), request(), VERIFIED)
    assert seen == [True, True, False, True, True, False]


def test_spread_is_the_summed_half_range_of_the_position():
    assert spread(draft(0, 4, 10)) == 15.0  # 10 / 2 on each of three axes
