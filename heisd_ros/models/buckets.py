"""Runs the decoder on a few fixed shapes, so that a compiler sees each of them only once.

A step has a prefill of varying length and trees of varying size; compiled as they come, each new
length would cost seconds in the middle of an episode.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from heisd_ros.models.kv_cache import KVCache
from heisd_ros.models.llama import Llama
from heisd_ros.models.tree_attention import Rows, padded

TREE_BUCKETS = (1, 8, 16, 32, 64)
COARSE = 32
"""Beyond the largest tree bucket, rows are padded to a multiple of this."""

Forward = Callable[[Tensor, Rows, KVCache], Tensor]
"""Embeddings (1, n, d), rows and cache to hidden states (1, n, d)."""


def plain_forward(llama: Llama) -> Forward:
    """Run the decoder on the shapes as they come."""

    def forward(embeds: Tensor, rows: Rows, cache: KVCache) -> Tensor:
        hidden: Tensor = llama(embeds, rows.positions, rows.slots, rows.mask, cache)
        return hidden

    return forward


def compiled_forward(llama: Llama) -> Forward:
    """Compile the decoder and run it on padded rows; the first call of each bucket is slow."""
    compiled = torch.compile(llama, fullgraph=True, dynamic=False)

    def forward(embeds: Tensor, rows: Rows, cache: KVCache) -> Tensor:
        count = embeds.shape[1]
        full = padded(rows, bucket(count))
        filler = embeds.new_zeros((1, full.positions.shape[0] - count, embeds.shape[2]))
        wide = torch.cat((embeds, filler), dim=1)
        hidden: Tensor = compiled(wide, full.positions, full.slots, full.mask, cache)
        return hidden[:, :count]

    return forward


def bucket(count: int) -> int:
    """Return the padded number of rows.

    Example:
        >>> [bucket(count) for count in (1, 2, 36, 64, 65, 300)]
        [1, 8, 64, 64, 96, 320]
    """
    return next((size for size in TREE_BUCKETS if count <= size), -(-count // COARSE) * COARSE)
