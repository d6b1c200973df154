"""The draft tree: candidate token chains merged into a trie (HeiSD section 4.3, "sequence-wise").

An action is three sequences, XYZ | RxRyRz | gripper. Retrieval gives K whole actions; every
position sequence may be followed by every rotation sequence. The gripper is never a branch: the
target's answer after the last rotation token already is its own gripper token, so a draft of it
could save nothing and could only be wrong (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from heisd_ros.action_space.layout import SEQUENCE_SLICES
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.errors import ShapeError
from heisd_ros.types import BoolArray, Float32Array, IntArray, TokenTree

ROOT = -1
"""Parent of the first level: the committed prefix."""

_POSITION = SEQUENCE_SLICES[ActionSequence.POSITION]
_ROTATION = SEQUENCE_SLICES[ActionSequence.ROTATION]


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A trie of draft tokens; parents come before their children, siblings differ in token.

    Attributes:
        tokens: int64 (N,), token of each node.
        parent: int64 (N,), index of the parent, -1 for a child of the prefix.
        depth: int64 (N,), 0 for a child of the prefix; computed.
    """

    tokens: IntArray
    parent: IntArray
    depth: IntArray = field(init=False)

    def __post_init__(self) -> None:
        tokens = np.asarray(self.tokens, dtype=np.int64)
        parent = np.asarray(self.parent, dtype=np.int64)
        if tokens.ndim != 1 or tokens.shape != parent.shape:
            raise ShapeError(
                f"tokens and parent must have shape (N,), got {tokens.shape} and {parent.shape}"
            )
        if np.any(parent < ROOT) or np.any(parent >= np.arange(len(parent))):
            raise ShapeError("every parent must be -1 or come before its child")
        depth = np.zeros_like(parent)
        for node, above in enumerate(parent):
            depth[node] = 0 if above == ROOT else depth[above] + 1
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "parent", parent)
        object.__setattr__(self, "depth", depth)

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    @classmethod
    def from_chains(
        cls,
        chains: IntArray,
        recombine: bool = True,
        *,
        scores: Float32Array | None = None,
        max_nodes: int | None = None,
    ) -> DraftTree:
        """Merge K candidate actions into one tree, at most six levels deep.

        Without merging, K candidates give 3K + 3K^2 nodes when recombined and 6K when not.

        Args:
            chains: int64 (K, n), 3 <= n <= 7, best first; columns from the gripper on are not used.
            recombine: Let every position sequence meet every rotation sequence.
            scores: float32 (K,), similarity of each chain; only used to choose what is dropped.
            max_nodes: Largest tree; pairs with the smallest score_p + score_q are dropped first.

        Raises:
            ShapeError: If chains has another shape, or scores another length.
        """
        chains = np.asarray(chains, dtype=np.int64)
        if chains.ndim != 2 or not _POSITION.stop <= chains.shape[1] <= 7:
            raise ShapeError(f"chains must have shape (K, 3..7), got {chains.shape}")
        weight = np.zeros(len(chains)) if scores is None else np.asarray(scores, dtype=np.float64)
        if weight.shape != (len(chains),):
            raise ShapeError(f"scores must have shape ({len(chains)},), got {weight.shape}")
        pairs = _pairs(len(chains), recombine)
        paths = [
            tuple(np.concatenate([chains[p, _POSITION], chains[q, _ROTATION]]).tolist())
            for p, q in pairs
        ]
        if max_nodes is not None:
            ranked = sorted(range(len(pairs)), key=lambda i: -float(weight[list(pairs[i])].sum()))
            paths = _fitting(paths, ranked, max_nodes)
        return cls.from_paths(paths)

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> DraftTree:
        """Merge token paths of any length into a trie, in the order given."""
        tokens: list[int] = []
        parents: list[int] = []
        index: dict[tuple[int, int], int] = {}
        for path in paths:
            node = ROOT
            for token in path:
                key = (node, int(token))
                if key not in index:
                    index[key] = len(tokens)
                    tokens.append(int(token))
                    parents.append(node)
                node = index[key]
        return cls(np.array(tokens, dtype=np.int64), np.array(parents, dtype=np.int64))

    @classmethod
    def chain(cls, tokens: Sequence[int] | IntArray) -> DraftTree:
        """Return the tree of a single path."""
        return cls.from_paths([[int(token) for token in tokens]])

    @classmethod
    def merge(cls, trees: Iterable[TokenTree], *, max_nodes: int | None = None) -> DraftTree:
        """Merge several trees; earlier trees keep their nodes when `max_nodes` binds."""
        paths = [
            tuple(int(tree.tokens[node]) for node in path)
            for tree in trees
            for path in leaf_paths(tree)
        ]
        if max_nodes is not None:
            paths = _fitting(paths, list(range(len(paths))), max_nodes)
        return cls.from_paths(paths)

    def attention_mask(self) -> BoolArray:
        """Return bool (N, N): row i is True at node i and at its ancestors."""
        mask = np.eye(len(self), dtype=np.bool_)
        for node, above in enumerate(self.parent):
            if above != ROOT:
                mask[node] |= mask[above]
        return mask

    def position_ids(self, prefix_length: int) -> IntArray:
        """Return int64 (N,), prefix_length + depth: siblings share a position."""
        return prefix_length + self.depth

    def paths(self) -> list[IntArray]:
        """Return the node indices of every root-to-leaf path, in depth-first order."""
        return leaf_paths(self)


def children(tree: TokenTree, node: int) -> list[int]:
    """Return the children of a node (-1: the first level), in tree order."""
    return [int(child) for child in np.flatnonzero(np.asarray(tree.parent) == node)]


def leaf_paths(tree: TokenTree) -> list[IntArray]:
    """Return the node indices of every root-to-leaf path, in depth-first order."""
    paths: list[IntArray] = []
    stack = [[node] for node in reversed(children(tree, ROOT))]
    while stack:
        path = stack.pop()
        below = children(tree, path[-1])
        if not below:
            paths.append(np.array(path, dtype=np.int64))
        stack.extend([*path, node] for node in reversed(below))
    return paths


def _pairs(count: int, recombine: bool) -> list[tuple[int, int]]:
    if not recombine:
        return [(p, p) for p in range(count)]
    return [(p, q) for p in range(count) for q in range(count)]


def _fitting(
    paths: list[tuple[int, ...]], ranked: list[int], max_nodes: int
) -> list[tuple[int, ...]]:
    """Keep the best-ranked paths whose trie has at most max_nodes nodes, in their old order."""
    kept: set[int] = set()
    prefixes: set[tuple[int, ...]] = set()
    for i in ranked:
        grown = prefixes | {paths[i][:end] for end in range(1, len(paths[i]) + 1)}
        if len(grown) <= max_nodes:
            prefixes = grown
            kept.add(i)
    return [path for i, path in enumerate(paths) if i in kept]
