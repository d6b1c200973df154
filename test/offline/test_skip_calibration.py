"""Algorithm 1's offline stage: pairs by hand, held-out episodes, and the target as the judge."""

import dataclasses

import numpy as np
import pytest
from fakes import HashTarget

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.build import Components
from heisd_ros.config import HeisdConfig
from heisd_ros.demonstrations.episode import Episode
from heisd_ros.errors import DataError
from heisd_ros.offline.skip_calibration import summary
from heisd_ros.offline.skip_learning import Pairs, held_out, learn, learn_bounds, pairs_of
from heisd_ros.offline.skip_tracks import (
    Neighbours,
    SkipTrack,
    accepted_whole,
    eligible_steps,
    judge_task,
    nearest,
)
from heisd_ros.types import VisualFeatures
from heisd_ros.verify.acceptance import SequenceRelaxedAcceptance
from heisd_ros.verify.skip_thresholds import SkipThresholds

OPEN, CLOSED = 31744, 31872
FACTS = {"floor": 0.9, "error": 0.0}


def turning(degrees, *, ok, eligible=True, task="bowl"):
    """Steps 1 cm apart whose feature turns by some degrees per step."""
    n = len(ok)
    angle = np.radians(degrees) * np.arange(n)
    return SkipTrack(
        task,
        np.c_[0.01 * np.arange(n), np.zeros((n, 2))],
        np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32),
        np.array(ok, dtype=bool),
        np.full(n, eligible),
        np.ones(n, np.float32),
    )


def test_pairs_are_at_most_the_window_apart_and_carry_the_later_draft():
    pairs = pairs_of([turning(10, ok=(1, 0, 1))], window=2)
    # Steps 0 and 1, 1 and 2, 0 and 2.
    assert pairs.distance == pytest.approx([0.01, 0.01, 0.02])
    assert pairs.similarity == pytest.approx(np.cos(np.radians([10, 10, 20])), abs=1e-6)
    assert pairs.acceptable.tolist() == [False, True, True]
    assert len(pairs_of([turning(10, ok=(1, 0, 1))], window=1).distance) == 2


def test_pairs_never_cross_episodes():
    two = pairs_of([turning(1, ok=(1, 1)), turning(1, ok=(1, 1))])
    assert len(two.distance) == 2


def test_bounds_count_eligible_pairs_only_and_hold_for_the_distance_alone():
    ok, eligible = np.array([1, 1, 0, 0], bool), np.array([1, 1, 0, 1], bool)
    similarity, distance = np.array([0.99, 0.97, 0.98, 0.95]), np.array([0.03, 0.01, 0.005, 0.02])
    found = learn_bounds(Pairs(similarity, distance, ok, eligible), **FACTS)
    # By similarity .99 and .97 are fine, so O_dist could be 0.03; by distance 0.02 is bad.
    assert (found.min_similarity, found.max_distance) == (0.97, 0.01)


def test_held_out_pairs_are_counted_inside_the_bounds():
    track = turning(10, ok=(1, 1, 0, 1))
    counts = held_out(SkipThresholds(0.95, 0.02), [track])
    # 1 apart: 3 pairs, 1 bad; 2 apart (0.02 m, cos 20 = 0.94): 2 pairs, 1 bad.
    assert counts["distance"]["pairs"] == 5
    assert counts["distance"]["unacceptable"] == 2
    assert counts["distance_and_feature"]["pairs"] == 3
    assert held_out(None, [track]) == {}


def test_learning_keeps_every_fifth_episode_of_a_task_apart():
    tracks = [turning(1, ok=(1, 1, 1)) for _ in range(5)]
    tracks[2] = turning(1, ok=(0, 0, 0))  # the one that is held out
    made = learn("spatial", tracks)
    assert made.tables["calibrated"].of("bowl").max_distance == pytest.approx(0.02)
    test = made.facts["held_out"]["calibrated"]["tasks"]["bowl"]["distance"]
    assert (test["pairs"], test["unacceptable"], test["upper_95"]) == (3, 3, 1.0)
    assert made.facts["acceptable_share"] == pytest.approx(12 / 15)


