"""The training loss of the action tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heisd_ros.models.small_vla import LLAMA_ROWS

SMOOTHING = 3.0
"""Standard deviation in bins of the targets of the six continuous degrees of freedom."""

DOF_WEIGHTS = (1.0, 1.0, 1.0, 0.3, 0.3, 0.3, 1.0)
"""Rotation counts less: the teacher hardly turns the hand."""


def token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy over the whole vocabulary, weighted over the degrees of freedom.

    Rows of the vocabulary that are no action tokens have zero weights, so each of them has the
    logit 0: together they count as one more logit, log(number of rows).

    Args:
        logits: (B, 7, n_bins).
        tokens: int64 (B, 7), bins.
    """
    bins = logits.shape[-1]
    others = logits.new_full((*logits.shape[:-1], 1), math.log(LLAMA_ROWS - bins))
    score = torch.cat([logits, others], dim=-1).log_softmax(dim=-1)[..., :bins]
    distance = torch.arange(bins) - tokens[:, :-1, None]
    soft = torch.exp(-0.5 * (distance / SMOOTHING) ** 2)
    soft = soft / soft.sum(dim=-1, keepdim=True)
    motion = -(soft * score[:, :-1]).sum(dim=-1)
    gripper = -score[:, -1:].gather(-1, tokens[:, -1:, None])[..., 0]
    return (torch.cat([motion, gripper], dim=1) * torch.tensor(DOF_WEIGHTS)).mean()
