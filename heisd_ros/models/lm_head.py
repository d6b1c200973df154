"""The greedy choice over the whole vocabulary, without the rows that can only say zero.

Small checkpoints train the rows of the action tokens alone and leave the other 31 744 at zero. A
zero row's logit is exactly 0, so two of them stand for all: the result is that of the full matrix,
at a hundredth of its cost. A checkpoint whose rows are all trained keeps its full matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from heisd_ros.types import Float32Array, IntArray

WORTHWHILE = 0.5
"""Fold zero rows if at most this share of the rows remains."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Greedy tokens of n rows.

    Attributes:
        token: int64 (n,), the first of the largest logits, as in `argmax` over all rows.
        margin: float32 (n,), how far the second-largest logit is below.
    """

    token: IntArray
    margin: Float32Array


class GreedyHead:
    """Chooses from final-norm outputs; reads the weight once, when it is made."""

    def __init__(self, weight: Tensor) -> None:
        """Take the lm_head's weight (vocab, d)."""
        kept = _kept_rows(weight)
        folded = len(kept) <= WORTHWHILE * len(weight)
        self._ids = kept if folded else None
        self._weight = weight[kept] if folded else weight

    def __call__(self, hidden: Tensor) -> Choice:
        """Choose for every row of (n, d)."""
        logits = F.linear(hidden, self._weight).float()
        best = logits.amax(dim=-1)
        place = logits.argmax(dim=-1)
        logits.scatter_(1, place[:, None], -torch.inf)
        margin = best - logits.amax(dim=-1)
        token = place if self._ids is None else self._ids[place]
        return Choice(token.cpu().numpy(), margin.cpu().numpy())


def _kept_rows(weight: Tensor) -> Tensor:
    """Return the ids of all rows that are not zero and of the first two that are, ascending.

    The first zero row is the one `argmax` would return; the second gives the margin when it wins.
    """
    live = (weight != 0).any(dim=1)
    silent = torch.nonzero(~live).flatten()[:2]
    return torch.cat((torch.nonzero(live).flatten(), silent)).sort().values
