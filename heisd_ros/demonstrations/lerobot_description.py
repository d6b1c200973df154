"""What a LeRobot v3.0 data set says about itself: its features, its columns and its tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.readers.lerobot_meta import DATA_V3, VIDEO_V3

CODEBASE_VERSION = "v3.0"
CHUNK_SIZE = 1000
ACTION_NAMES = ["x", "y", "z", "rx", "ry", "rz", "gripper_1_open"]
STATE_NAMES = ["x", "y", "z", "qx", "qy", "qz", "qw", "finger_gap"]
SCALARS = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
    "next.success": "bool",
}


def info_of(
    first: Episode, *, video: bool, episodes: int, frames: int, tasks: int
) -> dict[str, Any]:
    """Return `meta/info.json`.

    Args:
        first: Any episode of the set: all have its cameras, picture size and rate.
        video: Pictures are videos, not PNGs inside the tables.
        episodes: Number of episodes.
        frames: Number of steps.
        tasks: Number of different instructions.
    """
    return {
        "codebase_version": CODEBASE_VERSION,
        "robot_type": "unknown",
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": CHUNK_SIZE,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 500,
        "fps": round(first.control_hz),
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA_V3,
        "video_path": VIDEO_V3 if video else None,
        "features": features_of(first, video=video),
    }


def features_of(episode: Episode, *, video: bool) -> dict[str, Mapping[str, Any]]:
    """Return type, shape and names of every column."""
    height, width = episode.images.shape[2:4]
    picture: dict[str, Any] = {
        "dtype": "video" if video else "image",
        "shape": [height, width, 3],
        "names": ["height", "width", "channels"],
    }
    if video:
        picture["info"] = {
            "video.fps": round(episode.control_hz),
            "video.height": height,
            "video.width": width,
            "video.channels": 3,
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.is_depth_map": False,
            "has_audio": False,
        }
    vectors = {"action": ACTION_NAMES, "observation.state": STATE_NAMES}
    return {
        **{
            name: {"dtype": "float32", "shape": [len(names)], "names": names}
            for name, names in vectors.items()
        },
        **dict.fromkeys(picture_keys(episode), picture),
        **{name: {"dtype": kind, "shape": [1], "names": None} for name, kind in SCALARS.items()},
    }


def schema_of(pictures: Sequence[str]) -> Any:  # noqa: ANN401  (pyarrow is untyped)
    """Return the columns of a data file; `pictures` are those kept as PNG inside it."""
    import pyarrow as pa

    kinds = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}
    cell = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.schema(
        [
            ("action", pa.list_(pa.float32(), len(ACTION_NAMES))),
            ("observation.state", pa.list_(pa.float32(), len(STATE_NAMES))),
            *((name, kinds[kind]) for name, kind in SCALARS.items()),
            *((key, cell) for key in pictures),
        ]
    )


def tasks_table(tasks: Mapping[str, int]) -> Any:  # noqa: ANN401  (pyarrow is untyped)
    """Return `meta/tasks.parquet`: instruction -> number, the instruction as pandas' index."""
    import pyarrow as pa

    table = pa.table({"task_index": list(tasks.values()), "task": list(tasks)})
    index = {"index_columns": ["task"], "column_indexes": [], "columns": _PANDAS_COLUMNS}
    return table.replace_schema_metadata({b"pandas": json.dumps(index).encode()})


def picture_keys(episode: Episode) -> list[str]:
    """Return the features that hold the pictures, in camera order."""
    return [f"observation.images.{camera}" for camera in episode.cameras]


_PANDAS_COLUMNS = [
    {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
    for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
]
"""What pandas needs to find the index again."""
