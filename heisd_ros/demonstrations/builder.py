"""Build a demonstration store: episodes in, embedded by the served model's own encoder, store out.

The encoder must be the one that makes the queries, with the same rotation, crop and pooling: an
embedding of another preprocessing looks right and finds the wrong frames.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heisd_ros.demonstrations.embedding_cache import EmbeddingCache
from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.growing import TwinFinder, stored_episodes
from heisd_ros.demonstrations.manifest import Manifest, StoreProfile, check_encoder
from heisd_ros.demonstrations.selection import Selection
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import DataError, StoreError
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Float32Array, IntArray

LOG = logging.getLogger(__name__)
DUPLICATE = "episodes that are stored already"


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


class StepAnswers(Protocol):
    """What the target model itself says at every step of an episode."""

    def __call__(self, episode: Episode, views: list[int]) -> tuple[Float32Array, IntArray]:
        """Return lm_head inputs (T, F) and the tokens it decodes, int64 (T, 7)."""


def build_store(
    episodes: Iterable[Episode],
    encoder: VisionEncoder,
    out: str | Path,
    options: BuildOptions,
    *,
    cache: EmbeddingCache | None = None,
    dropped: Mapping[str, int] | None = None,
    base: MemoryStore | None = None,
    answers: StepAnswers | None = None,
) -> Manifest:
    """Embed episodes and write the store; an older store at `out` is replaced at the very end.

    An episode that is stored already (same task, pictures and actions) is left out and counted.

    Args:
        episodes: May be a generator; one episode is in memory at a time.
        encoder: The served model's encoder.
        out: Folder of the store.
        options: What to build.
        cache: Embeddings of an earlier, interrupted build.
        dropped: What the caller left out, `reason` -> count; read at the end, so that a
            generator may count while it yields.
        base: Store whose episodes are kept; its type of embeddings is kept, too.
        answers: Asks the target, to store its features and tokens; None stores neither.

    Returns:
        The manifest; `manifest.dropped` counts everything that was left out, by reason.

    Raises:
        DataError: If an episode lacks a camera, has another rate than the first one or the base,
            or its gripper actions are not in [0, 1].
        StoreError: If nothing is left to store, a task lost too much, the base was made by
            another encoder, or the disk is full.
    """
    selection = Selection(options.tasks, options.per_task, options.max_lost)
    with ExitStack() as stack:
        sink = _Sink(out, options, stack, base)
        for number, episode in enumerate(episodes):
            if not selection.takes(episode):
                continue
            name = episode.source.get("file") or f"episode {number}"
            views = _views(episode, options.cameras, name)
            vectors = _embed(episode, encoder, views, cache)
            rows = _rows(episode, name, vectors, options.gripper_max_m)
            if answers and not sink.knows(rows):
                features, tokens = answers(episode, views)
                rows = replace(rows, features=features, target_tokens=tokens)
            sink.add(rows, episode.control_hz, selection.dropped)
        selection.check()
        selection.dropped.update(dropped or {})
        return sink.finish(selection.dropped)


class _Sink:
    """The writer behind what it refuses: other rates, and episodes that it has already."""

    def __init__(
        self, out: str | Path, options: BuildOptions, stack: ExitStack, base: MemoryStore | None
    ) -> None:
        self._out, self._options, self._stack, self._base = out, options, stack, base
        self._twins = TwinFinder()
        self._writer: StoreWriter | None = None
        self._rate = 0.0
        self._new = 0
        if base is not None:
            self._start_from(base)

    def knows(self, rows: EpisodeRows) -> bool:
        return self._twins.knows(rows)

    def add(self, rows: EpisodeRows, control_hz: float, dropped: Counter[str]) -> None:
        if self._writer is None:
            self._rate = control_hz
            self._writer = self._open(
                _profile(self._options, control_hz, rows.vectors.shape[1]), self._options.dtype
            )
        if control_hz != self._rate:
            raise DataError(
                f"{rows.source}: expected {self._rate} Hz like the first episode, got "
                f"{control_hz}; a pose delta means another speed at another rate: build two stores"
            )
        if self.knows(rows):
            dropped[DUPLICATE] += 1
            return
        self._writer.add_episode(rows)
        self._twins.add(rows)
        self._new += 1

    def finish(self, dropped: Counter[str]) -> Manifest:
        if self._writer is None or not self._new:
            raise StoreError(
                f"there is no {'new ' if self._base else ''}episode to store in {self._out}; "
                f"dropped: {dict(dropped)}"
            )
        if self._base is not None:
            dropped.update(self._base.manifest.dropped)
        return self._writer.finish(dropped)

    def _start_from(self, base: MemoryStore) -> None:
        options, profile = self._options, base.manifest.profile
        where = str(self._out)
        check_encoder(profile, where, options.fingerprint, options.cameras, options.preprocessing)
        key = profile.action.get("statistics_key", "")
        if key != options.statistics_key:
            raise DataError(
                f"{where}: expected actions of {key!r} like those stored, got "
                f"{options.statistics_key!r}; build another store"
            )
        self._rate = float(profile.action["control_hz"])
        action = dict(profile.action)
        ingests = [*action.get("ingests", []), *map(dict, options.ingests)]
        if ingests:
            action["ingests"] = ingests
        made_by = f"{profile.created_by}; {options.created_by}".strip("; ")
        self._writer = self._open(
            replace(profile, created_by=made_by, action=action), base.manifest.dtype
        )
        for rows in stored_episodes(base):
            self._writer.add_episode(rows)
            self._twins.add(rows)

    def _open(self, profile: StoreProfile, dtype: str) -> StoreWriter:
        lookahead = self._options.lookahead
        if self._base is not None:
            lookahead = self._base.manifest.lookahead
        return self._stack.enter_context(
            StoreWriter(self._out, profile, dtype=dtype, lookahead=lookahead)
        )


def _views(episode: Episode, cameras: tuple[str, ...], name: str) -> list[int]:
    """Return where the wanted cameras stand in the episode."""
    missing = [camera for camera in cameras if camera not in episode.cameras]
    if missing:
        raise DataError(
            f"{name}: expected cameras {', '.join(cameras)}, got {', '.join(episode.cameras)}; "
            "set perception.cameras to what the demonstrations have"
        )
    return [episode.cameras.index(camera) for camera in cameras]


def _embed(
    episode: Episode, encoder: VisionEncoder, views: list[int], cache: EmbeddingCache | None
) -> Float32Array:
    """Return float32 (T, E)."""
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
