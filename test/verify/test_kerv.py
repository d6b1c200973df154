"""KERV: the published curve, variability by hand, compensation only where it is due."""

import numpy as np
import pytest
from fakes import HashTarget, some_request

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.draft.continuation import AutoregressiveContinuation
from heisd_ros.draft.kinematic import KalmanFilter
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import Continuation, RuleSchedule
from heisd_ros.types import Draft, DraftKind, Verification, Verified
from heisd_ros.verify.acceptance import ExactAcceptance, TokenRelaxedAcceptance
from heisd_ros.verify.kerv import DecayingSchedule, KervContinuation, VariableSchedule

OPEN, CLOSED = 31744, 31872
NOTHING = Draft(
    DraftKind.DRAFTER, None, np.zeros(0, np.float32), np.zeros((0, 7), int), np.zeros((0, 7))
)
BIN = 2 / 255


def request(steps, token=31800, gripper=CLOSED):
    return some_request(history=np.tile([token] * 6 + [gripper], (steps, 1)))


def verified(drafted, wanted, rule=None, known=0):
    """A chain whose node j is verified against wanted[j]; the target goes on with wanted[-1]."""
    tree = DraftTree.chain(drafted)
    answers = np.array(wanted)
    accepted = (rule or TokenRelaxedAcceptance(15)).accept(tree, answers)
    return Verified(tree, Verification(answers), accepted, known)


@pytest.mark.parametrize(
    ("step", "expected", "bins"),
    [(0, 15, 15), (20, 14.4, 14), (40, 10.9, 10), (60, 6.0, 5), (80, 3.4, 3), (110, 3.0, 3)],
)
def test_decay_is_that_of_the_published_code(step, expected, bins):
    schedule = DecayingSchedule()
    assert isinstance(schedule, RuleSchedule)
    assert schedule.tolerance(step) == pytest.approx(expected, abs=0.05)
    # Biases are whole numbers: |d - v| <= 14.4 is |d - v| <= 14; r(60) is 5.96.
    assert schedule.rule(request(step), NOTHING) == TokenRelaxedAcceptance(bins)


def test_variability_starts_cautious_and_follows_the_accepted_tokens():
    schedule = VariableSchedule(ActionTokenizer(), reference=10 * BIN, keep=0.5)
    assert isinstance(schedule, RuleSchedule)
    assert schedule.rule(request(0), NOTHING) == TokenRelaxedAcceptance(5)
    schedule.observe(verified([31800, 31810], [31800, 31810, 31820]))
    assert schedule.rule(request(1), NOTHING) == TokenRelaxedAcceptance(15)  # no deviation at all
    # 4 bins once: K = .5 * 0 + .5 * 4 = 2 of 10 bins, r = 5 + 10 * .8 = 13.
    schedule.observe(verified([31804], [31800, 31820]))
    assert schedule.variability == pytest.approx(2 * BIN)
    assert schedule.tolerance() == pytest.approx(13)
    schedule.reset()
    assert schedule.tolerance() == 5


def test_large_variability_gives_the_lowest_tolerance():
    schedule = VariableSchedule(ActionTokenizer(), reference=5 * BIN)
    schedule.observe(verified([31812], [31800, 31820]))
    assert schedule.tolerance() == 5


