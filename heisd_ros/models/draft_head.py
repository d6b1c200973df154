"""The drafter at work: candidates for a tree from predicted features (Spec-VLA; EAGLE-2).

Behind a drafted token the features are the head's own predictions; as soon as the target has
verified a token, the target's feature takes their place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heisd_ros.draft.continuation import DRAFTED_DIM
from heisd_ros.draft.drafter import Candidates
from heisd_ros.errors import ModelError
from heisd_ros.models.draft_block import DraftBlock
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tree_attention import Rows, tree_rows
from heisd_ros.models.tree_decoder import MAX_ACTION, PrefixFeatures
from heisd_ros.types import IntArray

EXPANSIONS = DRAFTED_DIM - 2
"""Most expansions of one proposal: the first token of an action is known, the second needs none."""


class EagleDraftHead:
    """A block with the cache of one action; implements `draft.drafter.DraftHead`.

    Candidates are action tokens only. Reads the target's prompt features when an action begins.
    """

    def __init__(self, block: DraftBlock, target: OpenVlaTarget, *, top_k: int = 8) -> None:
        """Join a block and its target.

        Args:
            block: On the target's device and of its type.
            target: Lends embeddings, lm_head and prompt features.
            top_k: Candidates per row, at most the number of action tokens.
        """
        info = target.info
        self.block = block
        self._target, self._llama = target, target.network.language_model
        self._top_k = min(top_k, info.n_bins)
        self._first_id = info.vocab_size - info.n_bins
        self._actions = slice(self._first_id, info.vocab_size)
        self._capacity = EXPANSIONS * self._top_k
        self._cache = block.new_cache(target.max_prefix + MAX_ACTION + self._capacity)
        self._prefix: PrefixFeatures | None = None
        self._tree = _ExpandedRows(self._capacity)
        self._features = torch.empty(0)

    @classmethod
    def from_pretrained(
        cls, path: str | Path, target: OpenVlaTarget, *, top_k: int = 8
    ) -> EagleDraftHead:
        """Load a trained head for a target.

        Raises:
            ModelError: If the folder is no complete head or does not fit the target.
        """
        block = DraftBlock.load(
            Path(path).expanduser(),
            target.network.config.llm,
            fingerprint=target.info.fingerprint,
        )
        block = block.to(target.device, target.dtype)
        return cls(block, target, top_k=top_k)

    def begin(self) -> None:
        """Start an action: take the features of the prefill that has just run."""
        self._prefix = self._target.prefix_features()
        self._cache.reset()
        self._tree.clear()

    @torch.inference_mode()
    def commit(self, tokens: IntArray, features: Any) -> Candidates:  # noqa: ANN401
        """Append decided tokens with the target's features in front of them.

        Raises:
            ModelError: If no action has begun.
        """
        embeds = self._embed(tokens)
        hidden = torch.as_tensor(features).to(embeds.device, embeds.dtype)
        if self._cache.length == 0:
            if self._prefix is None:
                raise ModelError("commit() needs an action that has begun; call begin() first")
            # One row per position: what comes next, beside the feature of what is there.
            embeds = torch.cat((self._prefix.embeds[1:], embeds))
            hidden = torch.cat((self._prefix.hidden[:-1], hidden))
            self._prefix = None
        count = embeds.shape[0]
        rows = tree_rows(self._cache.length, count, None, self._cache.slots).to(embeds.device)
        predicted = self.block.cached(embeds, hidden, rows, self._cache)
        self._cache.length += count
        self._tree.clear()
        self._features = predicted[-1:]
        return self._candidates(self._features)

    @torch.inference_mode()
    def expand(self, tokens: IntArray, parents: IntArray) -> Candidates:
        """Continue candidates from the head's own predicted features.

        Raises:
            ModelError: If more rows are expanded than one proposal can have.
        """
        embeds = self._embed(tokens)
        rows = self._tree.add(parents, self._cache.length, self._cache.slots).to(embeds.device)
        above = torch.as_tensor(1 + np.asarray(parents), device=embeds.device)
        predicted = self.block.cached(embeds, self._features[above], rows, self._cache)
        self._features = torch.cat((self._features, predicted))
        return self._candidates(predicted)

    def _embed(self, tokens: IntArray) -> Tensor:
        ids = torch.as_tensor(np.asarray(tokens, dtype=np.int64), device=self._target.device)
        embeds: Tensor = self._llama.embed_tokens(ids)
        return embeds

    def _candidates(self, predicted: Tensor) -> Candidates:
        scores = self._llama.logits(predicted, self._actions).log_softmax(dim=-1)
        best = scores.topk(self._top_k, dim=-1)
        return Candidates(
            best.indices.cpu().numpy() + self._first_id,
            best.values.double().cpu().numpy(),
        )


class _ExpandedRows:
    """The rows expanded since the last commit: which of each other they see, and how deep they are.

    Row r sits in the cache's slot `committed` + r.
    """

    def __init__(self, capacity: int) -> None:
        self._seen = np.zeros((capacity, capacity), dtype=np.bool_)
        self._depth = np.zeros(capacity, dtype=np.int64)
        self._count = 0

    def clear(self) -> None:
        self._count = 0

    def add(self, parents: IntArray, committed: int, width: int) -> Rows:
        """Lay out new rows below their parents (-1: the last committed row)."""
        start, count, capacity = self._count, len(parents), len(self._depth)
        if start + count > capacity:
            raise ModelError(
                f"one proposal has at most {capacity} expanded rows, got {start + count}; "
                "make the drafter's top_k the head's"
            )
        new = np.arange(start, start + count)
        below = np.asarray(parents) >= 0
        self._seen[new] = np.where(below[:, None], self._seen[parents], False)
        self._seen[new, new] = True
        self._depth[new] = np.where(below, self._depth[parents] + 1, 0)
        self._count += count
        mask = np.zeros((count, width), dtype=np.bool_)
        mask[:, :committed] = True
        mask[:, committed : committed + capacity] = self._seen[new]
        return Rows(
            torch.from_numpy(committed + self._depth[new]),
            torch.from_numpy(committed + new),
            torch.from_numpy(mask)[None, None],
        )
