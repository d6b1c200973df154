"""Data of the retrieval benchmark: large stores with the spectrum of a real one.

No public store of 4352 numbers a row is at hand. A synthetic episode is a blend of two real
episodes of one task, phase by phase, with a new length, turned into more dimensions by a random
rotation (which keeps every cosine) and given a little noise in all of them. So the spectrum, the
likeness of consecutive frames and that of other episodes stay those of the real embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.store import MemoryStore

NOISE = 0.02
"""Norm of the noise of a frame; consecutive real frames are 0.13 apart."""
NOISE_ROWS = 512
LENGTHS = (0.8, 1.2)


@dataclass(frozen=True)
class Scale:
    """Size of the data: rows are split evenly over the tasks, to the row."""

    tasks: int
    rows: int
    episodes: int = 52
    embedding_size: int = 4352
    seed: int = 7

    def rows_of(self, task: int) -> int:
        """Return the rows of a task."""
        return self.rows // self.tasks + (task < self.rows % self.tasks)


class RealPaths:
    """The episodes of a real store, as paths to blend."""

    def __init__(self, store: Path) -> None:
        with MemoryStore.open(store) as opened:
            self.size = opened.manifest.profile.embedding_size
            self.paths = [_episodes_of(opened, task) for task in opened.tasks]

    def blend(self, task: int, length: int, rng: np.random.Generator) -> np.ndarray:
        """Return float32 (length, size), between two episodes of one real task."""
        paths = self.paths[task % len(self.paths)]
        first, second = (paths[i] for i in rng.choice(len(paths), 2, replace=False))
        weight = rng.uniform()
        phase = np.linspace(0.0, 1.0, length) ** rng.uniform(0.85, 1.15)
        return weight * _at(first, phase) + (1.0 - weight) * _at(second, phase)


def task_name(task: int) -> str:
    return f"synthetic task {task:02d}"


def episodes(real: RealPaths, scale: Scale, *, held_out: int = 0) -> Iterator[EpisodeRows]:
    """Yield the episodes of all tasks; `held_out` > 0 gives that many others of task 0 instead."""
    pool = np.random.default_rng(scale.seed).standard_normal(
        (NOISE_ROWS, scale.embedding_size), dtype=np.float32
    ) * np.float32(NOISE / np.sqrt(scale.embedding_size))
    for task in range(1 if held_out else scale.tasks):
        rng = np.random.default_rng([scale.seed, task])
        turn = np.linalg.qr(rng.standard_normal((scale.embedding_size, real.size)))[0]
        turn = np.asarray(turn.T, dtype=np.float32)
        if held_out:
            rng = np.random.default_rng([scale.seed, 10_000])
        count = held_out or scale.episodes
        rows = scale.rows_of(task) * count // scale.episodes
        for number, length in enumerate(_lengths(rows, count, rng)):
            vectors = real.blend(task, length, rng).astype(np.float32) @ turn
            vectors += _noise(pool, length, rng)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            actions = np.zeros((length, 7))
            actions[:, 0] = np.linspace(0.0, 1.0, length)
            yield EpisodeRows(
                task_name(task),
                f"{task}/{number}",
                vectors,
                actions,
                np.arange(length),
                actions[:, :3],
                actions[:, 6],
            )


def spectrum(vectors: np.ndarray) -> str:
    """Return the share of variance in the leading components and the likeness of neighbours."""
    vectors = vectors[:: max(1, len(vectors) // 2500)]
    centred = vectors - vectors.mean(axis=0)
    variance = np.linalg.svd(centred, compute_uv=False) ** 2
    share = np.cumsum(variance) / variance.sum()
    return ", ".join(f"{count}: {share[count - 1]:.3f}" for count in (4, 16, 64, 128))


def _noise(pool: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return rows of a pool, shifted: independent enough, and much cheaper than new ones."""
    return np.roll(pool[rng.permutation(len(pool))[:length]], int(rng.integers(pool.shape[1])), 1)


def _lengths(rows: int, count: int, rng: np.random.Generator) -> list[int]:
    shares = rng.uniform(*LENGTHS, count)
    stops = np.round(np.cumsum(shares) / shares.sum() * rows).astype(int)
    return np.diff(stops, prepend=0).tolist()


def _at(path: np.ndarray, phase: np.ndarray) -> np.ndarray:
    place = phase * (len(path) - 1)
    low = np.minimum(place.astype(int), len(path) - 2)
    part = (place - low)[:, None]
    return (1.0 - part) * path[low] + part * path[low + 1]


def _episodes_of(store: MemoryStore, task: str) -> list[np.ndarray]:
    steps = store.rows_of(task)
    return [store.vectors(steps.row[steps.episode == e]) for e in np.unique(steps.episode)]
