"""One demonstrated episode in memory and in a `.npz` file without pickles.

The readers of every foreign format yield `Episode`; the store is built from it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from heisd_ros.demonstrations.bounded import check_archive
from heisd_ros.errors import DataError
from heisd_ros.files import whole_file
from heisd_ros.types import ACTION_DIM, Float32Array, Frame, ImageArray

STATE_DIM = 8
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an episode.

    Attributes:
        frames: The pictures, in camera order.
        state: float32 (8,): position 3, quaternion x y z w, finger gap in metres.
        action: float32 (7,), the demonstrated action, model convention (gripper 1 = open).
        index: Number of the step in its episode.
    """

    frames: tuple[Frame, ...]
    state: Float32Array
    action: Float32Array
    index: int


@dataclass(frozen=True, slots=True)
class Episode:
    """One demonstrated episode of T steps, seen by V cameras.

    Attributes:
        images: uint8 (T, V, H, W, 3), RGB, upright.
        actions: float32 (T, 7), what the teacher wanted: pose delta per step in the units of the
            source, gripper 1 = open, 0 = closed.
        state: float32 (T, 8): end-effector position (metres), quaternion x y z w, finger gap
            (metres); nan where the source does not say.
        instruction: The task in words.
        cameras: Names of the V cameras.
        control_hz: Steps per second.
        suite: Group of tasks it belongs to, empty if none.
        task: Number of the task in its suite, -1 if unknown.
        success: Whether the task was solved.
        source: Where it came from and how it was made, as text.
        privileged: Arrays of length T that no policy may see: training targets, simulator truth.
    """

    images: ImageArray
    actions: Float32Array
    state: Float32Array
    instruction: str
    cameras: tuple[str, ...]
    control_hz: float
    suite: str = ""
    task: int = -1
    success: bool = True
    source: Mapping[str, str] = field(default_factory=dict)
    privileged: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        length = len(self.actions)
        _check_shape("images", self.images, (length, len(self.cameras), None, None, 3))
        _check_shape("actions", self.actions, (length, ACTION_DIM))
        _check_shape("state", self.state, (length, STATE_DIM))
        for name, array in self.privileged.items():
            _check_shape(name, array, (length, *(None,) * (array.ndim - 1)))
        if not np.isfinite(self.actions).all():
            raise DataError("actions must be finite; drop the episode or repair its source")

    def __len__(self) -> int:
        """Return T."""
        return len(self.actions)

    def step(self, index: int) -> Step:
        """Return one step; stamps count from the start of the episode."""
        stamp_ns = round(index * 1e9 / self.control_hz)
        frames = tuple(
            Frame(image, camera, stamp_ns)
            for image, camera in zip(self.images[index], self.cameras, strict=True)
        )
        return Step(frames, self.state[index], self.actions[index], index)

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order."""
        for index in range(len(self)):
            yield self.step(index)


def save_episode(path: Path, episode: Episode) -> None:
    """Write the episode; a reader sees the whole file or none of it.

    Args:
        path: File to write, `.npz`; its folder is made.
        episode: The episode.
    """
    facts = {
        "format": FORMAT_VERSION,
        "instruction": episode.instruction,
        "cameras": list(episode.cameras),
        "control_hz": episode.control_hz,
        "suite": episode.suite,
        "task": episode.task,
        "success": episode.success,
        "source": dict(episode.source),
        "privileged": sorted(episode.privileged),
    }
    with whole_file(path) as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            images=episode.images,
            action=episode.actions,
            state=episode.state,
            facts=np.array(json.dumps(facts)),
            **dict(episode.privileged),
        )


def load_episode(path: Path, *, images: bool = True, privileged: bool = True) -> Episode:
    """Read an episode that `save_episode` wrote.

    Args:
        path: The `.npz` file.
        images: False gives pictures of zero size and skips their decompression.
        privileged: False leaves the privileged arrays out.

    Raises:
        DataError: If the file is not such an episode.
    """
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            facts = json.loads(str(file["facts"]))
            actions = file["action"]
            empty = np.zeros((len(actions), len(facts["cameras"]), 0, 0, 3), dtype=np.uint8)
            return Episode(
                images=file["images"] if images else empty,
                actions=actions,
                state=file["state"],
                instruction=facts["instruction"],
                cameras=tuple(facts["cameras"]),
                control_hz=float(facts["control_hz"]),
                suite=facts["suite"],
                task=int(facts["task"]),
                success=bool(facts["success"]),
                source=facts["source"],
                privileged={name: file[name] for name in facts["privileged"]} if privileged else {},
            )
    except DataError:
        raise
    except (OSError, KeyError, ValueError, EOFError, MemoryError, BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a saved episode ({error}); collect it again") from error


def read_episodes(
    folder: Path, *, failed: bool = False, images: bool = True, privileged: bool = True
) -> Iterator[Episode]:
    """Yield all saved episodes below a folder in the order of their paths.

    Args:
        folder: Searched with its subfolders.
        failed: True yields episodes whose task was not solved, too.
        images: As in `load_episode`.
        privileged: As in `load_episode`.

    Raises:
        DataError: If the folder does not exist or a file is damaged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; make demonstrations with: heisd ingest")
    for path in sorted(folder.rglob("*.npz")):
        episode = load_episode(path, images=images, privileged=privileged)
        if episode.success or failed:
            yield episode


def _check_shape(name: str, array: NDArray[Any], wanted: tuple[int | None, ...]) -> None:
    fits = array.ndim == len(wanted) and all(
        want is None or want == got for want, got in zip(wanted, array.shape, strict=True)
    )
    if not fits:
        shape = tuple("any" if want is None else want for want in wanted)
        raise DataError(f"{name} must have shape {shape}, got {array.shape}")
