"""Demonstration frames in memory, and augmented batches of them, for training the small VLA."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heisd_ros.demonstrations.episode import Episode, load_episode
from heisd_ros.errors import DataError
from heisd_ros.types import BoolArray, Float32Array, FloatArray, ImageArray, IntArray

HELD_OUT_EVERY = 12
"""Every twelfth demonstration is kept for validation."""

CORRECTION_WEIGHT = 2.5
"""How much oftener a DAgger frame is drawn: there are few, and they show what goes wrong."""

AT_REST_WEIGHT = 2.0
"""How much oftener a closed gripper at rest is drawn: few frames decide whether it ever lifts."""

REACH = 0.9
"""Metres from hand to object at the start of an episode; what is farther has fallen off the table,
and a teacher who chases it teaches nothing."""

MOST_BALANCE = 2.0
"""Largest factor on the frames of a task that has few: a handful must not fill the batches."""

INSTANCES = 2
"""Most objects of one kind in a scene, e.g. two black bowls."""

NARROWEST = 0.2
"""Smallest range of an action axis, action units. The teacher seldom turns the hand; quantiles as
narrow as its idle commands would cut off the corrections and spread noise over all bins."""

WORKSPACE_LOW = (-0.35, -0.40, 0.88, 0.0)
WORKSPACE_HIGH = (0.25, 0.45, 1.32, 0.08)
"""Hand positions above LIBERO's table and finger gaps, metres: tasks may be added later."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrameSet:
    """N training frames with their targets.

    Attributes:
        images: uint8 (N, V, S, S, 3).
        state: float32 (N, 4): hand position x y z and finger gap, metres.
        actions: float32 (N, 7), the teacher's labels, gripper 1 = open.
        task: int64 (N,), index into the instructions.
        weight: float64 (N,), relative frequency of being drawn.
        held_out: bool (N,), frames of validation episodes.
        goals: float32 (N, 2, 3), grasp point and place point minus hand, metres.
        goal_pixels: float32 (N, V, 2, 2), the same two points in the pictures, pixels.
        kind_pixels: float32 (N, V, C, 2, 2), up to two objects of each kind; nan where absent.
    """

    images: ImageArray
    state: Float32Array
    actions: Float32Array
    task: IntArray
    weight: FloatArray
    held_out: BoolArray
    goals: Float32Array
    goal_pixels: Float32Array
    kind_pixels: Float32Array

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """All frames, the tasks in words, and the kinds of objects of the auxiliary targets."""

    frames: FrameSet
    instructions: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def train_rows(self) -> IntArray:
        """Frames to train on."""
        return np.flatnonzero(~self.frames.held_out)

    @property
    def validation_rows(self) -> IntArray:
        """Frames of held-out episodes."""
        return np.flatnonzero(self.frames.held_out)


def load_training_set(folders: Sequence[Path]) -> TrainingSet:
    """Read all episodes below some folders.

    Failed demonstrations are left out; failed DAgger episodes stay, their labels are right, unless
    the object was out of reach from the start.

    Raises:
        DataError: If there is no usable episode, or one lacks the auxiliary targets.
    """
    paths = [path for folder in folders for path in sorted(folder.rglob("ep_*.npz"))]
    instructions: dict[str, int] = {}
    kinds: tuple[str, ...] = ()
    parts: list[FrameSet] = []
    for path in paths:
        episode = load_episode(path)
        corrected = int(episode.source.get("takeover", "0")) > 0
        if not _usable(episode, corrected=corrected):
            continue
        kinds = kinds or _kinds(_point_names(episode))
        task = instructions.setdefault(episode.instruction, len(instructions))
        number = int(episode.source.get("episode", "0"))
        held_out = not corrected and number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        parts.append(_frames(episode, kinds, task=task, corrected=corrected, held_out=held_out))
    if not parts:
        raise DataError(
            f"no usable episode below {', '.join(map(str, folders))}; make some with heisd ingest"
        )
    _log.info("%d of %d episodes, %d tasks", len(parts), len(paths), len(instructions))
    joined = {
        item.name: np.concatenate([getattr(part, item.name) for part in parts])
        for item in fields(FrameSet)
    }
    joined["weight"] *= _task_balance(joined["task"])
    return TrainingSet(FrameSet(**joined), tuple(instructions), kinds)


