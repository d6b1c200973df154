"""Keys and values of the committed prefix, with room for one draft tree (HeiSD section 4.1)."""

from __future__ import annotations

import torch
from torch import Tensor


class KVCache:
    """Fixed buffers of W slots per layer and the number of slots that are committed.

    Slots 0 .. length-1 hold the committed prefix, in order of position. A forward pass writes its
    new rows behind them; `keep` moves the accepted ones to the front of that region.

    Attributes:
        keys: One tensor (1, kv_heads, W, head_dim) per layer. Not one stacked tensor: the compiler
            would copy the whole stack for every layer.
        values: Alike.
        length: Committed slots.
    """

    def __init__(
        self, layers: int, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        """Allocate buffers for `shape` = (kv_heads, W, head_dim)."""
        # Zeros, because even a masked slot must be finite: 0 * nan is nan.
        self.keys = [torch.zeros((1, *shape), dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros((1, *shape), dtype=dtype, device=device) for _ in range(layers)]
        self.length = 0

    @property
    def slots(self) -> int:
        """Number of slots W."""
        return self.keys[0].shape[2] if self.keys else 0

    def reset(self) -> None:
        """Forget everything; stale rows stay in the buffers but no mask will show them."""
        self.length = 0

    def keep(self, rows: Tensor) -> None:
        """Commit these slots, in this order; everything else behind the prefix is dropped.

        Args:
            rows: int64 (k,), slots >= `length` on the cache's device.
        """
        count = int(rows.shape[0])
        if count:
            target = slice(self.length, self.length + count)
            for buffer in (*self.keys, *self.values):
                # index_select copies first, so overlapping source and target rows are safe.
                buffer[:, :, target] = buffer.index_select(2, rows)
        self.length += count
