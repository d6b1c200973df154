"""How an action is finished after the first forward (algorithms.md section 2, AR and Jacobi)."""

from __future__ import annotations

import numpy as np

from heisd_ros.draft.tree import DraftTree
from heisd_ros.types import IntArray, TokenTree, Verification


class AutoregressiveContinuation:
    """One token per forward: the target decodes on from the K/V rows it has kept."""

    def propose(self, tokens: IntArray, answer: Verification) -> TokenTree:  # noqa: ARG002
        """Return the one-node tree of the last token."""
        return DraftTree.chain(np.asarray(tokens)[-1:])
