"""The dynamic tree against brute force, the order of calls of the head, and the whole loop."""

import dataclasses
import itertools

import numpy as np
import pytest
from fakes import FIRST_ID, HashTarget, some_request

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.decode.decoder import HybridDecoder, StepRequest
from heisd_ros.decode.selector import FixedSelector
from heisd_ros.draft.drafter import (
    Candidates,
    DrafterDraftSource,
    DraftHead,
    dynamic_tree,
    features_before,
)
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError, ModelError
from heisd_ros.protocols import Continuation, DraftSource
from heisd_ros.types import DraftKind, Verification, Verified
from heisd_ros.verify.acceptance import ExactAcceptance, TokenRelaxedAcceptance
from heisd_ros.verify.schedule import FixedSchedule
from heisd_ros.verify.skip import FixedSkip

STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 7, "q99": [1.0] * 7, "mask": [True] * 6 + [False]}
)


class TableHead:
    """log p(token | path) drawn anew for every path; remembers its calls."""

    def __init__(self, seed=0, *, vocabulary=4, top_k=4, ties=False):
        self.seed, self.vocabulary, self.top_k, self.ties = seed, vocabulary, top_k, ties
        self.calls, self.context, self.rows = [], [], []

    def log_probs(self, path):
        rng = np.random.default_rng([self.seed, *path])
        p = rng.dirichlet(np.ones(self.vocabulary))
        return np.full(self.vocabulary, -np.log(self.vocabulary)) if self.ties else np.log(p)

    def begin(self):
        self.calls.append("begin")
        self.context = []

    def commit(self, tokens, features):
        self.calls.append(("commit", list(tokens), np.shape(features)))
        self.context += [int(token) for token in tokens]
        self.rows = []
        return self._candidates([self.context])

    def expand(self, tokens, parents):
        self.calls.append(("expand", len(tokens)))
        above = [self.context if row < 0 else self.rows[row] for row in parents]
        paths = [[*path, int(token)] for path, token in zip(above, tokens, strict=True)]
        self.rows += paths
        return self._candidates(paths)

    def _candidates(self, paths):
        tables = np.array([self.log_probs(path) for path in paths])
        order = np.argsort(-tables, axis=1, kind="stable")[:, : self.top_k]
        return Candidates(FIRST_ID + order, np.take_along_axis(tables, order, axis=1))


def grown(head, *, levels, total_nodes, top_k, root=FIRST_ID):
    first = head.commit(np.array([root]), np.zeros((1, 2)))
    return dynamic_tree(
        root, first, head.expand, levels=levels, total_nodes=total_nodes, top_k=top_k
    )


def paths_of(tree):
    """Every node of a tree as its token path below the root."""
    paths = [()]
    for token, parent in zip(tree.tokens[1:], tree.parent[1:], strict=True):
        paths.append((*paths[parent], int(token)))
    return set(paths[1:])


def best_continuations(head, *, levels, count, root=FIRST_ID):
    """Brute force: the best paths of every length, by cumulative log-probability."""
    scored = {}
    for length in range(1, levels + 1):
        for path in itertools.product(range(head.vocabulary), repeat=length):
            ids = [FIRST_ID + token for token in path]
            tables = [head.log_probs([root, *ids[:i]]) for i in range(length)]
            scored[tuple(ids)] = sum(t[token] for t, token in zip(tables, path, strict=True))
    return set(sorted(scored, key=lambda path: -scored[path])[:count])


@pytest.mark.parametrize("seed", range(8))
def test_tree_holds_the_best_of_all_continuations_when_the_beam_is_as_wide_as_the_tree(seed):
    head = TableHead(seed, vocabulary=5, top_k=8)
    tree = grown(head, levels=4, total_nodes=9, top_k=8)
    assert paths_of(tree) == best_continuations(head, levels=4, count=8)


