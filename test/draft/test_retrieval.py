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

    def search(self, embedding, task, k):
        self.asked = (task, k)
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

    def gone(*_):
        raise StoreError("gone")

    store.search = gone
    retrieval.draft(some_request())
    assert retrieval.last_hits is None  # else look-ahead would be a step late


def test_unknown_task_gives_no_tree_and_a_reason():
    draft = source(ListStore([], [])).draft(some_request())
    assert (draft.tree, draft.reason) == (None, "unknown_task")


def test_a_failing_store_costs_the_draft_not_the_step():
    class Broken(ListStore):
        def search(self, embedding, task, k):
            raise StoreError("gone")

    draft = source(Broken([], [])).draft(some_request())
    assert (draft.tree, draft.reason) == (None, "store_error:StoreError")
