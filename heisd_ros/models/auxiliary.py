"""Training-only heads that teach the small VLA where things are.

Ten thousand frames are too few for a vision transformer to find a bowl to within millimetres from
action labels alone. The simulator knows where everything is, so while training the towers mark
the objects in their patches, and the language model says where it wants to grasp and to place.
None of these weights is exported.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heisd_ros.models.small_vla import SmallVlaShape, VlaOutputs

GOAL_UNIT = 0.1
"""Metres that count as 1 in the regressions."""

POINTER_CHANNELS = 48
GOALS = 2
"""Grasp point and place point."""


@dataclass(frozen=True, slots=True)
class AuxiliaryTargets:
    """What the simulator knows; pixel coordinates have their origin at the top left corner.

    Attributes:
        goals: (B, 2, 3), grasp point and place point minus hand, metres.
        hand: (B, 4), normalised state.
        goal_pixels: (B, V, 2, 2), nan where not in front of the camera.
        kind_pixels: (B, V, C, 2, 2), two objects of each kind, nan where absent.
    """

    goals: Tensor
    hand: Tensor
    goal_pixels: Tensor
    kind_pixels: Tensor


@dataclass(frozen=True, slots=True)
class AuxiliaryLosses:
    """Loss terms and what they mean in millimetres.

    Attributes:
        goals: Regression of the two goals by the language model.
        pointers: Cross-entropy of the patch that shows a goal, given the instruction.
        marks: Cross-entropy of the patches that show each kind of object, plus the offset in it.
        pooled: Regression by the mean patch feature, which is the retrieval embedding.
        goal_error: (6,), mean absolute error of the goals, metres.
        pointer_hits: Part of the visible goals whose patch was found.
    """

    goals: Tensor
    pointers: Tensor
    marks: Tensor
    pooled: Tensor
    goal_error: Tensor
    pointer_hits: Tensor


class AuxiliaryHeads(nn.Module):
    """All heads together."""

    def __init__(self, shape: SmallVlaShape, kinds: int) -> None:
        super().__init__()
        self.shape = shape
        features = 2 * shape.tower_dim
        self.mark_norms = nn.ModuleList(nn.LayerNorm(shape.tower_dim) for _ in range(2))
        self.marks = nn.ModuleList(nn.Linear(shape.tower_dim, 3 * kinds) for _ in range(2))
        self.pooled = nn.Linear(shape.views * features, GOALS * 3 + shape.state_size)
        self.goal_norms = nn.ModuleList(nn.LayerNorm(shape.hidden) for _ in range(3))
        self.goals = nn.ModuleList(nn.Linear(shape.hidden, GOALS * 3) for _ in range(3))
        self.query = nn.Linear(shape.hidden, shape.views * GOALS * POINTER_CHANNELS)
        self.key = nn.Linear(features, POINTER_CHANNELS)

    def forward(self, outputs: VlaOutputs, targets: AuxiliaryTargets) -> AuxiliaryLosses:
        """Return all losses of a batch."""
        wanted = (targets.goals.flatten(1) / GOAL_UNIT).clamp(-5.0, 5.0)
        rows = (outputs.early_state, outputs.early_prompt, outputs.final_prompt)
        found = [
            head(norm(row))
            for head, norm, row in zip(self.goals, self.goal_norms, rows, strict=True)
        ]
        pointers, hits = self._pointers(outputs, targets.goal_pixels)
        pooled = self.pooled(outputs.patches.mean(dim=2).flatten(1))
        return AuxiliaryLosses(
            goals=torch.stack([F.smooth_l1_loss(guess, wanted) for guess in found[1:]]).sum()
            + 0.5 * F.smooth_l1_loss(found[0], wanted),
            pointers=pointers,
            marks=self._marks(outputs.patches, targets.kind_pixels),
            pooled=F.smooth_l1_loss(pooled, torch.cat([wanted, targets.hand], dim=1)),
            goal_error=(found[2] - wanted).detach().abs().mean(dim=0) * GOAL_UNIT,
            pointer_hits=hits,
        )

    def _pointers(self, outputs: VlaOutputs, pixels: Tensor) -> tuple[Tensor, Tensor]:
        shape, size = self.shape, len(pixels)
        query = self.query(self.goal_norms[1](outputs.early_prompt))
        query = query.view(size, shape.views, GOALS, POINTER_CHANNELS)
        score = query @ self.key(outputs.patches).transpose(2, 3)  # (B, V, 2, P)
        score = score * POINTER_CHANNELS**-0.5
        patch, _, visible = self._locate(pixels)
        picked = score.log_softmax(dim=-1).gather(-1, patch[..., None])[..., 0]
        hits = (score.argmax(dim=-1) == patch) & visible
        count = visible.sum().clamp(min=1)
        return -(picked * visible).sum() / count, hits.sum() / count

    def _marks(self, patches: Tensor, pixels: Tensor) -> Tensor:
        """Each kind has a map over the patches; each patch says where inside it the object is."""
        patch, offset, visible = self._locate(pixels)  # (B, V, C, 2), (..., 2), (B, V, C, 2)
        count = visible.sum().clamp(min=1)
        total = patches.new_zeros(())
        for tower, norm, head in zip(
            patches.chunk(2, dim=-1), self.mark_norms, self.marks, strict=True
        ):
            maps = head(norm(tower)).unflatten(-1, (-1, 3)).transpose(2, 3)  # (B, V, C, P, 3)
            picked = maps[..., 0].log_softmax(dim=-1).gather(-1, patch)
            index = patch[..., None].expand(*patch.shape, 2)
            guess = maps[..., 1:].gather(3, index)
            error = F.smooth_l1_loss(guess, offset, reduction="none", beta=0.1).sum(dim=-1)
            total = total + ((2.0 * error - picked) * visible).sum() / count
        return total

    def _locate(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return patch number, offset in [-0.5, 0.5] from its centre, and visibility of points."""
        side = self.shape.image_size // self.shape.patch_size
        cell = pixels / self.shape.patch_size
        visible = ((cell >= 0.0) & (cell < side)).all(dim=-1)
        cell = torch.where(visible[..., None], cell, torch.zeros_like(cell))
        whole = cell.floor()
        patch = (whole[..., 1] * side + whole[..., 0]).long()
        return patch, cell - whole - 0.5, visible