def range_statistics(frames: FrameSet) -> dict[str, dict[str, Any]]:
    """Return the action and proprio entries of `dataset_statistics.json`.

    Actions: 1 % and 99 % quantiles, gripper unscaled. State: the whole range with a margin, since
    values outside are clipped and a clipped finger gap would look like a grasp.
    """
    low, high = np.quantile(frames.actions, (0.01, 0.99), axis=0)
    span = np.maximum(high - low, NARROWEST)
    middle = (high + low) / 2
    low, high = middle - span / 2, middle + span / 2
    low[6], high[6] = 0.0, 1.0
    state_low = np.minimum(frames.state.min(axis=0) - 0.02, WORKSPACE_LOW)
    state_high = np.maximum(frames.state.max(axis=0) + 0.02, WORKSPACE_HIGH)
    state_low[3], state_high[3] = WORKSPACE_LOW[3], WORKSPACE_HIGH[3]
    scaled = [True] * 6 + [False]
    return {
        "action": {"q01": low.tolist(), "q99": high.tolist(), "mask": scaled},
        "proprio": {"q01": state_low.tolist(), "q99": state_high.tolist(), "mask": [True] * 4},
    }


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Random changes of a sample; all zero for validation.

    Attributes:
        shift: Largest shift of a picture along each side, pixels.
        contrast: Largest relative change of contrast.
        brightness: Largest change of brightness, picture values in [0, 1].
        position_noise: Standard deviation on the hand position, metres.
        gap_noise: Standard deviation on the finger gap, metres.
    """

    shift: int = 3
    contrast: float = 0.1
    brightness: float = 0.05
    position_noise: float = 0.002
    gap_noise: float = 0.0007


NO_AUGMENTATION = Augmentation(0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """A drawn batch before it becomes tensors.

    Attributes:
        levels: float32 (B, V, S, S, 3) in about [0, 1].
        state: float32 (B, 4), metres.
        goal_pixels: float32 (B, V, 2, 2), moved along with the pictures.
        kind_pixels: float32 (B, V, C, 2, 2), likewise.
    """

    levels: Float32Array
    state: Float32Array
    goal_pixels: Float32Array
    kind_pixels: Float32Array


def draw(
    frames: FrameSet, rows: IntArray, augmentation: Augmentation, rng: np.random.Generator
) -> Sample:
    """Return augmented frames.

    Args:
        frames: All frames.
        rows: int64 (B,), which ones.
        augmentation: What to change.
        rng: Source of randomness.
    """
    size, views = len(rows), frames.images.shape[1]
    reach = augmentation.shift
    shifts = rng.integers(-reach, reach + 1, (size, views, 2))  # x, y
    levels = np.empty((size, *frames.images.shape[1:]), dtype=np.float32)
    side = np.arange(frames.images.shape[2])
    for i, row in enumerate(rows):
        for view in range(views):
            dx, dy = shifts[i, view]
            # The border repeats: pixel p of the result shows p - shift.
            columns, lines = (side - dx).clip(0, side[-1]), (side - dy).clip(0, side[-1])
            levels[i, view] = frames.images[row, view][lines[:, None], columns]
    levels /= 255.0
    if reach:
        light = rng.uniform(-1.0, 1.0, (2, size, views, 1, 1, 1)).astype(np.float32)
        levels = levels * (1.0 + augmentation.contrast * light[0])
        levels = levels + augmentation.brightness * light[1]
    spread = np.array([*[augmentation.position_noise] * 3, augmentation.gap_noise])
    noise = (spread * rng.standard_normal((size, 4))).astype(np.float32)
    moved = shifts.astype(np.float32)
    return Sample(
        levels=levels,
        state=frames.state[rows] + noise,
        goal_pixels=frames.goal_pixels[rows] + moved[:, :, None],
        kind_pixels=frames.kind_pixels[rows] + moved[:, :, None, None],
    )


def _usable(episode: Episode, *, corrected: bool) -> bool:
    if not corrected or "grasp_point" not in episode.privileged:
        return episode.success
    to_grasp = episode.privileged["grasp_point"][0] - episode.state[0, :3]
    return bool(np.linalg.norm(to_grasp) < REACH)


def _point_names(episode: Episode) -> list[str]:
    if "keypoints" not in episode.source or "projections" not in episode.privileged:
        raise DataError(
            "the episode has no keypoints and projections to learn from; "
            "make demonstrations with heisd ingest"
        )
    return [str(name) for name in json.loads(episode.source["keypoints"])]


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without their numbers: a picture cannot tell bowl 1 from bowl 2."""
    return tuple(dict.fromkeys(re.sub(r"_\d+$", "", name) for name in names))


def _frames(
    episode: Episode, kinds: tuple[str, ...], *, task: int, corrected: bool, held_out: bool
) -> FrameSet:
    truth = episode.privileged
    goals_world = np.stack([truth["grasp_point"], truth["place_point"]], axis=1)
    pixels = _project(truth["projections"], truth["keypoints_world"])  # (T, V, M, 2)
    length, views = pixels.shape[:2]
    by_kind = np.full((length, views, len(kinds), INSTANCES, 2), np.nan, dtype=np.float32)
    seen = dict.fromkeys(kinds, 0)
    for point, kind in enumerate(re.sub(r"_\d+$", "", name) for name in _point_names(episode)):
        by_kind[:, :, kinds.index(kind), seen[kind]] = pixels[:, :, point]
        seen[kind] += 1
    weight = np.where(truth["hold_still"], AT_REST_WEIGHT, 1.0)
    hand, gap = episode.state[:, :3], episode.state[:, 7:]
    return FrameSet(
        images=episode.images,
        state=np.concatenate([hand, gap], axis=1),
        actions=episode.actions,
        task=np.full(length, task, dtype=np.int64),
        weight=weight * (CORRECTION_WEIGHT if corrected else 1.0),
        held_out=np.full(length, held_out),
        goals=(goals_world - hand[:, None]).astype(np.float32),
        goal_pixels=_project(truth["projections"], goals_world),
        kind_pixels=by_kind,
    )


def _project(matrices: NDArray[Any], points: NDArray[Any]) -> Float32Array:
    """Return the pixels (T, V, M, 2) of world points (T, M, 3); nan behind the camera."""
    rotated = np.einsum("tvij,tmj->tvmi", matrices[..., :3], points)
    homogeneous = rotated + matrices[:, :, None, :, 3]
    depth = homogeneous[..., 2:]
    depth = np.where(depth > 1e-3, depth, np.nan)
    return np.asarray(homogeneous[..., :2] / depth, dtype=np.float32)


def _task_balance(task: IntArray) -> FloatArray:
    """Return a factor per frame that gives every task the same share, unless it has very few."""
    counts: Mapping[int, int] = dict(zip(*np.unique(task, return_counts=True), strict=True))
    mean = len(task) / len(counts)
    return np.array([min(MOST_BALANCE, mean / counts[number]) for number in task])
