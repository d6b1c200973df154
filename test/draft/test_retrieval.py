"""Retrieval drafts: raw actions become the target's tokens; nothing found is said, not raised."""

import numpy as np
from fakes import some_request

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.draft.retrieval import RetrievalDraftSource
from heisd_ros.errors import StoreError
from heisd_ros.types import DraftKind, Hits

STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 6 + [0.0], "q99": [1.0] * 7, "mask": [True] * 6 + [False]}
)


class ListStore:
    def __init__(self, scores, actions):
        self.hits = Hits(
            np.array(scores, np.float32),
            np.arange(len(scores)),
            np.arange(len(scores)),
            np.zeros(len(scores), int),
            np.array(actions, float).reshape(-1, 7),
            np.zeros((len(scores), 3, 7)),
            np.zeros(len(scores), int),
            np.zeros((len(scores), 3)),
        )

    def search(self, embedding, task, k, *, after=None):
        self.asked, self.after = (task, k), after
        return self.hits

    def successors(self, hits, n):
        raise NotImplementedError


def source(store, **options):
    return RetrievalDraftSource(store, ActionTokenizer(), STATISTICS, **options)


def test_neighbours_become_a_tree_of_tokens():
    store = ListStore([0.9, 0.8], [[0, 0.25, 0.5, 0, 0, 0, 1.0], [0, 0.25, 0.5, 0, 0, -1, 0.0]])
    draft = source(store, top_k=2).draft(some_request("pick it"))
    assert draft.kind is DraftKind.RETRIEVAL
    assert store.asked == ("pick it", 2)
    # enc(0) = 31872, enc(.25) = 31840, enc(.5) = 31808, enc(-1) = 31999; open 1.0 = 31744.
    assert draft.chains[0].tolist() == [31872, 31840, 31808, 31872, 31872, 31872, 31744]
    assert draft.chains[1, 6] == 31872
    assert len(draft.tree) == 7  # one shared position, two rotations that differ in rz


ACTIONS = [
    [0, 0.25, 0.5, 0, 0, 0, 1.0],
    [0, 0.25, 0.5, 0.5, 0, 0, 1.0],  # moves as the first one, turns otherwise
    [0, 0.25, 0.75, 0, 0, 0, 1.0],
]
MOVED = [31872, 31840, 31808]  # enc(0), enc(.25), enc(.5)


def _follows(history, *, before=(), **options):
    """Return the rows that the second search follows when the arm has done `history`."""
    store = ListStore([0.9, 0.8, 0.7], ACTIONS)
    drafting = source(store, **options)
    past = np.array(before, dtype=np.int64).reshape(-1, 7)
    drafting.draft(some_request(history=past))
    assert store.after is None
    drafting.observe(None)  # nothing about it matters
    past = np.array([*before, *history], dtype=np.int64).reshape(-1, 7)
    drafting.draft(some_request(history=past))
    return None if store.after is None else store.after.row.tolist()


def test_neighbours_whose_motion_was_executed_are_followed():
    # The rotation was the target's own: what counts is where the arm went.
    assert _follows([[*MOVED, 31800, 31801, 31802, 31744]]) == [0, 1]
    assert _follows([[31872, 31840, 31776, 31872, 31872, 31872, 31744]]) == [2]
    assert _follows([[*MOVED, 1, 1, 1, 1]], before=[[7] * 7] * 2) == [0, 1]


def test_a_neighbour_that_was_rejected_is_not_followed():
    assert _follows([[*MOVED[:2], 31809, 31872, 31872, 31872, 31744]]) is None


def test_a_neighbour_that_was_not_drafted_is_not_followed():
    assert _follows([[*MOVED, 1, 1, 1, 1]], min_score=0.85) == [0]


def test_neighbours_are_followed_for_one_step_only():
    done = [*MOVED, 31872, 31872, 31872, 31744]
    assert _follows([done, done]) is None  # another source drafted the step in between
    assert _follows([]) is None  # the step failed: nothing was executed


def test_nothing_is_followed_into_the_next_episode():
    store = ListStore([0.9], ACTIONS[:1])
    drafting = source(store)
    drafting.draft(some_request())
    drafting.reset()
    drafting.draft(some_request(history=np.array([[*MOVED, 1, 1, 1, 1]])))
    assert store.after is None


def test_low_scores_are_dropped():
    store = ListStore([0.9, 0.2], np.zeros((2, 7)))
    draft = source(store, min_score=0.5).draft(some_request())
    assert len(draft.chains) == 1
    assert source(store, min_score=0.95).draft(some_request()).reason == "below_min_score"


def test_only_neighbours_that_were_drafted_are_remembered():
    store = ListStore([0.9, 0.2], np.zeros((2, 7)))
    retrieval = source(store, min_score=0.5)
    retrieval.draft(some_request())
    assert retrieval.last_hits.score.tolist() == [np.float32(0.9)]
    store.hits = ListStore([0.4], np.zeros((1, 7))).hits
    retrieval.draft(some_request())
    assert len(retrieval.last_hits) == 0


def test_neighbours_of_an_earlier_step_are_forgotten_when_the_store_fails():
    store = ListStore([0.9], np.zeros((1, 7)))
    retrieval = source(store)
    retrieval.draft(some_request())
    assert len(retrieval.last_hits) == 1

    def gone(*_, **__):
        raise StoreError("gone")

    store.search = gone
    retrieval.draft(some_request())
    assert retrieval.last_hits is None  # else look-ahead would be a step late


def test_unknown_task_gives_no_tree_and_a_reason():
    draft = source(ListStore([], [])).draft(some_request())
    assert (draft.tree, draft.reason) == (None, "unknown_task")


def test_a_failing_store_costs_the_draft_not_the_step():
    class Broken(ListStore):
        def search(self, embedding, task, k, *, after=None):
            raise StoreError("gone")

    draft = source(Broken([], [])).draft(some_request())
    assert (draft.tree, draft.reason) == (None, "store_error:StoreError")
