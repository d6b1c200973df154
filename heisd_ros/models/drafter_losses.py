"""What a draft head is trained for, and how good its drafts are (Spec-VLA's recipe)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heisd_ros.models.draft_block import DraftBlock
from heisd_ros.models.drafter_features import DRAFTED

NEAR_BINS = 9
"""Validation counts a draft as near within this many bins, Spec-VLA's tolerance."""


@dataclass(frozen=True, slots=True)
class DrafterLoss:
    """The two losses of a batch, scalars."""

    features: Tensor
    tokens: Tensor


def drafter_loss(predicted: Tensor, wanted: Tensor, rows: Tensor) -> DrafterLoss:
    """Compare predicted features with the target's.

    Args:
        predicted: (B, 5, d).
        wanted: (B, 5, d).
        rows: (n_bins, d), the lm_head's rows of the action tokens.
    """
    truth = (wanted @ rows.T).softmax(dim=-1)
    guess = (predicted @ rows.T).log_softmax(dim=-1)
    return DrafterLoss(
        features=F.smooth_l1_loss(predicted, wanted),
        tokens=-(truth * guess).sum(dim=-1).mean(),
    )


@torch.no_grad()
def evaluate(block: DraftBlock, batches: Sequence[Tensor], rows: Tensor) -> dict[str, Any]:
    """Return how good a head's drafts are when it builds on its own predictions.

    Args:
        block: The head.
        batches: Each (B, 2, L, d), embeddings and features.
        rows: (n_bins, d), the lm_head's rows of the action tokens.

    Returns:
        `top1`, the share of most likely candidates that are the target's token, for the five
        drafted degrees of freedom; `near`, the same within nine bins; `chain`, the mean number of
        most likely candidates in a row that are the target's, 0 to 5.
    """
    distance = torch.cat(
        [_chain(block, batch.to(rows.device), rows) for batch in batches]
    )  # (n, 5)
    hit = (distance == 0).double()
    return {
        "top1": hit.mean(dim=0).cpu().numpy().round(3).tolist(),
        "near": (distance <= NEAR_BINS).double().mean(dim=0).cpu().numpy().round(3).tolist(),
        "chain": round(float(hit.cumprod(dim=1).sum(dim=1).mean()), 3),
    }


def _chain(block: DraftBlock, batch: Tensor, rows: Tensor) -> Tensor:
    """Return |draft - target| in bins, int64 (B, 5), with the true tokens in front of each."""
    embeds, hidden = batch.unbind(dim=1)
    prompt = hidden.shape[1] - DRAFTED
    seen = hidden[:, :prompt]
    for _ in range(DRAFTED):
        seen = torch.cat((seen, block(embeds[:, 1 : seen.shape[1] + 1], seen, 1)), dim=1)
    guess = (seen[:, prompt:] @ rows.T).argmax(dim=-1)
    truth = (hidden[:, prompt:] @ rows.T).argmax(dim=-1)
    return (guess - truth).abs()
