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

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        """Take the buffers; most callers want `empty`."""
        self.keys, self.values = keys, values
        self.length = 0

    @classmethod
    def empty(
        cls, layers: int, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
    ) -> KVCache:
        """Allocate buffers for `shape` = (kv_heads, W, head_dim)."""

        # Zeros, because even a masked slot must be finite: 0 * nan is nan.
        def buffers() -> list[Tensor]:
            return [torch.zeros((1, *shape), dtype=dtype, device=device) for _ in range(layers)]

        return cls(buffers(), buffers())

    @property
    def slots(self) -> int:
        """Number of slots W."""
        return self.keys[0].shape[2] if self.keys else 0

    def reset(self) -> None:
        """Forget everything; stale rows stay in the buffers but no mask will show them."""
        self.length = 0

    def wipe(self) -> None:
        """Forget and overwrite everything, after a pass that left numbers that are not finite."""
        for buffer in (*self.keys, *self.values):
            buffer.zero_()
        self.length = 0

    def view(self, slots: int) -> KVCache:
        """Return the first `slots` slots, sharing the buffers; attention over fewer is cheaper."""
        if slots == self.slots:
            return self
        keys = [buffer[:, :, :slots] for buffer in self.keys]
        return KVCache(keys, [buffer[:, :, :slots] for buffer in self.values])

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
