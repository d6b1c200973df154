"""LeRobot data sets, v2.x (a file per episode) and v3 (many episodes per file)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.readers.lerobot_meta import (
    EpisodePlace,
    inside,
    parquet,
    read_meta,
)
from heisd_ros.demonstrations.readers.video import av, read_pictures
from heisd_ros.demonstrations.source import (
    MAX_STEPS,
    Piece,
    RawEpisode,
    SourceOptions,
    check_size,
    state_of,
    unknown_state,
)
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.perception.images import ImageError, decode_compressed
from heisd_ros.types import Float32Array, FloatArray, ImageArray

CAMERAS = {
    "third_person": ("observation.images.image", "observation.images.third_person", "image"),
    "wrist": (
        "observation.images.wrist_image",
        "observation.images.image2",
        "observation.images.wrist",
        "wrist_image",
    ),
}
"""Names that copies of LIBERO and our own exports have; others must be given."""
ACTIONS, STATES = ("action", "actions"), ("observation.state", "state")
VERDICTS = ("next.success", "success")
MAX_PIXELS = 4096 * 4096
TIME_TOLERANCE = 0.4
"""Of a frame period: no two frames can match one time."""
BEYOND = "steps with actions beyond meta/stats.json"


class Lerobot:
    """A LeRobot data set."""

    def __init__(self, paths: Sequence[Path], options: SourceOptions) -> None:
        """Read the description.

        Args:
            paths: The folder with `meta/info.json`.
            options: Cameras, instruction and state layout.

        Raises:
            DataError: If it is no LeRobot data set.
            ConfigError: If the cameras cannot be told apart by their names.
            MissingDependencyError: If pyarrow or PyAV is not installed.
        """
        if len(paths) != 1:
            raise ConfigError(f"lerobot reads one folder at a time, got {len(paths)}")
        self._options = options
        self._meta = read_meta(paths[0])
        self._cameras = self._checked_cameras()
        if "video" in [self._meta.cameras[key] for key in self._cameras.values()]:
            av()
        self._action = self._named(ACTIONS, "an action")
        self._state = "" if options.state == "none" else self._named(STATES, "a state")
        self.lost: Counter[str] = Counter()
        self.settled: Mapping[str, Any] = {"control_hz": self._meta.fps}

    def pieces(self) -> list[Piece]:
        """Return one piece per episode."""
        places = self._meta.episodes
        if not places:
            raise DataError(f"{self._meta.root} names no episode; its meta folder is empty")
        return [Piece(f"episode_{place.index:06d}", place.data, place.index) for place in places]

    def read(self, piece: Piece) -> Iterator[RawEpisode]:
        """Yield the episode."""
        place = next(place for place in self._meta.episodes if place.index == piece.index)
        table = self._table(place, piece.name)
        actions = _matrix(table, self._action, piece.name)
        if place.length not in (-1, len(actions)):
            raise DataError(
                f"{piece.name}: expected {place.length} rows in {place.data}, got {len(actions)}; "
                "it was cut off"
            )
        times = _times(table, self._meta.fps, piece.name)
        yield RawEpisode(
            name=piece.name,
            images={
                camera: self._pictures(place, key, times, table, piece.name)
                for camera, key in self._cameras.items()
            },
            actions=actions,
            state=self._states(table, len(actions), piece.name),
            instruction=self._options.instruction or self._instruction(table, place),
            success=_verdict(table),
            notes=self._beyond_statistics(actions),
            facts={"path": str(place.data), "codebase_version": self._meta.version},
        )

    def close(self) -> None:
        """Nothing is kept open."""

    def _checked_cameras(self) -> dict[str, str]:
        known = self._meta.cameras
        cameras = dict(self._options.cameras)
        if not cameras:
            for camera, names in CAMERAS.items():
                fitting = [name for name in names if name in known]
                if len(fitting) == 1:
                    cameras[camera] = fitting[0]
        complete = self._options.cameras or len(cameras) == len(CAMERAS)
        if not complete or any(key not in known for key in cameras.values()):
            raise ConfigError(
                f"{self._meta.root}: its cameras are {', '.join(known) or 'none'}; give "
                "--camera third_person=KEY --camera wrist=KEY"
            )
        return cameras

    def _named(self, names: Sequence[str], what: str) -> str:
        for name in names:
            if name in self._meta.features:
                return name
        raise DataError(
            f"{self._meta.root} has no feature {' or '.join(names)}: {what} is needed; it holds "
            f"{', '.join(self._meta.features)}"
        )

    def _table(self, place: EpisodePlace, name: str) -> Any:  # noqa: ANN401
        """Return the rows of the episode, needed columns only."""
        reader = parquet()
        pictures = [key for key in self._cameras.values() if self._meta.cameras[key] == "image"]
        wanted = [self._action, self._state, "timestamp", "frame_index", "task_index", *VERDICTS]
        try:
            known = reader.read_schema(place.data).names
            table = reader.read_table(
                place.data,
                columns=[column for column in [*wanted, *pictures] if column in known],
                filters=[("episode_index", "=", place.index)],
            )
        except (OSError, ValueError) as error:
            raise DataError(f"{name}: {place.data} is missing or damaged: {error}") from error
        if not 0 < table.num_rows <= MAX_STEPS:
            raise DataError(
                f"{name}: {place.data} holds {table.num_rows} rows of it; meta is wrong"
            )
        return table

    def _states(self, table: Any, steps: int, name: str) -> Float32Array:  # noqa: ANN401
        if not self._state:
            return unknown_state(steps)
        return state_of(_matrix(table, self._state, name), self._options.state, name)

    def _instruction(self, table: Any, place: EpisodePlace) -> str:  # noqa: ANN401
        if "task_index" in table.column_names:
            numbers = set(table["task_index"].to_pylist())
            if len(numbers) > 1:
                raise DataError(f"episode {place.index} mixes tasks {sorted(numbers)}; split it")
            words = self._meta.tasks.get(numbers.pop(), "")
            if words:
                return words
        if len(place.tasks) == 1 and place.tasks[0]:
            return place.tasks[0]
        raise DataError(f"episode {place.index} has no single task; give --instruction")

    def _pictures(
        self,
        place: EpisodePlace,
        key: str,
        times: FloatArray,
        table: Any,  # noqa: ANN401
        name: str,
    ) -> ImageArray:
        if self._meta.cameras[key] == "video":
            video = place.videos[key]
            wanted = [video.start_s + time for time in times.tolist()]
            return read_pictures(video.path, wanted, TIME_TOLERANCE / self._meta.fps)
        if key not in table.column_names:
            raise DataError(f"{name}: {place.data} has no column {key!r}")
        return self._stored_pictures(table[key].to_pylist(), name)

    def _stored_pictures(self, cells: list[Any], name: str) -> ImageArray:
        images: list[ImageArray] = []
        limit = MAX_PIXELS
        for cell in cells:
            try:
                image = decode_compressed(self._bytes(cell), limit)
            except (ImageError, OSError) as error:
                raise DataError(f"{name}: a picture is unreadable: {error}") from error
            if not images:
                check_size(name, len(cells), *image.shape[:2])
                limit = image.shape[0] * image.shape[1]
            if images and image.shape != images[0].shape:
                raise DataError(f"{name}: pictures of several sizes; resize them first")
            images.append(image)
        return np.stack(images)

    def _bytes(self, cell: Any) -> bytes:  # noqa: ANN401
        if isinstance(cell, dict) and isinstance(cell.get("bytes"), bytes):
            return bytes(cell["bytes"])
        path = cell.get("path") if isinstance(cell, dict) else cell
        return inside(self._meta.root, str(path or ""), {}).read_bytes()

    def _beyond_statistics(self, actions: FloatArray) -> dict[str, int]:
        """Count the steps that the data set's own statistics say cannot be."""
        bounds = self._meta.action_range
        if bounds is None or len(bounds[0]) != actions.shape[1]:
            return {} if bounds is None else {BEYOND: len(actions)}
        low, high = np.array(bounds[0]), np.array(bounds[1])
        slack = 1e-4 + 1e-3 * np.abs(high - low)
        beyond = (actions < low - slack) | (actions > high + slack)
        return {BEYOND: int(beyond.any(axis=1).sum())}


