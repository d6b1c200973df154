"""The acceptance rules against the worked table (budgets 30/15) and the theorem."""

import numpy as np
import pytest
from fakes import HashTarget
from hypothesis import given, settings
from hypothesis import strategies as st

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)

BASE = 31800
RULE = SequenceRelaxedAcceptance()

# (d - v) of the position tokens; accepted by the sequence rule; accepted by the token rule r = 10.
TABLE = [
    ((0, 0, 0), True, True),
    ((10, 10, 10), True, True),
    ((11, 10, 10), False, False),
    ((15, 15, 0), True, False),
    ((15, 14, 1), True, False),
    ((15, 8, 7), True, False),
    ((12, -9, 9), True, False),
    ((-15, 15, 0), True, False),
    ((15, 15, 1), False, False),
    ((15, 8, 8), False, False),
    ((16, 0, 0), False, False),
    ((0, 16, 5), False, False),
    ((5, 5, 20), False, False),
]


def chain_with_bias(*bias):
    """One chain and the target's answers such that node j misses the target by bias[j] bins."""
    tree = DraftTree.chain([BASE + b for b in bias])
    return tree, np.full(len(bias) + 1, BASE)


@pytest.mark.parametrize(("bias", "sequence", "token"), TABLE)
def test_worked_table(bias, sequence, token):
    tree, answers = chain_with_bias(*bias)
    assert RULE.accepts(np.abs(bias)) is sequence
    assert (len(RULE.accept(tree, answers).path) == 3) is sequence
    assert (len(TokenRelaxedAcceptance(10).accept(tree, answers).path) == 3) is token


def test_budgets_are_inclusive_and_strict_ones_are_not():
    strict = SequenceRelaxedAcceptance(strict=True)
    assert RULE.accepts(np.array([15, 15, 0]))
    assert not strict.accepts(np.array([14, 14, 2]))  # sum 30 is not < 30
    assert strict.accepts(np.array([14, 14, 1]))
    assert not strict.accepts(np.array([15, 0, 0]))


def test_bias_of_a_sequence_is_a_sum_not_a_mean():
    # Mean 10.3 would be far below 30; the sum 31 is above it.
    assert not RULE.accepts(np.array([11, 10, 10]))


def worked_chain(last_of_rot2):
    """pos1 misses by 3, 2, 1; below it rot1 by 20, 1, 0 and rot2 by 9, 12, last_of_rot2."""
    tree = DraftTree.from_paths(
        [
            [BASE + 3, BASE + 2, BASE + 1, BASE + 20, BASE + 1, BASE],
            [BASE + 3, BASE + 2, BASE + 1, BASE + 9, BASE + 12, BASE + last_of_rot2],
        ]
    )
    answers = np.full(len(tree) + 1, BASE)
    answers[-1] = 31744  # the gripper the target wants after rot2
    return tree, answers


def test_worked_chain_is_accepted_whole_with_the_targets_own_gripper():
    accepted = RULE.accept(*worked_chain(9))
    assert accepted.tokens.tolist() == [31803, 31802, 31801, 31809, 31812, 31809, 31744]
    assert accepted.accept_length == 7
    assert accepted.rejected_sequence is None
    assert accepted.bias.tolist() == [3, 2, 1, 9, 12, 9]


def test_worked_chain_with_sum_31_keeps_the_position_and_a_free_rotation_token():
    accepted = RULE.accept(*worked_chain(10))
    assert accepted.tokens.tolist() == [31803, 31802, 31801, BASE]
    assert accepted.path.tolist() == [0, 1, 2]
    assert accepted.rejected_sequence == 1


def test_a_candidate_is_judged_under_its_own_prefix():
    # Both candidates miss the first token. After token 31810 the target goes on with 31900 and
    # 31901, as the second candidate says; after 31805 it wants 31750, far from the first one.
    # The published code judges both under the first candidate's prefix and rejects the second.
    tree = DraftTree.from_paths([[31805, 31900, 31901], [31810, 31900, 31901]])
    answers = np.array([31800, 31750, 31751, 31752, 31900, 31901, 31740 + 10])
    accepted = RULE.accept(tree, answers)
    assert accepted.tokens[:3].tolist() == [31810, 31900, 31901]
    assert len(TokenRelaxedAcceptance(15).accept(tree, answers).path) == 3


def test_smallest_total_bias_wins_and_dfs_takes_the_first():
    tree = DraftTree.from_paths([[BASE + 9, BASE, BASE], [BASE + 1, BASE, BASE]])
    answers = np.full(len(tree) + 1, BASE)
    assert RULE.accept(tree, answers).tokens[0] == BASE + 1
    first = SequenceRelaxedAcceptance(select="dfs").accept(tree, answers)
    assert first.tokens[0] == BASE + 9


