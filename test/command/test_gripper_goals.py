import pytest

from heisd_ros.command.gripper_goals import GripperGoals, outcome
from heisd_ros.command.reasons import Reason
from heisd_ros.errors import ConfigError

MS = 1_000_000


def goals():
    return GripperGoals(2000 * MS)


def test_before_the_first_decision_nothing_is_sent():
    assert goals().next_goal(0, present=True) is None


def test_a_goal_is_sent_once_and_again_only_for_another_opening():
    state = goals()
    state.want(1.0)
    assert state.next_goal(0, present=True) == 1.0
    assert state.ended(state.outstanding)
    assert state.next_goal(1, present=True) is None
    state.want(1.0)
    assert state.next_goal(2, present=True) is None
    state.want(0.0)
    assert state.next_goal(3, present=True) == 0.0


def test_an_absent_gripper_is_told_once_and_gets_the_newest_goal_when_it_appears():
    state = goals()
    state.want(1.0)
    told = []
    for _ in range(3):
        assert state.next_goal(0, present=False) is None
        told.append(state.absence())
    assert told == [Reason.GRIPPER_ABSENT, None, None]
    state.want(0.0)
    assert state.next_goal(1, present=True) == 0.0
    assert state.absence() is None


def test_a_gripper_that_was_away_gets_its_goal_again():
    state = goals()
    state.want(1.0)
    state.next_goal(0, present=True)
    state.ended(1)
    assert state.next_goal(1, present=False) is None
    assert state.next_goal(2, present=True) == 1.0


def test_there_is_one_outstanding_goal_and_a_new_wish_cancels_it():
    state = goals()
    state.want(1.0)
    state.next_goal(0, present=True)
    assert not state.should_cancel
    state.want(0.0)
    assert state.should_cancel
    assert state.next_goal(1, present=True) is None
    state.ended(1)
    assert state.next_goal(2, present=True) == 0.0


def test_a_goal_without_an_end_is_given_up_after_the_deadline_and_its_end_is_ignored():
    state = goals()
    state.want(1.0)
    state.next_goal(0, present=True)
    assert not state.expired(2000 * MS)
    assert state.expired(2000 * MS + 1)
    assert not state.expired(2000 * MS + 2)
    assert state.next_goal(2001 * MS, present=True) is None  # not again before a change
    state.want(0.0)
    assert state.next_goal(2002 * MS, present=True) == 0.0
    assert not state.ended(1)  # the old goal answers at last
    assert state.outstanding == 2


def test_a_deadline_that_never_comes_is_refused():
    with pytest.raises(ConfigError, match="deadline"):
        GripperGoals(0)


@pytest.mark.parametrize(
    ("succeeded", "cancelled", "stalled", "reached", "failed"),
    [
        (True, False, False, True, False),
        (False, False, True, False, False),  # aborted because it holds something: a grasp
        (False, True, False, False, False),
        (False, False, False, False, True),
    ],
)
def test_stalled_fingers_hold_something(succeeded, cancelled, stalled, reached, failed):
    reason = outcome(succeeded=succeeded, cancelled=cancelled, stalled=stalled, reached=reached)
    assert reason is (Reason.GRIPPER_FAILED if failed else None)