def _matrix(table: Any, column: str, name: str) -> FloatArray:  # noqa: ANN401
    """Return a column of equally long lists as float64 (T, n)."""
    if column not in table.column_names:
        raise DataError(
            f"{name} has no column {column!r}; it holds {', '.join(table.column_names)}"
        )
    try:
        matrix = np.array(table[column].to_pylist(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: {column} has rows of several lengths or no numbers") from error
    if matrix.ndim != 2:
        raise DataError(f"{name}: {column} must be a vector per step, got shape {matrix.shape}")
    return matrix


def _times(table: Any, fps: float, name: str) -> FloatArray:  # noqa: ANN401
    """Return the times of the rows since the start of the episode, seconds."""
    names = table.column_names
    if "timestamp" in names:
        times = np.array(table["timestamp"].to_pylist(), dtype=np.float64).reshape(-1)
    elif "frame_index" in names:
        times = np.array(table["frame_index"].to_pylist(), dtype=np.float64).reshape(-1) / fps
    else:
        times = np.arange(table.num_rows) / fps
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"{name}: timestamps do not ascend; the rows are out of order or damaged")
    return times


def _verdict(table: Any) -> bool | None:  # noqa: ANN401
    for column in VERDICTS:
        if column in table.column_names:
            return any(bool(np.any(value)) for value in table[column].to_pylist())
    return None
