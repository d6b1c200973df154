"""How an action is finished after the first forward by AR or by Jacobi iterations."""

from __future__ import annotations

import numpy as np

from heisd_ros.draft.tree import ROOT, DraftTree, children
from heisd_ros.types import ACTION_DIM, Draft, DraftRequest, IntArray, TokenTree, Verified

DRAFTED_DIM = ACTION_DIM - 1
"""Degrees of freedom that are worth drafting: the gripper always comes with the last answer."""


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
    """

    def __init__(self) -> None:
        """Start without guesses."""
        self._guess: IntArray = np.zeros(0, dtype=np.int64)

    def begin(self, request: DraftRequest, draft: Draft) -> None:
        """Take the previous action as the first guess, in the first step the best draft."""
        if len(request.history):
            self._guess = np.array(request.history[-1], dtype=np.int64)
        elif len(draft.chains):
            self._guess = np.array(draft.chains[0], dtype=np.int64)
        else:
            self._guess = np.zeros(0, dtype=np.int64)

    def propose(self, tokens: IntArray, last: Verified) -> TokenTree:
        """Return the chain of the last token and the guesses for all later ones but the gripper."""
        if not len(self._guess):
            return DraftTree.chain(np.asarray(tokens)[-1:])
        answers = _answers_behind(last)[: max(0, DRAFTED_DIM - len(tokens))]
        self._guess[len(tokens) : len(tokens) + len(answers)] = answers
        return DraftTree.chain([int(tokens[-1]), *self._guess[len(tokens) : DRAFTED_DIM].tolist()])

    def finish(self, tokens: IntArray, last: Verified) -> IntArray:  # noqa: ARG002
        """Return the tokens as they are: nothing is executed unverified."""
        return tokens


def _answers_behind(last: Verified) -> list[int]:
    """Return the target's answers along the branch below the accepted path that fits them best."""
    node = int(last.accepted.path[-1]) if len(last.accepted.path) else ROOT
    wanted = int(last.accepted.tokens[-1])
    answers: list[int] = []
    while below := children(last.tree, node):
        bias = np.abs(np.asarray(last.tree.tokens)[below] - wanted)
        node = below[int(np.argmin(bias))]
        wanted = int(last.answer.target_next[1 + node])
        answers.append(wanted)
    return answers