def test_longer_acceptance_beats_smaller_bias():
    # Position b has bias 0 but no acceptable rotation; position a has bias 5 and one.
    tree = DraftTree.from_paths(
        [[BASE] * 3 + [BASE + 99] * 3, [BASE + 5, BASE, BASE] + [BASE + 1] * 3]
    )
    answers = np.full(len(tree) + 1, BASE)
    assert RULE.accept(tree, answers).accept_length == 7


def test_matching_start_of_a_rejected_sequence_is_kept():
    tree, answers = chain_with_bias(0, 0, 40)
    accepted = RULE.accept(tree, answers)
    assert accepted.tokens.tolist() == [BASE, BASE, BASE]
    assert accepted.path.tolist() == [0, 1]


def test_gripper_token_is_never_relaxed():
    for rule in (RULE, TokenRelaxedAcceptance(15)):
        tree, answers = chain_with_bias(0, 0, 0, 0, 0, 0, 1)
        accepted = rule.accept(tree, answers)
        assert accepted.tokens[6] == BASE
        assert len(accepted.path) == 6
        assert accepted.rejected_sequence == 2


def test_an_exact_gripper_draft_ends_the_action_without_an_eighth_token():
    tree, answers = chain_with_bias(0, 0, 0, 0, 0, 0, 0)
    assert RULE.accept(tree, answers).accept_length == 7


def test_offset_says_which_degree_of_freedom_the_tree_starts_with():
    # A tree that starts at the gripper (offset 6) gets no tolerance at all.
    tree, answers = chain_with_bias(1)
    assert RULE.accept(tree, answers, offset=6).tokens.tolist() == [BASE]
    # At offset 5 (rz) one bin is within the budget.
    assert RULE.accept(tree, answers, offset=5).tokens.tolist() == [BASE + 1, BASE]


def test_empty_tree_gives_the_targets_own_token():
    empty = DraftTree.from_paths([])
    for rule in (ExactAcceptance(), TokenRelaxedAcceptance(9), RULE):
        accepted = rule.accept(empty, np.array([31777]))
        assert accepted.tokens.tolist() == [31777]
        assert accepted.accept_length == 1


def test_answers_of_another_length_are_refused():
    tree, answers = chain_with_bias(0, 0, 0)
    with pytest.raises(ShapeError, match="target_next must have shape"):
        RULE.accept(tree, answers[:-1])


def test_negative_budgets_are_refused():
    with pytest.raises(ConfigError, match="token_budget"):
        SequenceRelaxedAcceptance(30, -1)


def random_tree(rng, target, k=4):
    """Chains near the target's greedy action, so that every rule sees hits and misses."""
    chains = np.clip(target.greedy() + rng.integers(-18, 19, (k, 7)), 31744, 31999)
    chains[rng.random((k, 7)) < 0.5] = np.broadcast_to(target.greedy(), (k, 7))[0, 0]
    exact = rng.random((k, 7)) < 0.6
    chains[exact] = np.broadcast_to(target.greedy(), (k, 7))[exact]
    return DraftTree.from_chains(chains)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_relaxed_acceptance_is_never_shorter_than_exact(seed):
    rng, target = np.random.default_rng(seed), HashTarget(seed, spread=40)
    tree = random_tree(rng, target)
    answers = target.start(None, None, tree).target_next
    exact = ExactAcceptance().accept(tree, answers).accept_length
    assert RULE.accept(tree, answers).accept_length >= exact
    assert TokenRelaxedAcceptance(9).accept(tree, answers).accept_length >= exact


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_zero_tolerance_is_exact(seed):
    rng, target = np.random.default_rng(seed), HashTarget(seed, spread=40)
    tree = random_tree(rng, target)
    answers = target.start(None, None, tree).target_next
    exact = ExactAcceptance().accept(tree, answers).tokens.tolist()
    assert SequenceRelaxedAcceptance(0, 0).accept(tree, answers).tokens.tolist() == exact
    assert TokenRelaxedAcceptance(0).accept(tree, answers).tokens.tolist() == exact


def test_share_of_small_triples_within_the_sum():
    # Of the 31^3 signed triples with max <= 15, 24,351 also have sum <= 30.
    bias = np.abs(np.arange(-15, 16))
    sums = bias[:, None, None] + bias[None, :, None] + bias[None, None, :]
    assert int((sums <= 30).sum()) == 24351
    rule = SequenceRelaxedAcceptance()
    rng = np.random.default_rng(0)
    for triple in rng.integers(-15, 16, (200, 3)):
        assert rule.accepts(np.abs(triple)) == (np.abs(triple).sum() <= 30)
