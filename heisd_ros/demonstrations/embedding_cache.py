"""Embeddings that were already computed, so that a build that was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.episode import Episode
from heisd_ros.files import whole_file
from heisd_ros.types import Float32Array


class EmbeddingCache:
    """One file per episode, named by everything that its embeddings depend on.

    A file of another encoder, crop or picture has another name, so nothing is ever out of date.
    """

    def __init__(
        self, folder: str | Path, *, fingerprint: str, preprocessing: Mapping[str, Any]
    ) -> None:
        """Use a folder; it is made when the first episode is stored.

        Args:
            folder: Where the files lie; may be deleted at any time.
            fingerprint: Fingerprint of the encoder.
            preprocessing: What happens to a picture before the encoder sees it.
        """
        self._folder = Path(folder)
        self._facts = json.dumps([fingerprint, dict(preprocessing)], sort_keys=True)

    def load(self, episode: Episode, views: list[int]) -> Float32Array | None:
        """Return float32 (T, E) if the episode was stored, else None."""
        try:
            vectors = np.load(self._path(episode, views), allow_pickle=False)
        except (OSError, ValueError, EOFError):  # absent, or cut off by a full disk
            return None
        complete = vectors.dtype == np.float32 and len(vectors) == len(episode)
        return vectors if complete else None

    def save(self, episode: Episode, views: list[int], vectors: Float32Array) -> None:
        """Store the embeddings of an episode."""
        with whole_file(self._path(episode, views)) as stream:
            np.save(stream, vectors, allow_pickle=False)

    def _path(self, episode: Episode, views: list[int]) -> Path:
        digest = hashlib.sha256(self._facts.encode())
        digest.update(repr(episode.images.shape).encode())
        for view in views:
            digest.update(np.ascontiguousarray(episode.images[:, view]).data)
        return self._folder / f"{digest.hexdigest()[:32]}.npy"
