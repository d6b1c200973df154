"""The in-process demonstration store: per-task search of steps by visual similarity (Eq. 3).

Search is two-stage: a scan of the task's few-number prefix finds up to 64 candidates, which are
then scored exactly. Files are memory-mapped read-only, so any number of processes may share a
store, and nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.calibration import exact_scores
from heisd_ros.demonstrations.columns import checked_query, open_columns
from heisd_ros.demonstrations.manifest import (
    Manifest,
    TaskRecord,
    check_encoder,
    read_manifest,
)
from heisd_ros.demonstrations.prefix import Matrix, best_rows
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import StoreError
from heisd_ros.types import Float32Array, FloatArray, Hits, IntArray


class MemoryStore(Closing):
    """Read-only store over a memory-mapped folder; safe to search from many threads."""

    def __init__(self, manifest: Manifest, columns: dict[str, Matrix], folder: Path) -> None:
        """Use `MemoryStore.open`; the arguments are trusted here."""
        self._manifest = manifest
        self._folder = folder
        self._columns = columns
        self._tasks = {task.key: task for task in manifest.tasks}
        self._searches = {task.key: self._prefix_of(task) for task in manifest.tasks}

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fingerprint: str = "",
        cameras: tuple[str, ...] = (),
        preprocessing: Mapping[str, Any] | None = None,
        verify: bool = False,
    ) -> MemoryStore:
        """Open a store folder.

        Args:
            path: The folder that `heisd build-db` wrote.
            fingerprint: Fingerprint of the encoder that will make the queries
                (`ModelInfo.fingerprint`); empty skips the check.
            cameras: Cameras of the queries in view order; empty skips the check.
            preprocessing: What happens to a picture before the encoder, e.g. `crop_area`; every
                key given must have the store's value.
            verify: Also compare the SHA-256 of every file and the norm of every vector.

        Raises:
            StoreError: If the store is missing, damaged, of another schema, or was built with
                another encoder.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        check_encoder(manifest.profile, str(folder), fingerprint, cameras, preprocessing or {})
        try:
            columns = open_columns(folder, manifest, verify=verify)
        except StoreError:
            # A rebuild may have replaced the data folder between the two reads.
            newer = read_manifest(folder)
            if newer.generation == manifest.generation:
                raise
            return cls.open(
                path,
                fingerprint=fingerprint,
                cameras=cameras,
                preprocessing=preprocessing,
                verify=verify,
            )
        return cls(manifest, columns, folder)

    @property
    def manifest(self) -> Manifest:
        """What is known about the store."""
        return self._manifest

    @property
    def tasks(self) -> tuple[str, ...]:
        """Task keys, in row order."""
        return tuple(self._tasks)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._manifest.rows

    def close(self) -> None:
        """Let go of the mapped files; may be called twice."""
        self._tasks, self._searches, self._columns = {}, {}, {}

    def search(
        self,
        embedding: Float32Array,
        task: str,
        k: int,
        *,
        after: Hits | None = None,
        exclude_episode: int | None = None,
        exact: bool = False,
    ) -> Hits:
        """Return the k nearest steps of this task by cosine, best first; empty if task unknown.

        Args:
            embedding: float32 (E,), unit norm.
            task: Instruction; it is normalised to the task key.
            k: Neighbours wanted, >= 1; fewer come back if the task has fewer steps.
            after: Earlier hits whose next steps are scored exactly too, whatever the prefix says.
            exclude_episode: Episode that must not be found (leave-one-episode-out studies).
            exact: Score every row; the oracle that the two-stage search is tested against.

        Raises:
            StoreError: If the query has the wrong length, is not finite or not unit norm, k < 1, or
                `after` comes from another store.
        """
        query = checked_query(embedding, self._manifest.profile.embedding_size)
        if k < 1:
            raise StoreError(f"k must be at least 1, got {k}")
        record = self._tasks.get(normalise_task(task))
        if record is None:
            return self._hits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        first = record.first_row
        vectors = self._column("vectors")[first : record.stop_row]
        candidates = max(record.rerank_rows, 2 * k)
        skip = self._episode_range(exclude_episode, record)
        prefix = self._searches[record.key]
        if exact or prefix is None:
            rows = best_rows(vectors, query, candidates, skip=skip)
        else:
            basis, offset, codes = prefix
            rows = best_rows(codes, basis @ query - offset, candidates, skip=skip)
        if after is not None and len(after):
            rows = np.union1d(rows, self._next_rows(after, record, skip))
        scores = exact_scores(vectors, query, rows)
        best = np.argsort(-scores, kind="stable")[:k]
        return self._hits(rows[best] + first, scores[best])

    def successors(self, hits: Hits, n: int) -> Hits:
        """Return the steps n later in the same episodes; hits whose episode ends are dropped.

        Steps are counted, not rows: behind a dropped step the count goes on, so a hit is lost
        only if exactly the n-th step after it was dropped.

        Raises:
            StoreError: If n is negative or the hits come from another store.
        """
        if n < 0:
            raise StoreError(f"n must not be negative, got {n}")
        self._check_own(hits)
        later = np.array([self._row_after(int(row), n) for row in hits.row], dtype=np.int64)
        stays = later >= 0
        return self._hits(later[stays], hits.score[stays])

    def _check_own(self, hits: Hits) -> None:
        episode = self._column("episode")
        known = (hits.row >= 0) & (hits.row < len(episode))
        if not known.all() or (episode[hits.row] != hits.episode).any():
            raise StoreError("hits do not belong to this store: search it before you go on from it")

    def _next_rows(self, hits: Hits, record: TaskRecord, skip: tuple[int, int]) -> IntArray:
        """Return the rows of the steps right after some hits, counted from the task's first row."""
        self._check_own(hits)
        episode, step = self._column("episode"), self._column("step")
        rows = hits.row[(hits.row >= record.first_row) & (hits.row + 1 < record.stop_row)]
        follows = (episode[rows + 1] == episode[rows]) & (step[rows + 1] == step[rows] + 1)
        found = rows[follows] + 1 - record.first_row
        return np.asarray(found[(found < skip[0]) | (found >= skip[1])], dtype=np.int64)

    def _row_after(self, row: int, n: int) -> int:
        """Return the row of the step n after this row's, -1 if there is none in its episode."""
        # Steps ascend by at least one a row, so the wanted one is at most n rows ahead.
        episode = self._column("episode")[row : row + n + 1]
        inside = int(np.searchsorted(episode, episode[0], side="right"))
        steps = self._column("step")[row : row + inside]
        place = int(np.searchsorted(steps, steps[0] + n))
        return row + place if place < inside and steps[place] == steps[0] + n else -1

    def vectors(self, rows: IntArray) -> Float32Array:
        """Return the embeddings of some rows as float32 (n, E)."""
        return np.asarray(self._column("vectors")[rows], dtype=np.float32)

    def stored_vectors(self, rows: IntArray) -> Matrix:
        """Return the embeddings of some rows as they are stored, float32 or float16 (n, E)."""
        return self._column("vectors")[rows]

    def rows_of(self, task: str) -> Hits:
        """Return every step of a task in row order, with score 1; for export and inspection."""
        record = self._tasks.get(normalise_task(task))
        rows = np.arange(record.first_row, record.stop_row) if record else np.arange(0)
        return self._hits(rows, np.ones(len(rows), dtype=np.float32))

    def steps_at(self, rows: IntArray) -> Hits:
        """Return some rows with score 1; for export and inspection."""
        return self._hits(rows, np.ones(len(rows), dtype=np.float32))

    def task_at(self, row: int) -> str:
        """Return the task key of a row.

        Raises:
            StoreError: If there is no such row.
        """
        for task in self._manifest.tasks:
            if task.first_row <= row < task.stop_row:
                return task.key
        raise StoreError(f"row must be in [0, {len(self)}), got {row}")

    def source_of(self, episode: int) -> str:
        """Return where an episode came from."""
        return self._manifest.sources[episode]

    def episode_named(self, task: str, source: str) -> int | None:
        """Return the number of the episode of a task that came from there, or None."""
        first = 0
        for record in self._manifest.tasks:
            if record.key == task and source in record.sources:
                return first + record.sources.index(source)
            first += len(record.sources)
        return None

    def rerank_rows(self, task: str) -> int:
        """Return how many candidates of a task's prefix scan are scored exactly; 0 if all are."""
        record = self._tasks.get(normalise_task(task))
        return record.rerank_rows if record and record.prefix_size else 0

    def prefix_places(self, query: Float32Array, task: str, rows: IntArray) -> tuple[int, ...]:
        """Return the places of some rows of a task in its prefix scan; -1 if there is no prefix."""
        record = self._tasks.get(normalise_task(task))
        prefix = self._searches[record.key] if record else None
        if record is None or prefix is None:
            return (-1,) * len(rows)
        basis, offset, codes = prefix
        ranks = codes @ (basis @ query - offset)
        return tuple(int((ranks > ranks[row - record.first_row]).sum()) for row in rows)

    def gripper_opening(self, rows: IntArray) -> FloatArray:
        """Return the measured finger opening of some rows, [0, 1], nan if unknown."""
        return np.asarray(self._column("gripper")[rows], dtype=np.float64)

    def features(self, rows: IntArray) -> Float32Array | None:
        """Return the lm_head features of some rows, float32 (n, F); None if none are stored."""
        if not self._manifest.feature_size:
            return None
        return np.asarray(self._column("feature")[rows], dtype=np.float32)

    def target_tokens(self, rows: IntArray) -> IntArray | None:
        """Return what the target itself decodes at some rows, int64 (n, 7); None if not stored."""
        if not self._manifest.target_tokens:
            return None
        return np.asarray(self._column("target_tokens")[rows], dtype=np.int64)

    def _hits(self, rows: IntArray, scores: Float32Array) -> Hits:
        return Hits(
            score=scores,
            row=rows,
            episode=self._column("episode")[rows],
            step=self._column("step")[rows],
            action=self._column("action")[rows],
            lookahead=self._column("lookahead")[rows],
            valid_length=self._column("valid_length")[rows],
            position=self._column("position")[rows],
            feature=self.features(rows),
        )

    def _column(self, name: str) -> Matrix:
        if not self._columns:
            raise StoreError(f"store {self._folder} is closed; open it again")
        return self._columns[name]

    def _episode_range(self, episode: int | None, record: TaskRecord) -> tuple[int, int]:
        """Return the episode's half-open range of rows, counted from the task's first row."""
        if episode is None:
            return (0, 0)
        # Episode numbers ascend with the rows, within a task and over all of them.
        inside = self._columns["episode"][record.first_row : record.stop_row]
        low, high = np.searchsorted(inside, [episode, episode + 1])
        return int(low), int(high)

    def _prefix_of(self, task: TaskRecord) -> tuple[Matrix, Matrix, Matrix] | None:
        if not task.prefix_size:
            return None
        size, length = task.prefix_size, self._manifest.profile.embedding_size
        numbers = self._columns["prefix"][task.prefix_offset :]
        basis, rest = numbers[: size * length], numbers[size * length :]
        offset, codes = rest[:size], rest[size : size + task.rows * size]
        return basis.reshape(size, length), offset, codes.reshape(task.rows, size)
