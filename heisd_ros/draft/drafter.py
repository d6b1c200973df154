"""Drafts from a small head over the target's features: EAGLE-2's dynamic tree (Spec-VLA, HeiSD 4).

The head needs the target's features, so nothing can be drafted before the prefill. Behind it, every
proposal is a tree below the last decided token: the `total_nodes` - 1 most likely continuations
that a beam of `top_k` finds, by cumulative log-probability. The gripper is never drafted: the
target's answer behind the last rotation token already is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from heisd_ros.draft.continuation import DRAFTED_DIM
from heisd_ros.draft.tree import ROOT, DraftTree
from heisd_ros.errors import ConfigError, ModelError
from heisd_ros.types import (
    Acceptance,
    Draft,
    DraftKind,
    DraftRequest,
    FloatArray,
    IntArray,
    TokenTree,
    Verified,
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may follow each of F tokens, best first.

    Attributes:
        tokens: int64 (F, k), different within a row.
        log_probs: float64 (F, k), natural logarithm, <= 0.
    """

    tokens: IntArray
    log_probs: FloatArray


@runtime_checkable
class DraftHead(Protocol):
    """A small model that predicts the target's next features, and from them tokens.

    One action is `begin`, then alternately one `commit` and any number of `expand`.
    """

    def begin(self) -> None:
        """Start an action: the target has just run its prefill, whose features are the context."""

    def commit(self, tokens: IntArray, features: Any) -> Candidates:  # noqa: ANN401
        """Append decided tokens to the context and drop what was expanded since the last call.

        Args:
            tokens: int64 (n,), n >= 1, decided since the last call.
            features: (n, d), array or device tensor, the target's own features in front of each.

        Returns:
            What may follow the last of them, F = 1.
        """

    def expand(self, tokens: IntArray, parents: IntArray) -> Candidates:
        """Continue F candidate tokens from the head's own predicted features.

        Args:
            tokens: int64 (F,).
            parents: int64 (F,), the row each hangs below: rows are numbered through since the last
                `commit` in the order they were expanded, -1 is the last decided token.
        """


class DrafterDraftSource:
    """Drafts trees with a head; a `DraftSource` before the prefill and a `Continuation` after it.

    Use one object as both: as the source it proposes nothing, without a reason, so that the step
    keeps its kind and is finished by the object as the continuation.
    """

    def __init__(
        self, head: DraftHead, *, total_nodes: int = 50, depth: int = 4, top_k: int = 8
    ) -> None:
        """Set the size of the trees (Spec-VLA's code: 50, 4, 8).

        Args:
            head: Predicts the candidates.
            total_nodes: m, nodes of a tree with its root, >= 2.
            depth: Expansions behind the first level, >= 0: a chain has at most depth + 1 drafts.
            top_k: Candidates per node and width of the beam, >= 1.
        """
        if total_nodes < 2 or depth < 0 or top_k < 1:
            raise ConfigError(
                "total_nodes must be >= 2, depth >= 0 and top_k >= 1, got "
                f"{total_nodes}, {depth} and {top_k}"
            )
        self._head = head
        self._total_nodes = total_nodes
        self._depth = depth
        self._top_k = top_k
        self._committed = 0

    def draft(self, request: DraftRequest) -> Draft:  # noqa: ARG002
        """Return the draft that says: after the prefill."""
        return after_prefill()

    def observe(self, acceptance: Acceptance) -> None:
        """Nothing to learn: `propose` is told what was decided."""

    def reset(self) -> None:
        """Forget the action."""
        self._committed = 0

    def begin(self, request: DraftRequest, draft: Draft) -> None:  # noqa: ARG002
        """Start an action."""
        self._committed = 0
        self._head.begin()

    def propose(self, tokens: IntArray, last: Verified) -> TokenTree:
        """Return the tree of the most likely continuations, rooted at the last decided token.

        Args:
            tokens: int64 (k,), 1 <= k < 7, decided so far.
            last: The last verification of this action; its features are the head's input.

        Raises:
            ModelError: If the target keeps no features.
        """
        levels = min(1 + self._depth, DRAFTED_DIM - len(tokens))
        root = int(tokens[-1])
        if levels <= 0:
            return DraftTree.chain([root])
        fresh = tokens[self._committed :]
        first = self._head.commit(fresh, features_before(last, len(fresh)))
        self._committed = len(tokens)
        return dynamic_tree(
            root,
            first,
            self._head.expand,
            levels=levels,
            total_nodes=self._total_nodes,
            top_k=self._top_k,
        )

    def finish(self, tokens: IntArray, last: Verified) -> IntArray:  # noqa: ARG002
        """Return the tokens as they are: nothing is executed unverified."""
        return tokens


