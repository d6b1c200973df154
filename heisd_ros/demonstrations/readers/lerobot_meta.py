"""The description of a LeRobot data set, v2.x and v3: where rows and pictures of an episode lie."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heisd_ros.errors import DataError, MissingDependencyError

INFO = "meta/info.json"
DATA_V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_V2 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
DATA_V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_V3 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
FIELD = re.compile(r"\{(\w+)(?::0?(\d+)d)?\}")
MAX_EPISODES = 10_000_000
INSTALL = "LeRobot data sets need: pip install 'heisd_ros[lerobot]'"


@dataclass(frozen=True, slots=True)
class VideoPlace:
    """Where the pictures of one camera of one episode lie; `start_s` within the file."""

    path: Path
    start_s: float


@dataclass(frozen=True, slots=True)
class EpisodePlace:
    """Where one episode lies.

    Attributes:
        index: Its number.
        length: Steps, -1 if the description does not say.
        data: Parquet file.
        videos: Feature -> place, for features of type video.
        tasks: Instructions that the description names.
    """

    index: int
    length: int
    data: Path
    videos: Mapping[str, VideoPlace]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LerobotMeta:
    """A data set's description.

    Attributes:
        root: Its folder.
        fps: Frames per second as the file says.
        features: Feature -> description (`dtype`, `shape`).
        tasks: Task number -> instruction.
        action_range: Smallest and largest action of the data set's own statistics, if any.
    """

    root: Path
    version: str
    fps: float
    features: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[int, str]
    episodes: tuple[EpisodePlace, ...]
    action_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def cameras(self) -> dict[str, str]:
        """Feature -> `video` or `image`, for everything that holds pictures."""
        kinds = {name: str(feature.get("dtype")) for name, feature in self.features.items()}
        return {name: kind for name, kind in kinds.items() if kind in ("video", "image")}


def read_meta(root: Path) -> LerobotMeta:
    """Read the description.

    Raises:
        DataError: If it is missing, damaged, of another version, or points out of the folder.
        MissingDependencyError: If pyarrow is not installed.
    """
    info = read_json(root / INFO)
    version = str(info.get("codebase_version", ""))
    major = version.removeprefix("v").split(".")[0]
    if major not in ("2", "3"):
        raise DataError(
            f"{root / INFO}: expected codebase_version v2.x or v3.x, got {version!r}; convert the "
            "data set with lerobot's own scripts"
        )
    features = info.get("features")
    fps = info.get("fps")
    if not isinstance(features, dict) or not isinstance(fps, (int, float)) or not fps > 0:
        raise DataError(f"{root / INFO} has no features, or fps is {fps!r}")
    videos = [name for name, feature in features.items() if feature.get("dtype") == "video"]
    episodes, tasks = (_v2 if major == "2" else _v3)(root, info, videos)
    return LerobotMeta(
        root=root,
        version=version,
        fps=float(fps),
        features=features,
        tasks=tasks,
        episodes=tuple(sorted(episodes, key=lambda episode: episode.index)),
        action_range=_action_range(root),
    )


def inside(root: Path, template: str, fields: Mapping[str, object]) -> Path:
    """Fill a path template and refuse one that leaves the data set's folder.

    Only plain fields are filled: `str.format` would let a template read attributes.

    Raises:
        DataError: If the template has an unknown field, is absolute, or climbs upwards.
    """

    def fill(match: re.Match[str]) -> str:
        value = fields.get(match[1])
        if value is None:
            raise DataError(f"{root}: unknown field {match[0]} in path {template!r}")
        return f"{int(str(value)):0{match[2]}d}" if match[2] else str(value)

    filled = FIELD.sub(fill, template)
    path = PurePosixPath(filled)
    if "{" in filled or "\0" in filled or path.is_absolute() or ".." in path.parts:
        raise DataError(f"{root}: path {template!r} leads out of the data set and is refused")
    return root / path


def parquet() -> Any:  # noqa: ANN401
    """Return pyarrow.parquet."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    return pyarrow.parquet


