"""Look-ahead drafts: what the accepted neighbour did next (our own extension).

A demonstration that was right at step t is likely to be right at t+1, t+2, t+3. Its following
actions come with the search result, so these drafts cost no query. They never cross an episode end:
`valid_length` says how many of them are real.
"""

from __future__ import annotations

import numpy as np

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.draft.retrieval import RetrievalDraftSource
from heisd_ros.draft.tree import DraftTree
from heisd_ros.types import ACTION_DIM, Acceptance, Draft, DraftKind, DraftRequest, FloatArray


class LookaheadDraftSource:
    """Drafts the next action of the neighbour whose action was accepted last."""

    def __init__(
        self,
        retrieval: RetrievalDraftSource,
        tokenizer: ActionTokenizer,
        statistics: ActionStatistics,
    ) -> None:
        """Follow a retrieval source of the same decode loop."""
        self._retrieval = retrieval
        self._tokenizer = tokenizer
        self._statistics = statistics
        self._future: FloatArray = np.zeros((0, ACTION_DIM))

    def draft(self, request: DraftRequest) -> Draft:  # noqa: ARG002
        """Draft the following action; each one is offered once."""
        if not len(self._future):
            return Draft.nothing(DraftKind.LOOKAHEAD, "no_successor")
        scores = np.zeros(0, dtype=np.float32)
        actions, self._future = self._future[:1], self._future[1:]
        chains = self._tokenizer.encode(self._statistics.normalize(actions))
        return Draft(DraftKind.LOOKAHEAD, DraftTree.from_chains(chains), scores, chains, actions)

    def observe(self, acceptance: Acceptance) -> None:
        """Follow the neighbour nearest to what was accepted, if a whole position sequence was."""
        hits = self._retrieval.last_hits
        accepted = acceptance.tokens[: len(acceptance.path)]
        if hits is None or not len(hits) or len(accepted) < 3:
            return
        chains = self._tokenizer.encode(self._statistics.normalize(hits.action))
        distance = np.abs(chains[:, : len(accepted)] - accepted[: chains.shape[1]]).sum(axis=1)
        best = int(np.argmin(distance))
        self._future = hits.lookahead[best, : int(hits.valid_length[best])]

    def reset(self) -> None:
        """Forget the neighbour."""
        self._future = np.zeros((0, ACTION_DIM))