@pytest.mark.parametrize("seed", range(4))
def test_tree_holds_the_best_of_all_continuations_when_the_beam_holds_everything(seed):
    head = TableHead(seed, vocabulary=3, top_k=3)
    tree = grown(head, levels=4, total_nodes=30, top_k=81)
    assert paths_of(tree) == best_continuations(head, levels=4, count=29)


def test_every_kept_node_has_its_parent_and_scores_never_rise():
    tree = grown(TableHead(1, vocabulary=20, top_k=8), levels=5, total_nodes=50, top_k=8)
    assert len(tree) == 50
    assert tree.tokens[0] == FIRST_ID
    assert tree.parent[0] == -1
    assert (tree.parent[1:] >= 0).all()
    assert tree.depth.max() <= 5
    pairs = list(zip(tree.parent, tree.tokens, strict=True))
    assert len(set(pairs)) == len(pairs)


def test_ties_are_broken_by_order():
    """All log-probabilities equal: siblings keep their order, parents win against children."""
    head = TableHead(vocabulary=3, top_k=3, ties=True)
    tree = grown(head, levels=3, total_nodes=6, top_k=3)
    # Three children of the root, then the first two children of the first of them.
    assert tree.parent.tolist() == [-1, 0, 0, 0, 1, 1]
    assert (tree.tokens - FIRST_ID).tolist() == [0, 0, 1, 2, 0, 1]


def test_a_certain_head_drafts_one_long_chain():
    class Certain(TableHead):
        def log_probs(self, path):
            return np.array([0.0, -1e9, -1e9, -1e9])

    tree = grown(Certain(), levels=5, total_nodes=6, top_k=4)
    assert tree.depth.tolist() == [0, 1, 2, 3, 4, 5]


def test_small_vocabularies_give_small_trees():
    head = TableHead(vocabulary=1, top_k=1)
    assert len(grown(head, levels=3, total_nodes=50, top_k=8)) == 4


def verified(tree, path, hidden, known=0):
    answers = np.full(1 + len(tree), FIRST_ID + 9)
    accepted = dataclasses.replace(
        ExactAcceptance().accept(tree, answers), path=np.array(path, dtype=np.int64)
    )
    return Verified(tree, Verification(answers, hidden), accepted, known)


EMPTY = DraftTree.from_paths([])


def test_before_the_prefill_nothing_is_proposed_and_no_reason_given():
    source = DrafterDraftSource(TableHead())
    assert isinstance(source, DraftSource)
    assert isinstance(source, Continuation)
    assert isinstance(TableHead(), DraftHead)
    draft = source.draft(some_request())
    assert (draft.kind, draft.tree, draft.reason) == (DraftKind.DRAFTER, None, "")
    assert draft.chains.shape == (0, 7)


def test_head_is_fed_every_decided_token_once_with_the_features_in_front_of_it():
    head = TableHead()
    source = DrafterDraftSource(head, total_nodes=5, depth=1, top_k=2)
    source.begin(some_request(), source.draft(some_request()))
    hidden = np.arange(10.0)[:, None]
    first = verified(EMPTY, [], hidden[:1])
    tree = source.propose(np.array([FIRST_ID]), first)
    assert tree.tokens[0] == FIRST_ID
    # The root and one drafted node are accepted: the features in front of the two new tokens are
    # those of the root (row 1) and of the accepted node (row 1 + 2).
    second = verified(tree, [0, 2], hidden[: 1 + len(tree)], known=1)
    assert features_before(second, 2).ravel().tolist() == [1.0, 3.0]
    source.propose(np.array([FIRST_ID, FIRST_ID + 1, FIRST_ID + 9]), second)
    commits = [call for call in head.calls if call[0] == "commit"]
    assert commits == [
        ("commit", [FIRST_ID], (1, 1)),
        ("commit", [FIRST_ID + 1, FIRST_ID + 9], (2, 1)),
    ]


def test_a_tree_verified_in_the_prefill_gives_the_features_of_its_accepted_nodes():
    chain = DraftTree.chain([FIRST_ID, FIRST_ID + 1, FIRST_ID + 2])
    prefill = verified(chain, [0, 1], np.arange(4.0)[:, None])
    assert features_before(prefill, 3).ravel().tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(("decided", "deepest"), [(1, 5), (2, 4), (5, 1), (6, 0)])
