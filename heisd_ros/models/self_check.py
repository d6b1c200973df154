"""The start-up check: a model that ignores the picture must never drive a robot.

On some library versions the reference code answers the same action for every picture, without an
error. Two pictures that could not differ more must give different features and different answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ModelError
from heisd_ros.protocols import TargetModel, VisionEncoder
from heisd_ros.types import (
    ACTION_DIM,
    Float32Array,
    FloatArray,
    Frame,
    VisualFeatures,
)

PICTURE_SIDE = 224
INSTRUCTION = "pick up the bowl"
SMALLEST_DIFFERENCE = 1e-4
"""Relative to the largest value; two passes over one picture differ by less than 1e-5."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """Greedy tokens and the first hidden state, empty if the target does not show it."""

    tokens: list[int]
    hidden: FloatArray


def check_image_is_used(
    encoder: VisionEncoder, target: TargetModel, *, state: Float32Array | None = None
) -> None:
    """Show the model a black and a white picture.

    Args:
        encoder: Makes the features.
        target: Answers; its `info.views` frames are encoded at a time.
        state: Any valid state, for a model that takes one.

    Raises:
        ModelError: With `image_ignored` first in its text, if features or answers are the same.
    """
    black, white = (encoder.encode(_frames(level, target.info.views)) for level in (0, 255))
    if _same(_numpy(black.patches), _numpy(white.patches)):
        raise ModelError(
            "image_ignored: a black and a white picture give the same visual features; "
            "the vision weights are wrong, take the checkpoint from its source again"
        )
    first, second = (_answer(target, features, state) for features in (black, white))
    if first.tokens == second.tokens and _same(first.hidden, second.hidden):
        raise ModelError(
            "image_ignored: a black and a white picture give the same answer; "
            "the projector's weights are wrong, take the checkpoint from its source again"
        )


def _frames(level: int, views: int) -> list[Frame]:
    picture = np.full((PICTURE_SIDE, PICTURE_SIDE, 3), level, dtype=np.uint8)
    return [Frame(picture, f"view {view}", 0) for view in range(views)]


def _answer(target: TargetModel, features: VisualFeatures, state: Float32Array | None) -> _Answer:
    answer = target.start(target.prompt(INSTRUCTION), features.patches, state=state)
    hidden = np.zeros(0) if answer.hidden is None else _numpy(answer.hidden[0])
    tokens = [int(answer.target_next[0])]
    while len(tokens) < ACTION_DIM:
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        tokens.append(int(answer.target_next[1]))
    return _Answer(tokens, hidden)


def _same(first: FloatArray, second: FloatArray) -> bool:
    largest = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    return bool(np.abs(first - second).max(initial=0.0) <= SMALLEST_DIFFERENCE * largest)


def _numpy(value: Any) -> FloatArray:  # noqa: ANN401  (array or device tensor)
    if hasattr(value, "detach"):
        value = value.detach().float().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
