"""How an action is finished after the first forward by AR or by Jacobi iterations."""

from __future__ import annotations

import numpy as np

from heisd_ros.draft.tree import ROOT, DraftTree, children
from heisd_ros.types import ACTION_DIM, Draft, DraftRequest, IntArray, TokenTree, Verified

DRAFTED_DIM = ACTION_DIM - 1
"""Degrees of freedom that are worth drafting: the gripper always comes with the last answer."""

NOTHING: IntArray = np.zeros(0, dtype=np.int64)


class AutoregressiveContinuation:
    """One token per forward: the target decodes on from the K/V rows it has kept."""

    def begin(self, request: DraftRequest, draft: Draft) -> None:
        """Nothing to remember."""

    def propose(self, tokens: IntArray, last: Verified) -> TokenTree:  # noqa: ARG002
        """Return the one-node tree of the last token."""
        return DraftTree.chain(np.asarray(tokens)[-1:])

    def finish(self, tokens: IntArray, last: Verified) -> IntArray:  # noqa: ARG002
        """Return the tokens as they are: nothing is executed unverified."""
        return tokens


class JacobiContinuation:
    """Guess all remaining tokens at once and let the target correct them until they stand.

    The guesses are the target's own answers along the branch of the rejected tree that is nearest
    to them, or, where there are none, the action before. Under exact acceptance this is parallel
    Jacobi decoding: its fixed point is the greedy action, and it never takes more forwards than
    one per remaining token.

    With `branches` above one the guesses are a tree (our decision): every branch was answered below
    its own prefix, so their answers differ, and a forward checks several chains at the price of
    one. The action before, uncorrected, is one of them.
    """

    def __init__(self, branches: int = 1, *, max_nodes: int = 96) -> None:
        """Start without guesses.

        Args:
            branches: Branches of the rejected tree whose answers become guesses, nearest first.
            max_nodes: Largest tree; the farthest branches are left out first.
        """
        self._branches = branches
        self._max_nodes = max_nodes
        self._before = self._guess = NOTHING

    def begin(self, request: DraftRequest, draft: Draft) -> None:
        """Take the previous action as the first guess, in the first step the best draft."""
        if len(request.history):
            self._before = np.array(request.history[-1], dtype=np.int64)
        elif len(draft.chains):
            self._before = np.array(draft.chains[0], dtype=np.int64)
        else:
            self._before = NOTHING
        self._guess = self._before.copy()

    def propose(self, tokens: IntArray, last: Verified) -> TokenTree:
        """Return the last token and below it guesses for all later ones but the gripper."""
        if not len(self._guess):
            return DraftTree.chain(np.asarray(tokens)[-1:])
        known = len(tokens)
        answers = _answers_behind(last, self._branches, DRAFTED_DIM - known)
        guesses = [_corrected(self._guess, known, answer) for answer in answers or [[]]]
        self._guess = guesses[0]
        if self._branches > 1:
            guesses.append(self._before)
        chains = [
            DraftTree.chain([int(tokens[-1]), *guess[known:DRAFTED_DIM].tolist()])
            for guess in guesses
        ]
        return DraftTree.merge(chains, max_nodes=self._max_nodes)

    def finish(self, tokens: IntArray, last: Verified) -> IntArray:  # noqa: ARG002
        """Return the tokens as they are: nothing is executed unverified."""
        return tokens


def _corrected(guess: IntArray, known: int, answers: list[int]) -> IntArray:
    """Return the guess with the answers in place of the tokens that follow the known ones."""
    corrected: IntArray = guess.copy()
    corrected[known : known + len(answers)] = answers
    return corrected


def _answers_behind(last: Verified, branches: int, longest: int) -> list[list[int]]:
    """Return the target's answers along the branches below the accepted path, nearest first."""
    node = int(last.accepted.path[-1]) if len(last.accepted.path) else ROOT
    starts = _nearest_first(last, node, int(last.accepted.tokens[-1]))[:branches]
    return [_answers_along(last, start)[: max(0, longest)] for start in starts]


def _answers_along(last: Verified, node: int) -> list[int]:
    """Return the answers at a node and below it, always on to the child that fits them best."""
    answers = [int(last.answer.target_next[1 + node])]
    while below := _nearest_first(last, node, answers[-1]):
        node = below[0]
        answers.append(int(last.answer.target_next[1 + node]))
    return answers


def _nearest_first(last: Verified, node: int, wanted: int) -> list[int]:
    """Return the children of a node, those nearest to the wanted token first."""
    return sorted(
        children(last.tree, node), key=lambda child: abs(int(last.tree.tokens[child]) - wanted)
    )
