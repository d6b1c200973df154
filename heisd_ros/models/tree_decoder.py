"""The language model's part of one step: prefill, tree verification, commit (HeiSD section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heisd_ros.errors import ModelError, ShapeError
from heisd_ros.models.buckets import compiled_forward, plain_forward
from heisd_ros.models.kv_cache import KVCache
from heisd_ros.models.llama import Llama
from heisd_ros.models.lm_head import GreedyHead
from heisd_ros.models.tree_attention import tree_rows
from heisd_ros.types import Float32Array, IntArray, TokenTree, Verification

MAX_ACTION = 16
"""Cache slots for committed action tokens; OpenVLA's actions have 7 or 8."""

ALIGNMENT = 8
"""Slots are a multiple of it, so that the memory-efficient kernel can take the mask."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The greedy choice after each of n rows, with its hidden state and margin."""

    target_next: IntArray
    hidden: Tensor
    margin: Float32Array

    def row(self, index: int) -> _Answer:
        rows = slice(index, index + 1)
        return _Answer(self.target_next[rows], self.hidden[rows], self.margin[rows])

    def above(self, below: _Answer) -> _Answer:
        return _Answer(
            np.concatenate((self.target_next, below.target_next)),
            torch.cat((self.hidden, below.hidden)),
            np.concatenate((self.margin, below.margin)),
        )


@dataclass(frozen=True, slots=True)
class PrefixFeatures:
    """What went into the language model in front of an action, and what came out.

    Attributes:
        embeds: (P, d), embeddings of prompt, patches and state.
        hidden: (P, d), the final norm's output, input of the lm_head.
    """

    embeds: Tensor
    hidden: Tensor

    def updated(self, rows: IntArray, new: PrefixFeatures) -> PrefixFeatures:
        """Return a copy in which these rows, int64 (k,), are those of `new`, (k, d)."""
        places = torch.as_tensor(rows, device=self.embeds.device)
        return PrefixFeatures(
            self.embeds.index_copy(0, places, new.embeds),
            self.hidden.index_copy(0, places, new.hidden),
        )


@dataclass(frozen=True, slots=True)
class _Pending:
    """The tree of the last forward: its parents, and the answers after the prefix and its nodes."""

    parent: IntArray
    answer: _Answer


