"""Look-ahead follows the accepted neighbour and never crosses the end of its episode."""

import numpy as np
from fakes import some_request

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.draft.lookahead import LookaheadDraftSource
from heisd_ros.draft.merged import MergedDraftSource
from heisd_ros.draft.tree import DraftTree
from heisd_ros.types import Acceptance, Draft, DraftKind, Hits

STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 6 + [0.0], "q99": [1.0] * 7, "mask": [True] * 6 + [False]}
)
TOKENIZER = ActionTokenizer()


class Retrieval:
    """Two neighbours: the first moves along +x, the second along -x and ends after one step."""

    def __init__(self):
        action = np.array([[0.5, 0, 0, 0, 0, 0, 1.0], [-0.5, 0, 0, 0, 0, 0, 1.0]])
        lookahead = np.zeros((2, 3, 7))
        lookahead[0, :, 0] = [0.6, 0.7, 0.8]
        lookahead[1, 0, 0] = -0.6  # rows 1 and 2 are padding
        self.last_hits = Hits(
            np.array([0.9, 0.8], np.float32),
            np.arange(2),
            np.arange(2),
            np.zeros(2, int),
            action,
            lookahead,
            np.array([3, 1]),
            np.zeros((2, 3)),
        )


def accepted(x):
    tokens = TOKENIZER.encode(np.array([x, 0, 0, 0, 0, 0, 1.0]))
    return Acceptance(tokens, 7, np.arange(6), None, np.zeros(6, int))


def source():
    return LookaheadDraftSource(Retrieval(), TOKENIZER, STATISTICS)


def first_values(draft):
    return np.round(draft.actions[0, 0], 3)


def test_the_next_actions_of_the_accepted_neighbour_are_drafted_in_order():
    lookahead = source()
    lookahead.observe(accepted(0.5))
    drafts = [lookahead.draft(some_request()) for _ in range(4)]
    assert [first_values(d) for d in drafts[:3]] == [0.6, 0.7, 0.8]
    assert (drafts[3].tree, drafts[3].reason) == (None, "no_successor")


def test_zero_padding_behind_the_episode_end_is_never_drafted():
    lookahead = source()
    lookahead.observe(accepted(-0.5))
    assert first_values(lookahead.draft(some_request())) == -0.6
    assert lookahead.draft(some_request()).tree is None


def test_too_little_acceptance_teaches_nothing():
    lookahead = source()
    lookahead.observe(Acceptance(np.array([31800]), 1, np.zeros(0, int), 0, np.zeros(0, int)))
    assert lookahead.draft(some_request()).reason == "no_successor"


def test_without_neighbours_in_this_step_the_old_way_is_followed_to_its_end():
    retrieval = Retrieval()
    lookahead = LookaheadDraftSource(retrieval, TOKENIZER, STATISTICS)
    lookahead.observe(accepted(0.5))
    assert first_values(lookahead.draft(some_request())) == 0.6
    retrieval.last_hits = None  # the store is away: a held action is accepted instead
    lookahead.observe(accepted(0.6))
    assert first_values(lookahead.draft(some_request())) == 0.7


class OneChain:
    def __init__(self, chain, kind, reason=""):
        self.chain, self.kind, self.reason = np.array([chain]), kind, reason
        self.seen = []

    def draft(self, request):
        if self.reason:
            nothing = np.zeros((0, 7), int)
            return Draft(self.kind, None, np.zeros(0, np.float32), nothing, nothing, self.reason)
        tree = DraftTree.from_chains(self.chain)
        return Draft(self.kind, tree, np.ones(1, np.float32), self.chain, np.zeros((1, 7)))

    def observe(self, acceptance):
        self.seen.append(acceptance)

    def reset(self):
        self.seen.clear()


def test_merged_sources_share_one_tree_and_the_first_one_leads():
    sources = [
        OneChain([1, 2, 3, 4, 5, 6, 7], DraftKind.RETRIEVAL),
        OneChain([1, 2, 9, 4, 5, 6, 7], DraftKind.KINEMATIC),
    ]
    draft = MergedDraftSource(sources).draft(some_request())
    assert draft.kind is DraftKind.RETRIEVAL
    assert len(draft.tree) == 10  # 6 + 4: the first two tokens are shared
    assert len(draft.chains) == 2
    assert len(draft.scores) == 1  # the leading source's: others were not retrieved


def test_a_source_without_an_idea_leaves_the_others_alone():
    silent = OneChain([0] * 7, DraftKind.RETRIEVAL, reason="unknown_task")
    loud = OneChain([1, 2, 3, 4, 5, 6, 7], DraftKind.KINEMATIC)
    assert MergedDraftSource([silent, loud]).draft(some_request()).kind is DraftKind.KINEMATIC
    assert MergedDraftSource([silent]).draft(some_request()).reason == "unknown_task"
