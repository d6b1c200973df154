"""The data files of a store: their layout, and how they and the queries are checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.manifest import REBUILD, Manifest
from heisd_ros.demonstrations.prefix import Matrix
from heisd_ros.errors import StoreError
from heisd_ros.types import ACTION_DIM, Float32Array

NORM_TOLERANCE = 1e-3
"""Float16 storage moves the norm of a unit vector by at most 5e-4."""
HASH_BLOCK = 1 << 20


def column_layout(manifest: Manifest) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return the dtype and the shape that every data file must have."""
    rows, length = manifest.rows, manifest.profile.embedding_size
    prefix = sum(
        task.prefix_size * (length + 1 + task.rows) for task in manifest.tasks if task.prefix_size
    )
    layout: dict[str, tuple[Any, tuple[int, ...]]] = {
        "vectors": (np.dtype(manifest.dtype), (rows, length)),
        "prefix": (np.dtype(np.float32), (prefix,)),
        "action": (np.dtype(np.float64), (rows, ACTION_DIM)),
        "lookahead": (np.dtype(np.float64), (rows, manifest.lookahead, ACTION_DIM)),
        "valid_length": (np.dtype(np.int64), (rows,)),
        "episode": (np.dtype(np.int64), (rows,)),
        "step": (np.dtype(np.int64), (rows,)),
        "position": (np.dtype(np.float64), (rows, 3)),
        "gripper": (np.dtype(np.float64), (rows,)),
    }
    if manifest.feature_size:
        layout["feature"] = (np.dtype(np.float16), (rows, manifest.feature_size))
    if manifest.target_tokens:
        layout["target_tokens"] = (np.dtype(np.int32), (rows, ACTION_DIM))
    return layout


def open_columns(folder: Path, manifest: Manifest, *, verify: bool) -> dict[str, Matrix]:
    """Map every data file read-only and check it.

    Args:
        folder: The store.
        manifest: Its manifest.
        verify: Also compare the SHA-256 of every file and the norm of every vector.

    Raises:
        StoreError: If a file is missing, has another size, type or shape than recorded, or holds
            impossible values.
    """
    columns: dict[str, Matrix] = {}
    for name, (dtype, shape) in column_layout(manifest).items():
        path = folder / manifest.data_folder / f"{name}.npy"
        _check_file(path, manifest, verify=verify)
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is damaged ({error}); {REBUILD}") from error
        if mapped.dtype != dtype or mapped.shape != shape:
            raise StoreError(
                f"{path}: expected {dtype} {shape}, got {mapped.dtype} {mapped.shape}; {REBUILD}"
            )
        columns[name] = mapped.view(np.ndarray)
    _check_values(columns, manifest, folder)
    if verify:
        _check_norms(columns["vectors"], folder)
    return columns


def checked_query(embedding: Float32Array, length: int) -> Float32Array:
    """Return the query as float32, or refuse it.

    Raises:
        StoreError: If it is not (length,), not finite, or not of unit norm.
    """
    query = np.asarray(embedding, dtype=np.float32)
    if query.shape != (length,):
        raise StoreError(
            f"query must have shape ({length},), got {query.shape}; use the encoder that the "
            "store was built with"
        )
    norm = float(np.sqrt(np.dot(query, query)))
    if not abs(norm - 1.0) <= NORM_TOLERANCE:  # also catches nan and inf
        raise StoreError(f"query must be finite and of unit norm, got norm {norm}; normalise it")
    return query


def _check_file(path: Path, manifest: Manifest, *, verify: bool) -> None:
    record = manifest.files.get(path.name)
    if record is None or not path.is_file():
        raise StoreError(f"{path} is missing; {REBUILD}")
    size = path.stat().st_size
    if size != record.size:
        raise StoreError(f"{path}: expected {record.size} bytes, got {size}; {REBUILD}")
    if verify:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(HASH_BLOCK):
                digest.update(block)
        if digest.hexdigest() != record.sha256:
            raise StoreError(f"{path} is damaged: its SHA-256 is not the recorded one; {REBUILD}")


def _check_values(columns: dict[str, Matrix], manifest: Manifest, folder: Path) -> None:
    """Refuse payloads that would become a wrong action; the small columns are read in full."""
    valid = columns["valid_length"]
    payload_is_sane = (
        np.isfinite(columns["action"]).all()
        and np.isfinite(columns["lookahead"]).all()
        and bool(((valid >= 0) & (valid <= manifest.lookahead)).all())
        and bool((np.diff(columns["episode"]) >= 0).all())
    )
    if not payload_is_sane:
        raise StoreError(f"{folder}: actions, valid lengths or episodes are impossible; {REBUILD}")


def _check_norms(vectors: Matrix, folder: Path) -> None:
    for first in range(0, len(vectors), 1024):
        block = np.asarray(vectors[first : first + 1024], dtype=np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))
        if not (np.abs(norms - 1.0) <= NORM_TOLERANCE).all():
            raise StoreError(f"{folder}: vectors near row {first} are not of unit norm; {REBUILD}")
