"""Several feature-free drafts in one tree: the prefill verifies them all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import DraftSource
from heisd_ros.types import Acceptance, Draft, DraftRequest


class MergedDraftSource:
    """Merges the trees of its sources; the first one leads with its kind and scores."""

    def __init__(self, sources: Sequence[DraftSource], *, max_nodes: int = 96) -> None:
        """Set up.

        Args:
            sources: At least one; earlier ones keep their nodes when `max_nodes` binds.
            max_nodes: Largest tree.
        """
        if not sources:
            raise ConfigError("a merged draft needs at least one source")
        self._sources = tuple(sources)
        self._max_nodes = max_nodes

    def draft(self, request: DraftRequest) -> Draft:
        """Return the union of what the sources propose; the first reason if none does."""
        drafts = [source.draft(request) for source in self._sources]
        usable = [draft for draft in drafts if draft.tree is not None]
        if not usable:
            return drafts[0]
        trees = [draft.tree for draft in usable if draft.tree is not None]
        return Draft(
            kind=usable[0].kind,
            tree=DraftTree.merge(trees, max_nodes=self._max_nodes),
            scores=usable[0].scores,
            chains=np.concatenate([draft.chains for draft in usable]),
            actions=np.concatenate([draft.actions for draft in usable]),
        )

    def observe(self, acceptance: Acceptance) -> None:
        """Tell every source."""
        for source in self._sources:
            source.observe(acceptance)

    def reset(self) -> None:
        """Reset every source."""
        for source in self._sources:
            source.reset()
