"""What everything promises that finishes an action behind the first forward."""

import numpy as np
import pytest
from fakes import HashTarget, some_request

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.decode.decoder import no_draft
from heisd_ros.draft.continuation import AutoregressiveContinuation, JacobiContinuation
from heisd_ros.draft.drafter import Candidates, DrafterDraftSource
from heisd_ros.draft.tree import ROOT, DraftTree
from heisd_ros.protocols import Continuation
from heisd_ros.types import Draft, DraftKind, Verification, Verified
from heisd_ros.verify.acceptance import ExactAcceptance, SequenceRelaxedAcceptance
from heisd_ros.verify.kerv import KervContinuation

PAST = np.array([[31800, 31810, 31820, 31872, 31872, 31880, 31744]] * 3)
RULES = [ExactAcceptance(), SequenceRelaxedAcceptance()]


class FixedHead:
    """Always the same three candidates."""

    def begin(self):
        pass

    def commit(self, tokens, features):
        assert len(tokens) == len(features) > 0
        return Candidates(np.array([[31800, 31850, 31900]]), np.log([[0.5, 0.3, 0.2]]))

    def expand(self, tokens, parents):
        row = np.array([31800, 31850, 31900]), np.log([0.5, 0.3, 0.2])
        return Candidates(*(np.tile(one, (len(tokens), 1)) for one in row))


class FeaturedTarget(HashTarget):
    """Answers with features too, as a drafter needs them."""

    def _run(self, tree):
        answer = super()._run(tree)
        return Verification(answer.target_next, np.zeros((len(answer.target_next), 2)))


MAKERS = {
    "ar": AutoregressiveContinuation,
    "jacobi": JacobiContinuation,
    "jacobi_tree": lambda: JacobiContinuation(4),
    "drafter": lambda: DrafterDraftSource(FixedHead(), total_nodes=10, depth=3, top_k=3),
    "kerv": lambda: KervContinuation(AutoregressiveContinuation(), ActionTokenizer()),
}


def drafts(target):
    """No draft, a right one, a half right one and a wrong one."""
    right = target.greedy()
    wrong = np.where(right > 31900, right - 40, right + 40)
    half = np.where(np.arange(7) < 2, right, wrong)
    yield no_draft("")
    for chain in (right, half, wrong):
        yield Draft(
            DraftKind.RETRIEVAL,
            DraftTree.chain(chain[:6]),
            np.ones(1, np.float32),
            chain[None],
            np.zeros((1, 7)),
        )


def play(continuation, target, draft, rule, look=lambda tokens, tree: None):
    """Decode one action as the loop does; `look` sees every proposal."""
    tree = draft.tree or DraftTree.from_paths([])
    answer = target.start(None, None, tree)
    last = verified(target, rule, tree, answer)
    tokens = last.accepted.tokens
    continuation.begin(some_request(history=PAST), draft)
    tokens = continuation.finish(tokens, last)
    while len(tokens) < 7:
        tree = continuation.propose(tokens, last)
        look(tokens, tree)
        last = verified(target, rule, tree, target.verify(tree), offset=len(tokens) - 1)
        tokens = continuation.finish(np.concatenate([tokens[:-1], last.accepted.tokens]), last)
    return tokens


def verified(target, rule, tree, answer, offset=0):
    accepted = rule.accept(tree, answer.target_next, offset=offset)
    target.accept(accepted.path)
    return Verified(tree, answer, accepted)


def cases(count=25):
    for seed in range(count):
        target = FeaturedTarget(seed)
        for draft in drafts(target):
            yield FeaturedTarget(seed), draft


@pytest.mark.parametrize("name", MAKERS)
class TestContinuation:
    def test_implements_the_protocol(self, name):
        assert isinstance(MAKERS[name](), Continuation)

    @pytest.mark.parametrize("rule", RULES, ids=repr)
    def test_every_proposal_hangs_below_the_last_decided_token(self, name, rule):
        def look(tokens, tree):
            assert np.flatnonzero(np.asarray(tree.parent) == ROOT).tolist() == [0]
            assert int(tree.tokens[0]) == int(tokens[-1])

        for target, draft in cases():
            play(MAKERS[name](), target, draft, rule, look)

    def test_no_proposal_is_deeper_than_what_is_left_before_the_gripper(self, name):
        def look(tokens, tree):
            assert len(tokens) + int(tree.depth.max()) <= 6

        for target, draft in cases():
            play(MAKERS[name](), target, draft, RULES[0], look)

    def test_proposed_tokens_are_action_tokens(self, name):
        def look(tokens, tree):
            assert ActionTokenizer().is_action(tree.tokens).all()

        for target, draft in cases():
            play(MAKERS[name](), target, draft, RULES[1], look)

    @pytest.mark.parametrize("rule", RULES, ids=repr)
    def test_an_action_has_seven_tokens_after_at_most_seven_forwards(self, name, rule):
        for target, draft in cases():
            assert len(play(MAKERS[name](), target, draft, rule)) == 7
            assert target.forwards <= 7

    def test_finish_changes_no_decided_token(self, name):
        for target, draft in cases():
            continuation = MAKERS[name]()
            tree = draft.tree or DraftTree.from_paths([])
            last = verified(target, RULES[0], tree, target.start(None, None, tree))
            continuation.begin(some_request(history=PAST), draft)
            tokens = last.accepted.tokens
            filled = continuation.finish(tokens, last)
            assert len(filled) in (len(tokens), 7)
            assert filled[: len(tokens)].tolist() == tokens.tolist()

    def test_an_action_leaves_no_trace_in_the_next_one(self, name):
        fresh, used = MAKERS[name](), MAKERS[name]()
        for target, draft in cases(8):
            play(used, FeaturedTarget(target.seed + 100), next(iter(drafts(target))), RULES[0])
            again = FeaturedTarget(target.seed)
            first = play(fresh, target, draft, RULES[0])
            assert play(used, again, draft, RULES[0]).tolist() == first.tolist()
            assert target.forwards == again.forwards


@pytest.mark.parametrize("name", ["ar", "jacobi", "drafter"])
def test_what_fills_nothing_in_is_lossless_under_the_exact_rule(name):
    for target, draft in cases():
        assert play(MAKERS[name](), target, draft, RULES[0]).tolist() == target.greedy().tolist()