def test_no_node_lies_beyond_the_rotation(decided, deepest):
    source = DrafterDraftSource(TableHead(vocabulary=9, top_k=8), total_nodes=500)
    source.begin(some_request(), source.draft(some_request()))
    tokens = np.full(decided, FIRST_ID)
    chain = DraftTree.chain(tokens[:-1]) if decided > 1 else EMPTY
    last = verified(chain, range(decided - 1), np.zeros((decided, 1)))
    tree = source.propose(tokens, last)
    assert tree.depth.max() == deepest
    assert decided - 1 + tree.depth.max() <= 5


def test_a_target_without_features_is_refused():
    source = DrafterDraftSource(TableHead())
    source.begin(some_request(), source.draft(some_request()))
    with pytest.raises(ModelError, match="keeps none"):
        source.propose(np.array([FIRST_ID]), verified(EMPTY, [], None))


@pytest.mark.parametrize("wrong", [{"total_nodes": 1}, {"depth": -1}, {"top_k": 0}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ConfigError):
        DrafterDraftSource(TableHead(), **wrong)


class FeatureTarget(HashTarget):
    """Features are the token path in front of each answer, as a number."""

    def _run(self, tree):
        answer = super()._run(tree)
        return Verification(answer.target_next, np.zeros((1 + len(tree), 1)))


class GuessingHead(TableHead):
    """Knows the target's next token with a given chance; uses the decided tokens as its context."""

    def __init__(self, target, chance):
        super().__init__(target.seed, vocabulary=256, top_k=8)
        self.target, self.chance = target, chance

    def log_probs(self, path):
        rng = np.random.default_rng([self.target.seed, *path])
        p = rng.dirichlet(np.ones(256))
        if rng.random() < self.chance:
            p[self.target.next_token(path) - FIRST_ID] = 5.0
        return np.log(p / p.sum())


def decode(target, chance, rule=None):
    source = DrafterDraftSource(GuessingHead(target, chance))
    ticks = itertools.count()
    decoder = HybridDecoder(
        target,
        ActionTokenizer(),
        STATISTICS,
        selector=FixedSelector(DraftKind.DRAFTER),
        sources={DraftKind.DRAFTER: source},
        continuations={DraftKind.DRAFTER: source},
        schedule=FixedSchedule(rule or ExactAcceptance()),
        skip=FixedSkip(False),
        clock=lambda: next(ticks) * 1e-3,
    )
    return decoder.step(StepRequest(some_request(), np.array([1])))


def test_exact_acceptance_decodes_the_tokens_of_autoregression():
    for seed in range(60):
        target = FeatureTarget(seed)
        result = decode(target, chance=(seed % 4) / 3)
        assert result.action.tokens.tolist() == target.greedy().tolist()
        assert result.report.forwards == target.forwards <= 7
        assert result.report.kind is DraftKind.DRAFTER


def test_a_head_that_is_always_right_needs_two_forwards():
    target = FeatureTarget(1)
    report = decode(target, chance=1.0).report
    # The prefill gives x; the second forward verifies y z rx ry rz and answers with the gripper.
    assert report.forwards == target.forwards == 2
    assert report.accept_length == 6
    assert report.nodes == 49


def test_a_head_that_is_always_wrong_costs_no_more_forwards_than_autoregression():
    target = FeatureTarget(2)
    assert decode(target, chance=0.0).report.forwards <= 7


def test_relaxed_acceptance_obeys_its_own_conditional_answers():
    target = FeatureTarget(3)
    tokens = decode(target, chance=0.5, rule=TokenRelaxedAcceptance(15)).action.tokens.tolist()
    for dof in range(7):
        assert abs(tokens[dof] - target.next_token(tokens[:dof])) <= (15 if dof < 6 else 0)