def test_task_without_an_acceptable_draft_is_never_skipped_and_said_so():
    tracks = [turning(1, ok=(1, 1, 1)), turning(1, ok=(0, 0, 0), task="plate")]
    made = learn("spatial", tracks)
    assert made.tables["paper"].of("plate") is made.tables["calibrated"].of("plate") is None
    assert any("plate: nothing may be skipped" in line for line in summary(made))


def test_nearest_is_by_cosine_best_first():
    found = nearest(
        np.eye(2)[:1], np.array([[0, 1], [1, 0], [0.6, 0.8]]), np.arange(21).reshape(3, 7), 2
    )
    assert found.score.tolist() == [[1.0, 0.6]]
    assert found.tokens[0, :, 0].tolist() == [7, 14]


@pytest.mark.parametrize(
    ("bias", "gripper", "accepted"),
    [
        ((15, 15, 0, 0, 0, 0), OPEN, True),
        ((15, 15, 1, 0, 0, 0), OPEN, False),
        ((0, 0, 0, 0, 16, 0), OPEN, False),
        ((0, 0, 0, 10, 10, 10), 31808, True),  # decodes to open as well
        ((0,) * 6, CLOSED, False),
    ],
)
def test_draft_is_accepted_whole_or_not(bias, gripper, accepted):
    draft = np.array([31800] * 6 + [OPEN])
    answers = np.array([*(31800 + np.array(bias)), gripper])
    assert accepted_whole(draft, answers, SequenceRelaxedAcceptance()) is accepted


def test_eligible_steps_repeat_the_online_predicates():
    chain = [31800] * 6
    same, far = [[*chain, OPEN]] * 2, [[*chain, OPEN], [31800 + 21] * 3 + [31800] * 3 + [OPEN]]
    mixed = [[*chain, OPEN], [*chain, CLOSED]]
    tokens = np.array([same, same, far, mixed, same, same])
    score = np.array([[0.95, 0.9]] * 4 + [[0.89, 0.8]] + [[0.95, 0.9]], np.float32)
    executed = np.array([[*chain, OPEN]] * 4 + [[*chain, CLOSED]] * 2)
    # No step before the first; then fine; then spread; gripper; score; the last one was closed.
    assert eligible_steps(Neighbours(tokens, score), executed, HeisdConfig()).tolist() == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]


class Eyes:
    """The embedding turns with the brightness of the first pixel."""

    def encode(self, frames):
        angle = float(frames[0].image[0, 0, 0]) / 100.0
        return VisualFeatures(frames, np.array([np.cos(angle), np.sin(angle)], np.float32))


class Featured(HashTarget):
    def start(self, prompt, patches, draft=None, *, state=None):
        return dataclasses.replace(
            super().start(prompt, patches, draft, state=state),
            hidden=np.ones((1 + len(draft), 4)),
        )


STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 6 + [0.0], "q99": [1.0] * 6 + [1.0], "mask": [True] * 6 + [False]}
)
PARTS = Components(Featured(), Eyes(), ActionTokenizer(), STATISTICS, None)


def episode(actions):
    n = len(actions)
    images = np.zeros((n, 1, 2, 2, 3), np.uint8)
    images[:, 0, 0, 0, 0] = np.arange(n)
    state = np.zeros((n, 8), np.float32)
    return Episode(images, np.float32(actions), state, "Pick  it", ("third_person",), 20.0)


def test_target_judges_the_drafts_of_the_other_demonstrations():
    wanted = PARTS.statistics.denormalize(PARTS.tokenizer.decode(PARTS.target.greedy()))
    right, wrong = np.tile(wanted, (3, 1)), np.tile(wanted, (3, 1))
    wrong[1, 0] = -wanted[0]  # the second step of the second episode
    tracks = list(judge_task([episode(right), episode(wrong)], PARTS, HeisdConfig()))
    # Each is judged by the other one's actions.
    assert [track.acceptable.tolist() for track in tracks] == [[True, False, True], [True] * 3]
    assert (tracks[0].task, tracks[0].features.shape) == ("pick it", (3, 4))
    assert len(list(judge_task([episode(right)] * 3, PARTS, HeisdConfig(), judged=1))) == 1


def test_one_demonstration_cannot_draft_for_itself():
    with pytest.raises(DataError, match="at least 2"):
        list(judge_task([episode(np.zeros((3, 7)))], PARTS, HeisdConfig()))
