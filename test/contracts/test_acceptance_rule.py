"""What every acceptance rule promises."""

import numpy as np
import pytest
from fakes import HashTarget

from heisd_ros.draft.tree import ROOT, DraftTree
from heisd_ros.protocols import AcceptanceRule
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)

RULES = [
    ExactAcceptance(),
    TokenRelaxedAcceptance(9),
    SequenceRelaxedAcceptance(),
    SequenceRelaxedAcceptance(45, 25, strict=True, select="dfs"),
]


def cases(count=150):
    rng = np.random.default_rng(4)
    for seed in range(count):
        target = HashTarget(seed, spread=60)
        chains = np.clip(target.greedy() + rng.integers(-20, 21, (4, 7)), 31744, 31999)
        exact = rng.random((4, 7)) < 0.5
        chains[exact] = np.broadcast_to(target.greedy(), (4, 7))[exact]
        tree = DraftTree.from_chains(chains)
        yield tree, target.start(None, None, tree).target_next


@pytest.mark.parametrize("rule", RULES, ids=repr)
class TestAcceptanceRule:
    def test_implements_the_protocol(self, rule):
        assert isinstance(rule, AcceptanceRule)

    def test_the_path_goes_down_from_the_root_without_gaps(self, rule):
        for tree, answers in cases():
            path = rule.accept(tree, answers).path
            assert [int(tree.parent[node]) for node in path] == [ROOT, *path[:-1].tolist()][
                : len(path)
            ]

    def test_tokens_are_the_path_and_the_targets_answer_behind_it(self, rule):
        for tree, answers in cases():
            accepted = rule.accept(tree, answers)
            last = int(accepted.path[-1]) if len(accepted.path) else ROOT
            expected = [*tree.tokens[accepted.path].tolist(), int(answers[1 + last])]
            assert accepted.tokens.tolist() == expected
            assert accepted.accept_length == len(expected)

    def test_bias_is_measured_under_the_candidates_own_prefix(self, rule):
        for tree, answers in cases():
            accepted = rule.accept(tree, answers)
            rows = [1 + int(tree.parent[node]) for node in accepted.path]
            expected = np.abs(tree.tokens[accepted.path] - answers[rows])
            assert accepted.bias.tolist() == expected.tolist()

    def test_inputs_are_not_changed(self, rule):
        for tree, answers in cases(5):
            before = (tree.tokens.copy(), answers.copy())
            rule.accept(tree, answers)
            assert np.array_equal(tree.tokens, before[0])
            assert np.array_equal(answers, before[1])

    def test_never_more_than_one_action(self, rule):
        target = HashTarget(1)
        tree = DraftTree.chain(target.greedy())
        accepted = rule.accept(tree, target.start(None, None, tree).target_next)
        assert accepted.tokens.tolist() == target.greedy().tolist()
