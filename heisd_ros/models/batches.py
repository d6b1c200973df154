"""From demonstration frames to training batches: prompts, action tokens, pixels and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heisd_ros.action_space.statistics import ActionStatistics, ProprioStatistics
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.models.auxiliary import AuxiliaryTargets
from heisd_ros.models.preprocessing import Preprocessing
from heisd_ros.models.small_vla import LLAMA_ROWS, SmallVla, VlaBatch
from heisd_ros.models.training_data import Augmentation, FrameSet, Sample, TrainingSet, draw
from heisd_ros.types import ACTION_DIM, IntArray

TOKEN_JITTER = 4.0
"""Standard deviation in bins of noise on half of the fed action tokens. A draft that is accepted
within 15 bins becomes the model's input, so it must know such inputs."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Model input and targets; `tokens` are bins 0..255 in ascending id, (B, 7)."""

    inputs: VlaBatch
    tokens: Tensor
    targets: AuxiliaryTargets


class BatchMaker:
    """Turns frames into batches: prompts, tokens, pixel values and auxiliary targets."""

    def __init__(
        self,
        data: TrainingSet,
        model: SmallVla,
        prompts: Sequence[IntArray],
        statistics: Mapping[str, Any],
    ) -> None:
        """Tokenise once.

        Args:
            data: The frames.
            model: Gives the vocabulary and the shape.
            prompts: Prompt ids of each instruction, BOS first.
            statistics: `{"action": ..., "proprio": ...}`.
        """
        self.frames: FrameSet = data.frames
        self._proprio = ProprioStatistics.from_dict(statistics)
        self._bins = model.shape.n_bins
        normal = ActionStatistics.from_dict(statistics).normalize(data.frames.actions)
        tokenizer = ActionTokenizer(LLAMA_ROWS - 64, self._bins)
        self.tokens: IntArray = tokenizer.encode(normal) - tokenizer.first_id
        self._first_action = len(model.vocabulary) - self._bins
        longest = max(len(ids) for ids in prompts) - 1
        self._text = np.zeros((len(prompts), longest + ACTION_DIM - 1), dtype=np.int64)
        self._lengths = np.array([len(ids) - 1 for ids in prompts])
        for row, ids in zip(self._text, prompts, strict=True):
            row[: len(ids) - 1] = model.vocabulary.compact(ids[1:])
        preprocessing = Preprocessing(model.shape.image_size)
        self._means = torch.tensor(preprocessing.means).flatten()[:, None, None]
        self._stds = torch.tensor(preprocessing.stds).flatten()[:, None, None]

    def make(self, rows: IntArray, how: Augmentation, rng: np.random.Generator) -> Batch:
        """Return the batch of these frames (B,)."""
        sample = draw(self.frames, rows, how, rng)
        tokens = self.tokens[rows]
        fed = tokens[:, :-1]
        if how.shift:
            noise = np.rint(TOKEN_JITTER * rng.standard_normal(fed.shape)).astype(np.int64)
            fed = (fed + noise * rng.integers(0, 2, (len(rows), 1))).clip(0, self._bins - 1)
        task = self.frames.task[rows]
        text, length = self._text[task], self._lengths[task]
        places = length[:, None] + np.arange(ACTION_DIM - 1)
        np.put_along_axis(text, places, fed + self._first_action, axis=1)
        state = torch.from_numpy(self._proprio.normalize(sample.state)).float()
        inputs = VlaBatch(
            self._pixels(sample), torch.from_numpy(text), torch.from_numpy(length), state
        )
        return Batch(inputs, torch.from_numpy(tokens), self._targets(sample, rows, state))

    def _pixels(self, sample: Sample) -> Tensor:
        levels = torch.from_numpy(sample.levels).permute(0, 1, 4, 2, 3)  # (B, V, 3, S, S)
        return (torch.cat([levels, levels], dim=2) - self._means) / self._stds

    def _targets(self, sample: Sample, rows: IntArray, state: Tensor) -> AuxiliaryTargets:
        return AuxiliaryTargets(
            goals=torch.from_numpy(self.frames.goals[rows]),
            hand=state,
            goal_pixels=torch.from_numpy(sample.goal_pixels),
            kind_pixels=torch.from_numpy(sample.kind_pixels),
        )