class TreeDecoder:
    """A Llama with the K/V cache of one step.

    Committed are the prefix and the accepted tokens. An exception in a forward leaves what was
    committed as it was, and `start` always begins afresh. `prefix_features` is what a drafter reads
    of the last prefill; None before it.
    """

    def __init__(
        self, llama: Llama, max_prefix: int, max_nodes: int, *, compiled: bool = False
    ) -> None:
        """Allocate a cache for the longest prefix, the action and the largest tree."""
        self.llama = llama
        self._fixed = compiled
        self._run = compiled_forward(llama) if compiled else plain_forward(llama)
        self.max_prefix, self.max_nodes = max_prefix, max_nodes
        slots = max_prefix + MAX_ACTION + max_nodes + 1  # the last one is for padding rows
        self._cache = llama.new_cache(_aligned(slots))
        self._head = GreedyHead(llama.lm_head.weight)
        self._prefix = 0
        self._known: _Answer | None = None
        self._pending: _Pending | None = None
        self._kept: PrefixFeatures | None = None
        self.prefix_features: PrefixFeatures | None = None

    @property
    def cache(self) -> KVCache:
        """Keys and values; the rows of the last prefix stay in it until the next `start`."""
        return self._cache

    @property
    def committed(self) -> int:
        """Rows that are committed."""
        return self._cache.length

    def start(
        self, prefix: Tensor, draft: TokenTree | None, rows: IntArray | None = None
    ) -> Verification:
        """Forget the last step, then run the prefix and a tree below it in one forward.

        Args:
            prefix: (1, P, d), embeddings; with `rows` (1, k, d), of these rows only.
            draft: Tree of N nodes, or None.
            rows: int64 (k,), ascending, the last one ends the prefix: the other rows keep keys,
                values and features of the last `start`, whose prefix was as long. None: all.

        Raises:
            ModelError: If the prefix is longer than `max_prefix` or the tree than `max_nodes`, or
                `rows` relies on a last `start` that was of another length or failed.
        """
        self.reset()
        fresh = prefix.shape[1] if rows is None else int(rows[-1]) + 1
        kept, self._kept = self._kept, None  # a forward that fails spoils what was kept
        if rows is not None and (kept is None or len(kept.hidden) != fresh):
            raise ModelError(
                f"no rows of a prefix of {fresh} are kept; run the whole prefix once more"
            )
        if fresh > self.max_prefix:
            raise ModelError(
                f"the prefix has {fresh} rows, at most {self.max_prefix} fit; "
                "shorten the instruction"
            )
        answer = self._forward(prefix, draft, fresh, rows)
        if kept is not None and rows is not None and self.prefix_features is not None:
            self.prefix_features = kept.updated(rows, self.prefix_features)
        self._kept = self.prefix_features
        self._cache.length = self._prefix = fresh
        self._known = answer.row(0)
        return self._remember(answer, draft)

    def verify(self, draft: TokenTree) -> Verification:
        """Run a tree below what is committed; row 0 of the answer is the known one.

        Raises:
            ModelError: If no step has begun or the tree is too large.
        """
        if self._known is None:
            raise ModelError("verify() needs a step that has begun; call start() first")
        self._pending = None
        known = self._known
        return self._remember(
            known.above(self._forward(None, draft, 0)) if len(draft) else known, draft
        )

    def accept(self, path: IntArray | Sequence[int]) -> None:
        """Commit nodes of the last tree, root first; an empty path drops the whole tree.

        Raises:
            ModelError: If there is no tree, or the action is longer than `MAX_ACTION`.
            ShapeError: If the nodes are not a path from the first level down.
        """
        nodes = np.asarray(path, dtype=np.int64)
        pending, self._pending = self._pending, None
        if not nodes.size:
            return
        if pending is None:
            raise ModelError("accept() needs a verified tree; call start() or verify() first")
        _check_path(nodes, pending.parent)
        if self._cache.length + len(nodes) > self._prefix + MAX_ACTION:
            raise ModelError(f"an action has at most {MAX_ACTION} tokens; call start() again")
        rows = torch.as_tensor(self._cache.length + nodes, device=self._cache.keys[0].device)
        self._cache.keep(rows)
        self._known = pending.answer.row(int(nodes[-1]) + 1)

    def reset(self) -> None:
        """Forget the step."""
        self._cache.reset()
        self._known = self._pending = self.prefix_features = None

    def _forward(
        self,
        prefix: Tensor | None,
        draft: TokenTree | None,
        fresh: int,
        only: IntArray | None = None,
    ) -> _Answer:
        """Answer for the last of `fresh` prefix rows, if there are any, and for every node."""
        nodes = 0 if draft is None else len(draft)
        if nodes > self.max_nodes:
            raise ModelError(
                f"the draft tree has {nodes} nodes, at most {self.max_nodes} fit; "
                "raise draft.max_nodes or draft less"
            )
        device = self._cache.keys[0].device
        parts = [] if prefix is None else [prefix]
        if draft is not None and nodes:
            tokens = torch.as_tensor(np.asarray(draft.tokens, dtype=np.int64), device=device)
            parts.append(self.llama.embed_tokens(tokens)[None])
        committed = self._cache.length
        width = self._cache.slots if self._fixed else _aligned(committed + fresh + nodes)
        rows = tree_rows(committed, fresh, draft, width)
        if only is not None:
            rows = rows.take(torch.from_numpy(np.append(only, fresh + np.arange(nodes))))
        embeds = torch.cat(parts, dim=1)
        hidden = self._run(embeds, rows.to(device), self._cache.view(width))
        count = 0 if prefix is None else prefix.shape[1]
        answer = self._answer(hidden[0, max(count - 1, 0) :])
        if prefix is not None:
            self.prefix_features = PrefixFeatures(prefix[0], hidden[0, :count])
        return answer

    def _answer(self, hidden: Tensor) -> _Answer:
        # Over the whole vocabulary, as in the reference: a checkpoint that prefers a word over
        # every action is broken, and whoever turns ids into actions must see that id.
        choice = self._head(hidden)
        if not np.isfinite(choice.margin).all():
            self.reset()
            self._cache.wipe()
            raise ModelError(
                "the model's answer is not finite: either the picture's features are not, or the "
                "weight type overflows; try dtype bfloat16 or float32"
            )
        return _Answer(choice.token, hidden, choice.margin)

    def _remember(self, answer: _Answer, draft: TokenTree | None) -> Verification:
        parent = np.zeros(0, np.int64) if draft is None else np.asarray(draft.parent)
        self._pending = _Pending(parent, answer)
        return Verification(answer.target_next.copy(), answer.hidden, answer.margin.copy())


def _aligned(slots: int) -> int:
    return -(-slots // ALIGNMENT) * ALIGNMENT


def _check_path(nodes: IntArray, parent: IntArray) -> None:
    above = -1
    for node in nodes.tolist():
        if not 0 <= node < len(parent) or parent[node] != above:
            raise ShapeError(
                f"{nodes.tolist()} is not a path from the first level of the last tree of "
                f"{len(parent)} nodes; give the accepted nodes root first"
            )
        above = node
