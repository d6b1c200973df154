"""The retrieval embedding: one unit vector over all views and towers (HeiSD section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.errors import ConfigError, DataError, ShapeError
from heisd_ros.types import Float32Array, FloatArray

EMBEDDING_SIZE = 4352
"""Two views, each 1024 DINOv2 and 1152 SigLIP channels (OpenVLA-7B)."""
NORMALISATIONS = ("blocks", "whole")


def join_views(blocks: Sequence[ArrayLike], *, normalise: str = "blocks") -> Float32Array:
    """Return the blocks joined into one vector of unit norm.

    Normalising each block first gives every view and tower the same weight in the cosine; the
    towers' raw norms differ by an order of magnitude.

    Args:
        blocks: Pooled features in the order view by view, DINO before SigLIP: 4 vectors of
            1024, 1152, 1024, 1152 for OpenVLA-7B, any others for other checkpoints.
        normalise: `blocks` gives each block unit norm before they are joined (our decision);
            `whole` joins them as they are, as a cosine over raw features does (the published code).

    Returns:
        float32 (sum of lengths,), norm 1.

    Raises:
        ShapeError: If there is no block or one is not a vector.
        DataError: If a block is not finite or all zero.
        ConfigError: If the normalisation is unknown.
    """
    if normalise not in NORMALISATIONS:
        known = ", ".join(NORMALISATIONS)
        raise ConfigError(f"perception.normalise must be one of {known}; got {normalise!r}")
    if not len(blocks):
        raise ShapeError("at least one feature block is needed, got none")
    raw = [np.asarray(block, dtype=np.float64) for block in blocks]
    norms = [_norm(block, place) for place, block in enumerate(raw)]
    if normalise == "blocks":
        raw = [block / norm for block, norm in zip(raw, norms, strict=True)]
        norms = [1.0] * len(raw)
    joined = np.concatenate(raw) / np.linalg.norm(norms)
    return np.asarray(joined, dtype=np.float32)


def _norm(block: FloatArray, place: int) -> float:
    if block.ndim != 1 or block.size == 0:
        raise ShapeError(f"feature block {place} must be a vector, got shape {block.shape}")
    norm = float(np.linalg.norm(block))
    if not np.isfinite(norm) or norm == 0.0:
        raise DataError(
            f"feature block {place} must be finite and not all zero, got norm {norm}; "
            "the encoder or the picture is broken"
        )
    return norm
