"""Build a demonstration store: episodes in, embedded by the served model's own encoder, store out.

The encoder must be the one that makes the queries, with the same rotation, crop and pooling: an
embedding of another preprocessing looks right and finds the wrong frames.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.embedding_cache import EmbeddingCache
from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import Manifest, StoreProfile
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import DataError, StoreError
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Float32Array

LOG = logging.getLogger(__name__)
FAILED, OVER_LIMIT = "failed episodes", "episodes over the limit"
OTHER_TASK, EMPTY = "episodes of other tasks", "empty episodes"


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to build.

    Attributes:
        fingerprint: Fingerprint of the encoder (`ModelInfo.fingerprint`).
        cameras: Cameras in view order, as the policy will be fed.
        preprocessing: Crop, rotation and pooling the encoder was built with; compared at open.
        per_task: Largest number of episodes of one task; None for all.
        tasks: Instructions to keep; empty for all.
        dtype: Storage of the embeddings, float32 or float16.
        lookahead: Following actions stored per row, L.
        gripper_max_m: Finger gap that counts as fully open, metres.
        statistics_key: Action statistics the demonstrations belong to; for people.
        max_lost: Share of a task's steps that may be lost in failed episodes.
        created_by: The command, for people.
        ingests: How the demonstrations were read and what was dropped then; for people.
    """

    fingerprint: str
    cameras: tuple[str, ...] = ("third_person", "wrist")
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    per_task: int | None = None
    tasks: tuple[str, ...] = ()
    dtype: str = "float32"
    lookahead: int = 3
    gripper_max_m: float = 0.08
    statistics_key: str = ""
    max_lost: float = 0.5
    created_by: str = ""
    ingests: tuple[Mapping[str, Any], ...] = ()


def build_store(
    episodes: Iterable[Episode],
    encoder: VisionEncoder,
    out: str | Path,
    options: BuildOptions,
    *,
    cache: EmbeddingCache | None = None,
    dropped: Mapping[str, int] | None = None,
) -> Manifest:
    """Embed episodes and write the store; an older store at `out` is replaced at the very end.

    Args:
        episodes: May be a generator; one episode is in memory at a time.
        encoder: The served model's encoder.
        out: Folder of the store.
        options: What to build.
        cache: Embeddings of an earlier, interrupted build.
        dropped: What the caller left out, `reason` -> count; read at the end, so that a
            generator may count while it yields.

    Returns:
        The manifest; `manifest.dropped` counts everything that was left out, by reason.

    Raises:
        DataError: If an episode lacks a camera, has another rate than the first one, or its
            gripper actions are not in [0, 1].
        StoreError: If nothing is left to store, a task lost too much, or the disk is full.
    """
    selection = _Selection(options)
    writer: StoreWriter | None = None
    rate = 0.0
    with ExitStack() as stack:
        for number, episode in enumerate(episodes):
            if not selection.takes(episode):
                continue
            name = episode.source.get("file") or f"episode {number}"
            vectors = _embed(episode, encoder, options.cameras, name, cache)
            if writer is None:
                rate = episode.control_hz
                profile = _profile(options, rate, vectors.shape[1])
                writer = stack.enter_context(
                    StoreWriter(out, profile, dtype=options.dtype, lookahead=options.lookahead)
                )
            if episode.control_hz != rate:
                raise DataError(
                    f"{name}: expected {rate} Hz like the first episode, got {episode.control_hz}; "
                    "a pose delta means another speed at another rate: build two stores"
                )
            writer.add_episode(_rows(episode, name, vectors, options.gripper_max_m))
        selection.check()
        selection.dropped.update(dropped or {})
        if writer is None:
            raise StoreError(
                f"there is no episode to store in {out}; dropped: {dict(selection.dropped)}"
            )
        return writer.finish(selection.dropped)


class _Selection:
    """Decides which episodes are stored, and counts those that are not."""

    def __init__(self, options: BuildOptions) -> None:
        self._wanted = {normalise_task(task) for task in options.tasks}
        self._limit, self._max_lost = options.per_task, options.max_lost
        self._taken: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._failed_steps: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def takes(self, episode: Episode) -> bool:
        """Return whether to store the episode."""
        task = normalise_task(episode.instruction)
        if self._wanted and task not in self._wanted:
            self.dropped[OTHER_TASK] += 1
            return False
        if not len(episode):
            self.dropped[EMPTY] += 1
            return False
        self._steps[task] += len(episode)
        if not episode.success:
            self._failed_steps[task] += len(episode)
            self.dropped[FAILED] += 1
            return False
        if self._limit is not None and self._taken[task] >= self._limit:
            self.dropped[OVER_LIMIT] += 1
            return False
        self._taken[task] += 1
        return True

    def check(self) -> None:
        """Refuse a silent loss: a wanted task that is absent, or one that mostly failed.

        Raises:
            StoreError: Naming the tasks.
        """
        absent: Collection[str] = sorted(self._wanted - set(self._steps))
        if absent:
            raise StoreError(f"no episode of {', '.join(map(repr, absent))}; check the spelling")
        lost = [
            f"{task!r} ({self._failed_steps[task]} of {steps} steps)"
            for task, steps in sorted(self._steps.items())
            if self._failed_steps[task] > self._max_lost * steps
        ]
        if lost:
            raise StoreError(
                f"more than {self._max_lost:.0%} lost in failed episodes: {', '.join(lost)}; "
                "collect better ones, or allow it with --max-lost 1"
            )


def _embed(
    episode: Episode,
    encoder: VisionEncoder,
    cameras: tuple[str, ...],
    name: str,
    cache: EmbeddingCache | None,
) -> Float32Array:
    """Return float32 (T, E)."""
    missing = [camera for camera in cameras if camera not in episode.cameras]
    if missing:
        raise DataError(
            f"{name}: expected cameras {', '.join(cameras)}, got {', '.join(episode.cameras)}; "
            "set perception.cameras to what the demonstrations have"
        )
    views = [episode.cameras.index(camera) for camera in cameras]
    known = cache.load(episode, views) if cache else None
    if known is not None:
        return known
    vectors = np.stack(
        [
            encoder.encode([step.frames[view] for view in views]).embedding
            for step in episode.steps()
        ]
    )
    if cache:
        cache.save(episode, views, vectors)
    return vectors


def _profile(options: BuildOptions, control_hz: float, embedding_size: int) -> StoreProfile:
    action: dict[str, Any] = {
        "kind": "pose_delta",
        "gripper": "1 = open, 0 = closed",
        "control_hz": control_hz,
        "statistics_key": options.statistics_key,
    }
    if options.ingests:
        action["ingests"] = [dict(ingest) for ingest in options.ingests]
    return StoreProfile(
        fingerprint=options.fingerprint,
        embedding_size=embedding_size,
        cameras=options.cameras,
        preprocessing=dict(options.preprocessing),
        action=action,
        created_by=options.created_by,
    )


def _rows(episode: Episode, name: str, vectors: Float32Array, gripper_max_m: float) -> EpisodeRows:
    state = episode.state.astype(np.float64)
    return EpisodeRows(
        task=episode.instruction,
        source=name,
        vectors=vectors,
        actions=episode.actions.astype(np.float64),
        steps=np.arange(len(episode), dtype=np.int64),
        positions=state[:, :3],
        gripper=np.clip(state[:, 7] / gripper_max_m, 0.0, 1.0),
    )
