"""Tree attention: which rows a new row may look at, and where its keys go (HeiSD section 4.1).

One layout serves all three passes. The new rows are `fresh` plain rows (the prompt, each seeing all
before it) and then the nodes of a draft tree, each seeing the prefix and its own ancestors:

| pass             | committed | fresh | tree   |
|------------------|-----------|-------|--------|
| prefill          | 0         | P     | none   |
| draft in prefill | 0         | P     | N      |
| verify           | L         | 0     | N      |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heisd_ros.types import TokenTree


@dataclass(frozen=True, slots=True)
class Rows:
    """Static inputs of one cached forward over n new rows.

    Attributes:
        positions: int64 (n,), rotary positions.
        slots: int64 (n,), row of the cache that each new row is written to.
        mask: bool (1, 1, n, W), True where a new row may look.
    """

    positions: Tensor
    slots: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> Rows:
        """Copy to a device."""
        return Rows(self.positions.to(device), self.slots.to(device), self.mask.to(device))

    def take(self, kept: Tensor) -> Rows:
        """Return only some rows, int64 (k,); what they may look at stays the same."""
        return Rows(self.positions[kept], self.slots[kept], self.mask[:, :, kept])


def tree_rows(committed: int, fresh: int, tree: TokenTree | None, width: int) -> Rows:
    """Lay out `fresh` plain rows and the nodes of a tree behind `committed` cached rows.

    Args:
        committed: Rows that the cache already holds.
        fresh: Plain rows to append.
        tree: Draft tree below them; None or empty for none.
        width: Slots W of the cache, at least committed + fresh + N.
    """
    nodes = 0 if tree is None else len(tree)
    start = committed + fresh
    total = fresh + nodes
    mask = np.zeros((total, width), dtype=np.bool_)
    mask[:, :committed] = True
    mask[:fresh, committed:start] = np.tri(fresh, dtype=np.bool_)
    mask[fresh:, committed:start] = True
    positions = np.arange(committed, committed + total, dtype=np.int64)
    if tree is not None and nodes:
        mask[fresh:, start : start + nodes] = tree.attention_mask()
        positions[fresh:] = tree.position_ids(start)
    slots = np.arange(committed, committed + total, dtype=np.int64)
    return Rows(
        torch.from_numpy(positions), torch.from_numpy(slots), torch.from_numpy(mask)[None, None]
    )


def padded(rows: Rows, count: int) -> Rows:
    """Return the rows padded to `count`, so that few shapes need compiling or capturing.

    Padding rows write to the last slot and see only that slot, which no real row ever sees.
    """
    missing = count - rows.positions.shape[0]
    if missing <= 0:
        return rows
    width = rows.mask.shape[-1]
    positions = torch.cat((rows.positions, rows.positions.new_zeros(missing)))
    slots = torch.cat((rows.slots, rows.slots.new_full((missing,), width - 1)))
    blind = rows.mask.new_zeros((1, 1, missing, width))
    blind[..., width - 1] = True
    return Rows(positions, slots, torch.cat((rows.mask, blind), dim=2))