def read_rows(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a small parquet file.

    Raises:
        DataError: If it is missing, damaged, or not small.
    """
    reader = parquet()
    try:
        with reader.ParquetFile(path) as file:
            if file.metadata.num_rows > MAX_EPISODES:
                raise DataError(f"{path} claims {file.metadata.num_rows} rows and is refused")
            known = file.schema_arrow.names
            wanted = [name for name in known if columns is None or name in columns]
            rows: list[dict[str, Any]] = file.read(columns=wanted).to_pylist()
            return rows
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(f"{path} is missing, damaged or cut off: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        DataError: If it is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is missing or damaged: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object, got {type(content).__name__}")
    return content


def _v2(
    root: Path, info: Mapping[str, Any], videos: Sequence[str]
) -> tuple[list[EpisodePlace], dict[int, str]]:
    size = int(info.get("chunks_size") or 1000)
    data, video = info.get("data_path") or DATA_V2, info.get("video_path") or VIDEO_V2
    episodes = []
    for row in _lines(root / "meta/episodes.jsonl"):
        index = _number(row, "episode_index", root)
        fields = {"episode_index": index, "episode_chunk": index // size}
        episodes.append(
            EpisodePlace(
                index=index,
                length=int(row.get("length", -1)),
                data=inside(root, data, fields),
                videos={
                    key: VideoPlace(inside(root, video, {**fields, "video_key": key}), 0.0)
                    for key in videos
                },
                tasks=tuple(map(str, row.get("tasks", []))),
            )
        )
    tasks = {
        _number(row, "task_index", root): str(row.get("task", ""))
        for row in _lines(root / "meta/tasks.jsonl")
    }
    return episodes, tasks


def _v3(
    root: Path, info: Mapping[str, Any], videos: Sequence[str]
) -> tuple[list[EpisodePlace], dict[int, str]]:
    data, video = info.get("data_path") or DATA_V3, info.get("video_path") or VIDEO_V3
    columns = ["episode_index", "tasks", "length", "data/chunk_index", "data/file_index"]
    for key in videos:
        columns += [
            f"videos/{key}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")
        ]
    files = sorted((root / "meta/episodes").glob("*/*.parquet"))
    if not files:
        raise DataError(f"{root}/meta/episodes holds no parquet file; the data set is incomplete")
    episodes = []
    for row in (row for file in files for row in read_rows(file, columns)):
        places = {key: _place(row, f"videos/{key}", root) for key in videos}
        episodes.append(
            EpisodePlace(
                index=_number(row, "episode_index", root),
                length=int(row.get("length", -1)),
                data=inside(root, data, _place(row, "data", root)),
                videos={
                    key: VideoPlace(
                        inside(root, video, {**place, "video_key": key}),
                        _seconds(row, f"videos/{key}/from_timestamp", root),
                    )
                    for key, place in places.items()
                },
                tasks=tuple(map(str, row.get("tasks") or [])),
            )
        )
    return episodes, _tasks_v3(root)


def _tasks_v3(root: Path) -> dict[int, str]:
    """Return the tasks; pandas keeps their texts in an index column of varying name."""
    tasks = {}
    for row in read_rows(root / "meta/tasks.parquet"):
        texts = [value for name, value in row.items() if name != "task_index"]
        tasks[_number(row, "task_index", root)] = str(texts[0]) if texts else ""
    return tasks


def _place(row: Mapping[str, Any], prefix: str, root: Path) -> dict[str, object]:
    return {name: _number(row, f"{prefix}/{name}", root) for name in ("chunk_index", "file_index")}


def _number(row: Mapping[str, Any], name: str, root: Path) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_EPISODES:
        raise DataError(f"{root}: {name} must be a whole number, got {value!r}; meta is damaged")
    return value


def _seconds(row: Mapping[str, Any], name: str, root: Path) -> float:
    value = row.get(name)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0.0:
        raise DataError(f"{root}: {name} must be seconds, got {value!r}; meta is damaged")
    return float(value)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is missing, damaged or cut off: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: expected one object per line")
    return rows


def _action_range(root: Path) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the bounds that meta/stats.json gives for the action; None if it is not there."""
    path = root / "meta/stats.json"
    if not path.is_file():
        return None
    stats = read_json(path)
    action = stats.get("action") or stats.get("actions")
    if not isinstance(action, dict) or "min" not in action or "max" not in action:
        return None
    try:
        return tuple(map(float, action["min"])), tuple(map(float, action["max"]))
    except (TypeError, ValueError):
        return None
