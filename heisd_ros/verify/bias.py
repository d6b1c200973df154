"""The distance between draft and target in token bins (HeiSD: bias_aj and bias_seq)."""

from __future__ import annotations

import numpy as np

from heisd_ros.types import IntArray, TokenTree


def index_bias(tree: TokenTree, target_next: IntArray) -> IntArray:
    """Return bias_aj of every node: |draft token - the target's token at the same place|.

    Each node is compared with the target's answer after the node's own parent, so every candidate
    is judged under its own prefix.

    Args:
        tree: The draft tree, N nodes.
        target_next: int64 (1+N,), next token after the prefix (row 0) and after each node.

    Returns:
        int64 (N,), bins, >= 0.
    """
    wanted: IntArray = np.asarray(target_next)[1 + np.asarray(tree.parent)]
    bias: IntArray = np.abs(np.asarray(tree.tokens) - wanted)
    return bias


def sequence_bias(bias: IntArray) -> int:
    """Return bias_seq, the SUM of the token biases of one sequence (the published code's form)."""
    return int(np.sum(bias))
