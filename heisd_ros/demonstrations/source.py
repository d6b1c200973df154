"""What a reader of a foreign format gives: pieces that can be read one by one, and raw episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from heisd_ros.errors import DataError
from heisd_ros.types import Float32Array, FloatArray, ImageArray

MAX_STEPS = 100_000
"""Over an hour at 20 Hz: a longer episode is a damaged length field."""
MAX_SIDE = 4096
MAX_EPISODE_BYTES = 8 << 30
"""Pictures of one episode, unpacked; a small file that unfolds to more is an attack or an error."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest part of a data set that is read at once and remembered as done.

    Attributes:
        name: Unique in the data set and the same in every run.
        path: File or folder it lies in.
        index: Number of the episode, or offset in bytes.
    """

    name: str
    path: Path
    index: int = 0


@dataclass(frozen=True, slots=True)
class RawEpisode:
    """One episode in the words of its source.

    Attributes:
        name: Name of the piece, and a number if it holds several.
        images: Camera -> uint8 (T, H, W, 3), RGB as recorded; sizes may differ per camera.
        actions: float64 (T, K), as recorded.
        state: float32 (T, 8): position 3 (metres), quaternion x y z w, finger gap (metres); nan
            where unknown.
        instruction: The task in words.
        success: The recorded verdict, None if there is none.
        suite: Group of tasks, empty if unknown.
        task: Number of the task in its suite, -1 if unknown.
        in_model_units: True if the reader made pose deltas with 1 = open itself (bags).
        notes: Counts of things that were noticed but did no harm.
        facts: More about the source, as text.
    """

    name: str
    images: Mapping[str, ImageArray]
    actions: FloatArray
    state: Float32Array
    instruction: str
    success: bool | None = None
    suite: str = ""
    task: int = -1
    in_model_units: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the user says about finding things in a data set; empty takes the format's own names.

    Attributes:
        cameras: Our camera name -> key in the data set.
        instruction: The task in words, for all episodes.
        split: TFDS split.
        state: Layout of the state vector, see `IngestProfile.state`.
        config: Configuration as flat names, for bags.
        mapping: Topic mapping, for bags.
    """

    cameras: Mapping[str, str] = field(default_factory=dict)
    instruction: str = ""
    split: str = "train"
    state: str = "none"
    config: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] | None = None


class DemonstrationSource(Protocol):
    """A data set of a foreign format.

    Attributes:
        settled: Profile values that the format or the files say by themselves.
        lost: What could not be listed, `reason` -> count; complete after `pieces`.
    """

    @property
    def settled(self) -> Mapping[str, Any]:
        """Profile values that are known without asking."""

    @property
    def lost(self) -> Counter[str]:
        """What could not even be listed."""

    def pieces(self) -> list[Piece]:
        """Return all pieces in order; cheap.

        Raises:
            DataError: If there is none.
            ConfigError: If an option does not fit the data set; the message lists what fits.
        """

    def read(self, piece: Piece) -> Iterator[RawEpisode]:
        """Yield the episodes of a piece.

        Raises:
            DataError: If the piece is damaged; the others can still be read.
        """

    def close(self) -> None:
        """Close all files."""


NO_NOTES: Mapping[str, int] = MappingProxyType({})


def check_size(name: str, steps: int, height: int, width: int) -> None:
    """Refuse pictures that would not fit into memory, before any of them is unpacked.

    Raises:
        DataError: Naming the limit.
    """
    too_large = steps > MAX_STEPS or max(height, width) > MAX_SIDE
    if too_large or steps * height * width * 3 > MAX_EPISODE_BYTES:
        raise DataError(
            f"{name}: {steps} pictures of {width}x{height} are refused: expected at most "
            f"{MAX_STEPS} of {MAX_SIDE}x{MAX_SIDE}, {MAX_EPISODE_BYTES >> 30} GiB in all; cut the "
            "episode or resize its pictures"
        )


def unknown_state(steps: int) -> Float32Array:
    """Return a state (T, 8) of which nothing is known."""
    return np.full((steps, 8), np.nan, dtype=np.float32)


def state_of(raw: FloatArray, layout: str, name: str) -> Float32Array:
    """Return the state (T, 8) of a recorded state vector.

    Args:
        raw: (T, K), metres and radians.
        layout: See `IngestProfile.state`.
        name: Episode, for the message.

    Raises:
        DataError: If K is not what the layout has.
    """
    if layout == "none":
        return unknown_state(len(raw))
    if raw.ndim != 2 or raw.shape[1] != 8:
        raise DataError(
            f"{name}: --state {layout} has 8 values per step, got shape {raw.shape}; give "
            "--state none, which leaves positions unknown"
        )
    if layout == "quaternion_gap":
        return raw.astype(np.float32)
    quaternion = quaternion_of(raw[:, 3:6])
    gap = raw[:, 6] - raw[:, 7]  # the second finger counts downwards
    return np.column_stack([raw[:, :3], quaternion, gap]).astype(np.float32)


def quaternion_of(rotation_vectors: FloatArray) -> FloatArray:
    """Return the quaternions x y z w (T, 4) of rotation vectors (T, 3), radians."""
    angle = np.linalg.norm(rotation_vectors, axis=1, keepdims=True)
    # sinc is sin(pi x) / (pi x): finite at angle 0.
    vector = rotation_vectors * 0.5 * np.sinc(angle / (2.0 * np.pi))
    return np.concatenate([vector, np.cos(angle / 2.0)], axis=1)
