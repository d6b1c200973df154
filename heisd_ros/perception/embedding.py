"""The retrieval embedding: one unit vector over all views and towers (HeiSD section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.errors import DataError, ShapeError
from heisd_ros.types import Float32Array, FloatArray

EMBEDDING_SIZE = 4352
"""Two views, each 1024 DINOv2 and 1152 SigLIP channels (OpenVLA-7B)."""


def join_views(blocks: Sequence[ArrayLike]) -> Float32Array:
    """Return the blocks, each of unit norm, joined into one vector of unit norm.

    Normalising each block first gives every view and tower the same weight in the cosine; the
    towers' raw norms differ by an order of magnitude.

    Args:
        blocks: Pooled features in the order view by view, DINO before SigLIP: 4 vectors of
            1024, 1152, 1024, 1152 for OpenVLA-7B, any others for other checkpoints.

    Returns:
        float32 (sum of lengths,), norm 1.

    Raises:
        ShapeError: If there is no block or one is not a vector.
        DataError: If a block is not finite or all zero.
    """
    if not len(blocks):
        raise ShapeError("at least one feature block is needed, got none")
    unit = [_unit(np.asarray(block, dtype=np.float64), place) for place, block in enumerate(blocks)]
    joined = np.concatenate(unit) / np.sqrt(len(unit))
    return np.asarray(joined, dtype=np.float32)


def _unit(block: FloatArray, place: int) -> FloatArray:
    if block.ndim != 1 or block.size == 0:
        raise ShapeError(f"feature block {place} must be a vector, got shape {block.shape}")
    norm = float(np.linalg.norm(block))
    if not np.isfinite(norm) or norm == 0.0:
        raise DataError(
            f"feature block {place} must be finite and not all zero, got norm {norm}; "
            "the encoder or the picture is broken"
        )
    return block / norm