def after_prefill() -> Draft:
    """Return the draft of a step that is drafted behind the prefill: no tree, and no reason."""
    return Draft.nothing(DraftKind.DRAFTER)


def features_before(verified: Verified, count: int) -> Any:  # noqa: ANN401
    """Return the target's features in front of the last `count` decided tokens, (count, d).

    Row 0 of the answer stands in front of the tree's first level; each accepted node stands in
    front of the token that was decided behind it.

    Raises:
        ModelError: If the target keeps no features.
    """
    if verified.answer.hidden is None:
        raise ModelError(
            "the drafter needs Verification.hidden, and this target keeps none; "
            "use a method without a drafter"
        )
    rows = np.concatenate(([0], 1 + verified.accepted.path)).astype(np.int64)
    return verified.answer.hidden[rows[len(rows) - count :]]


def dynamic_tree(
    root: int,
    first: Candidates,
    expand: Callable[[IntArray, IntArray], Candidates],
    *,
    levels: int,
    total_nodes: int,
    top_k: int,
) -> DraftTree:
    """Grow a beam and keep its best nodes (EAGLE-2: expansion and reranking).

    A node's score, the sum of log-probabilities along its path, never exceeds its parent's, and the
    parent comes first among equals: the best nodes always form a tree. With total_nodes - 1 <=
    top_k the beam loses nothing, and they are the best of all continuations.

    Args:
        root: Token of node 0.
        first: Candidates behind the root, F = 1.
        expand: Continues the nodes of the beam, as `DraftHead.expand` does.
        levels: Levels below the root, >= 1.
        total_nodes: Nodes to keep, the root included.
        top_k: Nodes of a level that are expanded.
    """
    pool = _Pool(first, top_k)
    for _ in range(levels - 1):
        beam = pool.beam(top_k)
        pool.grow(beam, expand(pool.tokens[beam], pool.row[pool.parent[beam]]), top_k)
    kept = np.sort(np.argsort(-pool.score, kind="stable")[: total_nodes - 1])
    place = np.full(len(pool.score) + 1, ROOT)  # the last place, which -1 finds, is the root's
    place[kept] = np.arange(1, len(kept) + 1)
    place[-1] = 0
    return DraftTree(
        np.concatenate(([root], pool.tokens[kept])),
        np.concatenate(([ROOT], place[pool.parent[kept]])),
    )


class _Pool:
    """All candidates of one proposal, parents first.

    `row` is the head's row of an expanded candidate; its last place, which -1 finds, is the root's.
    """

    def __init__(self, first: Candidates, top_k: int) -> None:
        self.tokens = first.tokens[0, :top_k]
        self.score = first.log_probs[0, :top_k]
        self.parent = np.full(len(self.tokens), ROOT)
        self.row = np.full(len(self.tokens) + 1, ROOT)
        self._level = 0  # where the newest level starts
        self._rows = 0

    def beam(self, width: int) -> IntArray:
        """Return the best candidates of the newest level, in the order they were found."""
        best = np.argsort(-self.score[self._level :], kind="stable")[:width]
        return self._level + np.sort(best)

    def grow(self, beam: IntArray, below: Candidates, top_k: int) -> None:
        """Append what follows the nodes of the beam."""
        tokens, log_probs = below.tokens[:, :top_k], below.log_probs[:, :top_k]
        self._level = len(self.tokens)
        self.row[beam] = self._rows + np.arange(len(beam))
        self._rows += len(beam)
        self.row = np.concatenate((self.row[:-1], np.full(tokens.size + 1, ROOT)))
        self.tokens = np.concatenate((self.tokens, tokens.ravel()))
        self.score = np.concatenate((self.score, (self.score[beam, None] + log_probs).ravel()))
        self.parent = np.concatenate((self.parent, np.repeat(beam, tokens.shape[1])))
