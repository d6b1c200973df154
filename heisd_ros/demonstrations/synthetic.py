"""Seeded synthetic demonstrations: smooth trajectories and embeddings that follow them.

For tests, examples and benchmarks. The embeddings imitate what the encoder makes of real
demonstrations: every task has its own centre, consecutive frames are very alike (cosine 0.997),
and the best match in another episode of the task scores about 0.96, as the paper reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heisd_ros.demonstrations.calibration import EXACT_BELOW_ROWS
from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.types import Float32Array, FloatArray

FINGERPRINT = "synthetic"
LATENT_SIZE = 12
LATENT_SCALE = 0.45
"""Share of an embedding that follows the motion; the rest is the task's look."""
EPISODE_SCALE = 0.195
FRAME_SCALE = 0.05
METRES_PER_UNIT = 0.05


@dataclass(frozen=True, slots=True)
class SyntheticSpec:
    """Size and seed of a synthetic data set.

    Attributes:
        tasks: Number of tasks.
        episodes: Episodes per task.
        steps: Mean steps per episode; lengths vary by a fifth.
        embedding_size: Length of an embedding, E.
        seed: The same seed gives the same data, bit for bit.
    """

    tasks: int = 2
    episodes: int = 5
    steps: int = 30
    embedding_size: int = 48
    seed: int = 0


def synthetic_episodes(spec: SyntheticSpec) -> list[EpisodeRows]:
    """Return all episodes of a synthetic data set, task by task."""
    rng = np.random.default_rng(spec.seed)
    latent = min(LATENT_SIZE, spec.embedding_size)
    episodes: list[EpisodeRows] = []
    for task in range(spec.tasks):
        centre = _unit(rng.standard_normal(spec.embedding_size))
        mixing = np.linalg.qr(rng.standard_normal((spec.embedding_size, latent)))[0]
        waves = _Waves(latent, rng)
        for number in range(spec.episodes):
            n = round(spec.steps * rng.uniform(0.8, 1.2))
            phase = np.linspace(0.0, 1.0, n) ** rng.uniform(0.85, 1.15)
            motion = waves(phase)  # (n, latent)
            vectors = _embed(motion, centre, mixing, rng)
            name = f"synthetic_{task}_{number}"
            episodes.append(_rows(f"synthetic task {task}", name, vectors, motion, phase))
    return episodes


def synthetic_store(
    out: str | Path,
    spec: SyntheticSpec | None = None,
    *,
    dtype: str = "float32",
    exact_below: int = EXACT_BELOW_ROWS,
) -> MemoryStore:
    """Write a synthetic store and open it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     synthetic_store(folder + "/store").tasks
        ('synthetic task 0', 'synthetic task 1')
    """
    spec = spec or SyntheticSpec()
    profile = StoreProfile(FINGERPRINT, spec.embedding_size, created_by="synthetic_store")
    with StoreWriter(out, profile, dtype=dtype, exact_below=exact_below) as writer:
        for rows in synthetic_episodes(spec):
            writer.add_episode(rows)
        writer.finish()
    return MemoryStore.open(out, fingerprint=FINGERPRINT)


class _Waves:
    """Smooth paths of the phase: three sines per latent dimension."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self._amplitude = rng.standard_normal((3, count)) / np.array([[1.0], [2.0], [3.0]])
        self._shift = rng.uniform(0.0, 2.0 * np.pi, (3, count))

    def __call__(self, phase: FloatArray) -> FloatArray:
        turns = 2.0 * np.pi * phase[:, None, None] * np.array([0.5, 1.0, 1.5])[None, :, None]
        waves: FloatArray = (self._amplitude * np.sin(turns + self._shift)).sum(axis=1)
        return waves


def _embed(
    motion: FloatArray, centre: FloatArray, mixing: FloatArray, rng: np.random.Generator
) -> Float32Array:
    n, length = len(motion), len(centre)
    follow = LATENT_SCALE * motion @ mixing.T / np.sqrt(motion.shape[1])
    offset = EPISODE_SCALE * _unit(rng.standard_normal(length))
    noise = FRAME_SCALE * rng.standard_normal((n, length)) / np.sqrt(length)
    vectors = centre + follow + offset + noise
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _rows(
    task: str, source: str, vectors: Float32Array, motion: FloatArray, phase: FloatArray
) -> EpisodeRows:
    """Give the motion's first dimensions a body: a path in metres and the actions along it."""
    n = len(vectors)
    positions = np.array([0.4, 0.0, 0.3]) + 0.05 * motion[:, :3]
    actions = np.zeros((n, 7))
    actions[:-1, :3] = np.diff(positions, axis=0) / METRES_PER_UNIT
    actions[:, 3:6] = 0.05 * motion[:, 3:6]
    actions[:, 6] = phase < 0.5  # opens first, closes half-way
    return EpisodeRows(task, source, vectors, actions, np.arange(n), positions, actions[:, 6])


def _unit(vector: FloatArray) -> FloatArray:
    unit: FloatArray = vector / np.linalg.norm(vector)
    return unit
