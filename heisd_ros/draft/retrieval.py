"""Retrieval drafts: the actions of the K most similar demonstrated steps (Eq. 3, HeiSD 4.1)."""

from __future__ import annotations

import numpy as np

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import StoreError
from heisd_ros.protocols import DemonstrationStore
from heisd_ros.types import ACTION_DIM, Acceptance, Draft, DraftKind, DraftRequest, Hits


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

    def draft(self, request: DraftRequest) -> Draft:
        """Draft the actions of the K nearest steps; no tree if the store has none for this task."""
        try:
            hits = self._store.search(request.features.embedding, request.task, self._top_k)
        except StoreError as error:
            self.last_hits = None  # those of an earlier step would be followed a step late
            return _nothing(f"store_error:{type(error).__name__}")
        keep = np.flatnonzero(hits.score >= self._min_score)
        self.last_hits = hits.take(keep)
        if not len(hits):
            return _nothing("unknown_task")
        if not len(keep):
            return _nothing("below_min_score")
        actions = hits.action[keep]
        scores = hits.score[keep]
        chains = self._tokenizer.encode(self._statistics.normalize(actions))
        tree = DraftTree.from_chains(
            chains, self._recombine, scores=scores, max_nodes=self._max_nodes
        )
        features = None if hits.feature is None else hits.feature[keep]
        return Draft(DraftKind.RETRIEVAL, tree, scores, chains, actions, features=features)

    def observe(self, acceptance: Acceptance) -> None:
        """Nothing to learn: the store does not change while it is read."""

    def reset(self) -> None:
        """Forget the last neighbours."""
        self.last_hits = None


def _nothing(reason: str) -> Draft:
    return Draft(
        DraftKind.RETRIEVAL,
        None,
        np.zeros(0, dtype=np.float32),
        np.zeros((0, ACTION_DIM), dtype=np.int64),
        np.zeros((0, ACTION_DIM)),
        reason,
    )
