"""Retrieval drafts: the actions of the K most similar demonstrated steps (Eq. 3, HeiSD 4.1).

A neighbour whose motion was executed - its position tokens are those of the action, verified or
skipped alike - is followed for one step (our own extension): the step after it in its demonstration
is scored exactly in the next search, even if the store's approximate search would miss it.
"""

from __future__ import annotations

import numpy as np

from heisd_ros.action_space.layout import SEQUENCE_SLICES
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import StoreError
from heisd_ros.protocols import DemonstrationStore
from heisd_ros.types import ACTION_DIM, Acceptance, Draft, DraftKind, DraftRequest, Hits, IntArray

_POSITION = SEQUENCE_SLICES[ActionSequence.POSITION]


class RetrievalDraftSource:
    """Looks up similar demonstrated steps of the same task and drafts their actions."""

    def __init__(
        self,
        store: DemonstrationStore,
        tokenizer: ActionTokenizer,
        statistics: ActionStatistics,
        *,
        top_k: int = 5,
        min_score: float = -1.0,
        recombine: bool = True,
        max_nodes: int = 96,
    ) -> None:
        """Keep the store and what turns its raw actions into the target's tokens.

        Args:
            store: Searched within the current task only.
            tokenizer: Of the target model.
            statistics: Of the target model: stored actions are raw, tokens are made here.
            top_k: K neighbours per query.
            min_score: Neighbours below this cosine are dropped.
            recombine: Let every position sequence meet every rotation sequence.
            max_nodes: Largest tree.
        """
        self._store = store
        self._tokenizer = tokenizer
        self._statistics = statistics
        self._top_k = top_k
        self._min_score = min_score
        self._recombine = recombine
        self._max_nodes = max_nodes
        self.last_hits: Hits | None = None
        self._drafted: tuple[int, Hits, IntArray] | None = None

    def draft(self, request: DraftRequest) -> Draft:
        """Draft the actions of the K nearest steps; no tree if the store has none for this task."""
        followed = self._executed(request.history)
        self._drafted = None
        try:
            hits = self._store.search(
                request.features.embedding, request.task, self._top_k, after=followed
            )
        except StoreError as error:
            self.last_hits = None  # those of an earlier step would be followed a step late
            return _nothing(f"store_error:{type(error).__name__}")
        self.last_hits = kept = hits.take(np.flatnonzero(hits.score >= self._min_score))
        if not len(hits):
            return _nothing("unknown_task")
        if not len(kept):
            return _nothing("below_min_score")
        chains = self._tokenizer.encode(self._statistics.normalize(kept.action))
        tree = DraftTree.from_chains(
            chains, self._recombine, scores=kept.score, max_nodes=self._max_nodes
        )
        self._drafted = (len(request.history), kept, chains)
        return Draft(
            DraftKind.RETRIEVAL, tree, kept.score, chains, kept.action, features=kept.feature
        )

    def observe(self, acceptance: Acceptance) -> None:
        """Nothing to learn: what was executed stands in the next request, skipped steps too."""

    def reset(self) -> None:
        """Forget the last neighbours."""
        self.last_hits = None
        self._drafted = None

    def _executed(self, history: IntArray) -> Hits | None:
        """Return the neighbours drafted one action ago whose position tokens were executed."""
        if self._drafted is None:
            return None
        step, hits, chains = self._drafted
        if len(history) != step + 1:  # other sources drafted since, or the action failed
            return None
        alike = (chains[:, _POSITION] == history[-1, _POSITION]).all(axis=1)
        return hits.take(np.flatnonzero(alike)) if alike.any() else None


def _nothing(reason: str) -> Draft:
    return Draft(
        DraftKind.RETRIEVAL,
        None,
        np.zeros(0, dtype=np.float32),
        np.zeros((0, ACTION_DIM), dtype=np.int64),
        np.zeros((0, ACTION_DIM)),
        reason,
    )