def test_rejected_tokens_and_known_roots_do_not_count():
    schedule = VariableSchedule(ActionTokenizer())
    schedule.observe(verified([31900], [31800, 31820]))
    assert schedule.variability is None
    schedule.observe(verified([31800], [31800, 31820], known=1))
    assert schedule.variability is None
    schedule.observe(verified([31800, 31813], [31800, 31810, 31820], known=1))
    assert schedule.variability == pytest.approx(3 * BIN)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DecayingSchedule(low=5, high=3),
        lambda: DecayingSchedule(horizon=0),
        lambda: VariableSchedule(ActionTokenizer(), reference=0.0),
        lambda: VariableSchedule(ActionTokenizer(), keep=1.0),
        lambda: KervContinuation(AutoregressiveContinuation(), ActionTokenizer(), period=0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def continuation(**options):
    return KervContinuation(AutoregressiveContinuation(), ActionTokenizer(), **options)


REJECTED = verified([31700 + 200, 31801], [31800, 31801, 31802], ExactAcceptance())
ACCEPTED = verified([31800], [31800, 31850], ExactAcceptance())


@pytest.mark.parametrize(
    ("steps", "due"), [(0, False), (2, False), (3, True), (4, False), (7, True)]
)
def test_every_fourth_step_is_filled_from_the_filter_once_a_draft_is_rejected(steps, due):
    kerv = continuation()
    assert isinstance(kerv, Continuation)
    kerv.begin(request(steps, 31805), NOTHING)
    tokens = kerv.finish(np.array([31790, 31791]), REJECTED)
    # A constant history is predicted as it is; decided tokens stand, the gripper is held.
    filled = [31790, 31791, 31805, 31805, 31805, 31805, CLOSED]
    assert tokens.tolist() == (filled if due else [31790, 31791])


def test_without_a_rejection_verification_goes_on():
    kerv = continuation()
    kerv.begin(request(3), NOTHING)
    tokens = np.array([31800, 31850])
    assert kerv.finish(tokens, ACCEPTED).tolist() == tokens.tolist()
    assert kerv.propose(tokens, ACCEPTED).tokens.tolist() == [31850]


def test_the_first_steps_of_an_episode_have_nothing_to_filter():
    kerv = continuation(period=1)
    kerv.begin(request(0), NOTHING)
    assert kerv.finish(np.array([31800]), REJECTED).tolist() == [31800]


def test_predictions_follow_the_filter_round_and_stay_action_tokens():
    history = np.array([[31800 + 2 * t] * 5 + [31998 + (t > 0)] + [CLOSED] for t in range(5)])
    kerv = continuation(period=1)
    kerv.begin(some_request(history=history), NOTHING)
    # KERV's filter all but holds: 31807.998 is rounded to 31808.
    assert kerv.finish(np.array([31800]), REJECTED).tolist()[1:5] == [31808] * 4
    moving = continuation(period=1, kalman=KalmanFilter("constant_velocity", initial_variance=1e6))
    moving.begin(some_request(history=history), NOTHING)
    tokens = moving.finish(np.array([31800]), REJECTED)
    assert tokens[1:5].tolist() == [31810] * 4
    assert tokens[5] == 31999


def test_inner_continuation_hears_the_beginning():
    class Inner(AutoregressiveContinuation):
        def begin(self, request, draft):
            self.kind = draft.kind

    inner = Inner()
    KervContinuation(inner, ActionTokenizer()).begin(request(1), NOTHING)
    assert inner.kind is DraftKind.DRAFTER


def test_a_compensated_action_keeps_what_the_target_decided():
    """The loop with the proposed hook: finish after every verification."""
    target = HashTarget(4)
    kerv = continuation()
    asked = request(3, 31805)
    answer = target.start(np.array([1]), None)
    last = Verified(
        DraftTree.from_paths([]),
        answer,
        ExactAcceptance().accept(DraftTree.from_paths([]), answer.target_next),
    )
    kerv.begin(asked, NOTHING)
    tokens = kerv.finish(last.accepted.tokens, last)
    assert len(tokens) == 1  # an empty tree rejects nothing
    tree = DraftTree.chain([int(tokens[0]), 31744 if target.greedy()[1] != 31744 else 31745])
    answer = target.verify(tree)
    last = Verified(tree, answer, ExactAcceptance().accept(tree, answer.target_next), known=1)
    tokens = kerv.finish(np.concatenate([tokens[:-1], last.accepted.tokens]), last)
    assert tokens.tolist() == [*target.greedy()[:2], 31805, 31805, 31805, 31805, CLOSED]
    assert target.forwards == 2
