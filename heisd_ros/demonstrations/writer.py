"""Write a demonstration store: rows come in any order, a finished store appears in one step.

Until `finish`, everything lies in a hidden folder inside the store. A build that is killed at any
moment, or that runs out of disk, leaves the store that was there before untouched.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.array_file import ArrayFile, write_array
from heisd_ros.demonstrations.calibration import EXACT_BELOW_ROWS, calibrate_prefix
from heisd_ros.demonstrations.episode_rows import EpisodeRows, check_episode, store_columns
from heisd_ros.demonstrations.folder_lock import lock_folder
from heisd_ros.demonstrations.manifest import (
    DTYPES,
    MANIFEST_NAME,
    FileRecord,
    Manifest,
    StoreProfile,
    TaskRecord,
    write_manifest,
)
from heisd_ros.demonstrations.prefix import Matrix
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import DataError, StoreError
from heisd_ros.files import PARTIAL, sync_folder
from heisd_ros.types import Float32Array

LOG = logging.getLogger(__name__)
BUILDING = ".building"
SPOOL = "spool"
DATA_FOLDER = re.compile(r"data-(\d{6})")
FREE_SPACE_MARGIN = 1.05


class StoreWriter(Closing):
    """Collects episodes and makes the store; use as a context manager.

    Example:
        with StoreWriter(out, profile) as writer:
            writer.add_episode(rows)
            manifest = writer.finish()
    """

    def __init__(
        self,
        out: str | Path,
        profile: StoreProfile,
        *,
        dtype: str = "float32",
        lookahead: int = 3,
        exact_below: int = EXACT_BELOW_ROWS,
    ) -> None:
        """Prepare a build.

        Args:
            out: Folder of the store; made if missing, replaced by `finish` if it is a store.
            profile: What the rows mean.
            dtype: Storage of the embeddings; float16 halves the size and costs recall
                (true neighbours differ by 1e-4 in cosine).
            lookahead: Following actions stored with each row, L.
            exact_below: Tasks with fewer rows are searched exactly.

        Raises:
            StoreError: If `out` is something else than a store, or another build is running.
        """
        if dtype not in DTYPES:
            raise StoreError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
        self._out = Path(out)
        self._profile, self._dtype = profile, dtype
        self._lookahead, self._exact_below = lookahead, exact_below
        self._episodes: list[tuple[EpisodeRows, int]] = []  # with their first row in the spool
        self._rows = 0
        self._lock = _lock_folder(self._out)
        self._building = self._out / BUILDING
        # Whatever lies there is of a build that died: we hold the lock.
        shutil.rmtree(self._building, ignore_errors=True)
        self._building.mkdir()
        self._spool = (self._building / SPOOL).open("wb")

    def close(self) -> None:
        """End the build; what was not finished is removed."""
        with suppress(OSError):  # a full disk, already reported
            self._spool.close()
        shutil.rmtree(self._building, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._out.is_dir() and not any(self._out.iterdir()):
            self._out.rmdir()

    def add_episode(self, rows: EpisodeRows) -> None:
        """Add one episode.

        Raises:
            DataError: If the rows contradict the profile, are not finite, or not of unit norm.
            StoreError: If the disk is full.
        """
        check_episode(rows, self._profile.embedding_size)
        self._check_alike(rows)
        vectors = np.ascontiguousarray(rows.vectors, dtype=self._dtype)
        with _disk_errors(self._out):
            self._spool.write(vectors.data)
        # The vectors lie in the spool now; only the small columns stay in memory. A slice would
        # keep the whole array alive.
        kept = replace(
            rows,
            task=normalise_task(rows.task),
            vectors=vectors[:0].copy(),
            features=None if rows.features is None else rows.features.astype(np.float16),
        )
        self._episodes.append((kept, self._rows))
        self._rows += len(vectors)

    def _check_alike(self, rows: EpisodeRows) -> None:
        """Refuse a store in which some rows have features or target tokens and some have not."""
        if not self._episodes:
            return
        wanted, got = _answer_facts(self._episodes[0][0]), _answer_facts(rows)
        if wanted != got:
            raise DataError(
                f"{rows.source}: expected {wanted} like the first episode, got {got}; make all "
                "of them with the same model, or none"
            )

    def finish(self, dropped: Mapping[str, int] | None = None) -> Manifest:
        """Write, calibrate, make visible.

        Args:
            dropped: What was left out on the way here, `reason` -> count.

        Raises:
            StoreError: If there is nothing to store, or the disk is full.
        """
        if not self._episodes:
            raise StoreError(f"there is no episode to store in {self._out}; dropped: {dropped}")
        with _disk_errors(self._out):
            self._spool.flush()
            self._check_free_space()
            manifest = self._write(dict(dropped or {}))
            self._publish(manifest)
        return manifest

    def _check_free_space(self) -> None:
        itemsize = np.dtype(self._dtype).itemsize
        needed = int(self._rows * self._profile.embedding_size * itemsize * FREE_SPACE_MARGIN)
        free = shutil.disk_usage(self._out).free
        if free < needed:
            raise StoreError(
                f"{self._out}: expected {needed} free bytes for the vectors, got {free}; free some "
                "space, or build with float16 or fewer episodes per task"
            )

    def _write(self, dropped: dict[str, int]) -> Manifest:
        order = sorted(self._episodes, key=lambda entry: (entry[0].task, entry[1]))
        files = {"vectors.npy": self._write_vectors(order)}
        episodes = [rows for rows, _ in order]
        for name, column in store_columns(episodes, self._lookahead).items():
            files[f"{name}.npy"] = write_array(self._building / f"{name}.npy", column)
        tasks, prefix = self._calibrate(episodes)
        files["prefix.npy"] = write_array(self._building / "prefix.npy", prefix)
        return Manifest(
            generation=_next_generation(self._out),
            profile=self._profile,
            dtype=self._dtype,
            lookahead=self._lookahead,
            rows=self._rows,
            tasks=tasks,
            files=files,
            dropped=dropped,
            feature_size=0 if episodes[0].features is None else episodes[0].features.shape[1],
            target_tokens=episodes[0].target_tokens is not None,
        )

    def _write_vectors(self, order: list[tuple[EpisodeRows, int]]) -> FileRecord:
        """Copy the spool into task order."""
        length = self._profile.embedding_size
        row_bytes = length * np.dtype(self._dtype).itemsize
        shape = (self._rows, length)
        sink = ArrayFile(self._building / "vectors.npy", np.dtype(self._dtype), shape)
        with (self._building / SPOOL).open("rb") as spool, sink:
            for rows, first in order:
                spool.seek(first * row_bytes)
                sink.write(spool.read(len(rows.steps) * row_bytes))
        self._spool.close()
        (self._building / SPOOL).unlink()
        return sink.record

    def _calibrate(
        self, episodes: list[EpisodeRows]
    ) -> tuple[tuple[TaskRecord, ...], Float32Array]:
        vectors: Matrix = np.load(
            self._building / "vectors.npy", mmap_mode="r", allow_pickle=False
        ).view(np.ndarray)
        tasks: list[TaskRecord] = []
        numbers: list[Float32Array] = []
        first, written = 0, 0
        for key, group in groupby(episodes, key=lambda rows: rows.task):
            mine = list(group)
            stops = np.cumsum([len(rows.steps) for rows in mine]).tolist()
            ranges = list(zip([0, *stops[:-1]], stops, strict=True))
            part = vectors[first : first + stops[-1]]
            outcome = calibrate_prefix(part, ranges, exact_below=self._exact_below)
            sources = tuple(rows.source for rows in mine)
            flat = outcome.prefix.flat() if outcome.prefix else np.zeros(0, dtype=np.float32)
            size = len(outcome.prefix.basis) if outcome.prefix else 0
            tasks.append(
                TaskRecord(
                    key,
                    first,
                    stops[-1],
                    sources,
                    size,
                    written,
                    outcome.recall,
                    outcome.rerank_rows,
                )
            )
            LOG.info("task %r: %d rows, prefix %d, recall %s", key, stops[-1], size, outcome.recall)
            numbers.append(flat)
            written += len(flat)
            first += stops[-1]
        return tuple(tasks), np.concatenate(numbers)

    def _publish(self, manifest: Manifest) -> None:
        sync_folder(self._building)
        target = self._out / manifest.data_folder
        self._building.rename(target)
        sync_folder(self._out)
        write_manifest(manifest, self._out)
        for entry in self._out.iterdir():
            if DATA_FOLDER.fullmatch(entry.name) and entry != target:
                # Readers that have the old files mapped keep them until they close.
                shutil.rmtree(entry, ignore_errors=True)


def _answer_facts(rows: EpisodeRows) -> str:
    size = 0 if rows.features is None else rows.features.shape[1]
    return f"{size} features and {'no' if rows.target_tokens is None else 'target'} tokens"


def _next_generation(out: Path) -> int:
    found = [DATA_FOLDER.fullmatch(entry.name) for entry in out.iterdir()]
    return 1 + max((int(match[1]) for match in found if match), default=0)


def _lock_folder(out: Path) -> int:
    """Make the folder, check that it is ours to replace, and lock it against other builds."""
    try:
        descriptor = lock_folder(out)
    except BlockingIOError as error:
        raise StoreError(f"another build is running in {out}; wait for it to end") from error
    except OSError as error:
        raise StoreError(f"cannot build in {out}: {error}; give another folder") from error
    for left_over in out.glob(f"{MANIFEST_NAME}.*.{PARTIAL}"):
        left_over.unlink(missing_ok=True)
    names = {entry.name for entry in out.iterdir()} - {MANIFEST_NAME, BUILDING}
    foreign = sorted(name for name in names if not DATA_FOLDER.fullmatch(name))
    if foreign:
        os.close(descriptor)
        raise StoreError(f"{out} holds other files ({foreign[0]}); give a new or empty folder")
    return descriptor


@contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    """Turn a failing disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"writing {out} failed: {error.strerror or error}; the store that was there is "
            "untouched; free some space and build again"
        ) from error
