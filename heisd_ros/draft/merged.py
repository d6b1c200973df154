"""Several feature-free drafts in one tree: the prefill verifies them all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from heisd_ros.draft.drafter import after_prefill
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import DraftSource
from heisd_ros.types import Acceptance, Draft, DraftKind, DraftRequest


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
        """Return the union of what the sources propose, beside the reason of the first one."""
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
            features=usable[0].features,
            reason=drafts[0].reason,
        )

    def observe(self, acceptance: Acceptance) -> None:
        """Tell every source."""
        for source in self._sources:
            source.observe(acceptance)

    def reset(self) -> None:
        """Reset every source."""
        for source in self._sources:
            source.reset()


class AfterPrefillSource:
    """Cheap drafts for steps that a drafter finishes from the target's features.

    The drafter has to wait for the prefill; what cheap sources know is verified in it meanwhile, at
    almost no cost. Their tree goes along under the drafter's kind.
    """

    def __init__(self, cheap: DraftSource | None = None) -> None:
        """Set up; without a cheap source the prefill runs without a draft."""
        self._cheap = cheap

    def draft(self, request: DraftRequest) -> Draft:
        """Return the cheap draft, or the one that says: after the prefill."""
        cheap = None if self._cheap is None else self._cheap.draft(request)
        if cheap is None or cheap.tree is None:
            return after_prefill()
        return dataclasses.replace(cheap, kind=DraftKind.DRAFTER)

    def observe(self, acceptance: Acceptance) -> None:
        """Tell the cheap source."""
        if self._cheap is not None:
            self._cheap.observe(acceptance)

    def reset(self) -> None:
        """Reset the cheap source."""
        if self._cheap is not None:
            self._cheap.reset()
