"""How an action is finished: one token at a time, or all guesses at once."""

import numpy as np
from fakes import some_request

from heisd_ros.draft.continuation import AutoregressiveContinuation, JacobiContinuation
from heisd_ros.draft.tree import DraftTree, leaf_paths
from heisd_ros.types import Draft, DraftKind, Verification, Verified
from heisd_ros.verify.acceptance import ExactAcceptance

BEFORE = [21, 22, 23, 24, 25, 26, 99]


def draft(*chains):
    tokens = np.array(chains, dtype=np.int64).reshape(-1, 7)
    tree = DraftTree.from_chains(tokens) if len(tokens) else None
    nothing = np.zeros(0, np.float32)
    return Draft(DraftKind.RETRIEVAL, tree, nothing, tokens, np.zeros(tokens.shape))


def verified(tree, target_next):
    answer = Verification(np.array(target_next))
    return Verified(tree, answer, ExactAcceptance().accept(tree, answer.target_next))


def begun(history=(BEFORE,), proposal=None, **settings):
    continuation = JacobiContinuation(**settings)
    past = np.array(history, dtype=np.int64).reshape(-1, 7)
    continuation.begin(some_request(history=past), proposal or draft())
    return continuation


def test_autoregression_feeds_the_last_token():
    tree = AutoregressiveContinuation().propose(np.array([5, 6]), None)
    assert tree.tokens.tolist() == [6]


def test_without_a_tree_the_action_before_is_the_guess():
    last = verified(DraftTree.from_paths([]), [11])
    tree = begun().propose(np.array([11]), last)
    assert tree.tokens.tolist() == [11, 22, 23, 24, 25, 26]


def test_without_a_past_the_best_draft_is_the_guess():
    proposal = draft([1, 2, 3, 4, 5, 6, 99])
    last = verified(DraftTree.from_paths([]), [11])
    tree = begun(history=(), proposal=proposal).propose(np.array([11]), last)
    assert tree.tokens.tolist() == [11, 2, 3, 4, 5, 6]


def test_without_either_one_token_is_fed():
    last = verified(DraftTree.from_paths([]), [11])
    assert begun(history=()).propose(np.array([11]), last).tokens.tolist() == [11]


def test_guesses_are_the_answers_along_the_branch_nearest_to_the_target():
    # The target wants 10 first: the second chain (12) is nearer than the first (50).
    proposal = draft([50, 51, 52, 53, 54, 55, 99], [12, 13, 14, 15, 16, 17, 99])
    # Rows: prefix, then the nodes; each node answers its token + 100.
    answers = [10, *(100 + np.asarray(proposal.tree.tokens)).tolist()]
    last = verified(proposal.tree, answers)
    assert last.accepted.tokens.tolist() == [10]
    tree = begun(proposal=proposal).propose(last.accepted.tokens, last)
    assert tree.tokens[0] == 10
    assert tree.tokens[1] == 112  # what the target said behind the 12, not behind the 50


def test_answers_replace_the_guesses_as_far_as_they_go():
    first = DraftTree.chain([50, 51])
    last = verified(first, [10, 30, 31])
    tree = begun().propose(np.array([10]), last)
    assert tree.tokens.tolist() == [10, 30, 31, 24, 25, 26]


def paths(tree):
    return [np.asarray(tree.tokens)[list(path)].tolist() for path in leaf_paths(tree)]


def test_every_branch_gives_a_chain_of_guesses_and_so_does_the_action_before():
    proposal = DraftTree.from_paths([[50, 51], [12, 13, 14], [80]])
    answers = [10, *(100 + np.asarray(proposal.tokens)).tolist()]
    last = verified(proposal, answers)
    tree = begun(branches=2).propose(last.accepted.tokens, last)
    assert paths(tree) == [
        [10, 112, 113, 114, 25, 26],  # the branch of 12 is nearest to the wanted 10
        [10, 150, 151, 24, 25, 26],  # then that of 50; 80 is one too many
        [10, 22, 23, 24, 25, 26],
    ]


def test_branches_that_agree_are_one_and_the_farthest_are_left_out_first():
    proposal = DraftTree.from_paths([[50], [12]])
    last = verified(proposal, [10, 30, 30])
    assert paths(begun(branches=2).propose(last.accepted.tokens, last)) == [
        [10, 30, 23, 24, 25, 26],
        [10, 22, 23, 24, 25, 26],
    ]
    small = begun(branches=2, max_nodes=6).propose(last.accepted.tokens, last)
    assert paths(small) == [[10, 30, 23, 24, 25, 26]]


def test_nothing_is_filled_in_unverified():
    last = verified(DraftTree.from_paths([]), [11])
    for continuation in (AutoregressiveContinuation(), begun()):
        assert continuation.finish(np.array([11]), last).tolist() == [11]
