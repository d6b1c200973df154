"""Episodes as a LeRobot v3.0 data set: many episodes per parquet file and per video.

Actions stay in the model's convention (pose delta per step, 1 = open) and states in ours; the
names in `meta/info.json` say so. The data set appears in one step when it is complete.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.lerobot_description import (
    CHUNK_SIZE,
    info_of,
    picture_keys,
    schema_of,
    tasks_table,
)
from heisd_ros.demonstrations.lerobot_statistics import StatisticsTable, feature_statistics
from heisd_ros.demonstrations.readers.lerobot_meta import DATA_V3, VIDEO_V3, parquet
from heisd_ros.demonstrations.readers.video import VideoFile, av
from heisd_ros.errors import DataError
from heisd_ros.files import write_whole
from heisd_ros.types import ImageArray

PICTURES = ("video", "png")
FRAMES_PER_FILE = 20_000
"""About the 100 MB per file that the format's own tools aim at."""
EPISODES_FILE = "meta/episodes/chunk-000/file-000.parquet"


class LerobotWriter(Closing):
    """Writes a data set; use as a context manager.

    Example:
        with LerobotWriter(out) as writer:
            writer.add_episode(episode)
            writer.finish()
    """

    def __init__(
        self, out: str | Path, *, pictures: str = "video", frames_per_file: int = FRAMES_PER_FILE
    ) -> None:
        """Prepare the data set.

        Args:
            out: Folder; must not exist or be empty.
            pictures: video (H.264, visually lossless, even sides) or png (exact, larger).
            frames_per_file: A file with this many frames is not continued.

        Raises:
            DataError: If `out` holds something, or `pictures` is unknown.
            MissingDependencyError: If pyarrow or PyAV is not installed.
        """
        if pictures not in PICTURES:
            raise DataError(f"pictures must be one of {', '.join(PICTURES)}, got {pictures!r}")
        self._out = Path(out)
        if self._out.exists() and (not self._out.is_dir() or any(self._out.iterdir())):
            raise DataError(f"{out} is not empty; give a new folder")
        self._parquet = parquet()
        if pictures == "video":
            av()
        self._pictures, self._frames_per_file = pictures, frames_per_file
        self._building = self._out.with_name(f".{self._out.name}.building")
        shutil.rmtree(self._building, ignore_errors=True)
        self._building.mkdir(parents=True)
        self._first: Episode | None = None
        self._tasks: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._origins: list[dict[str, str]] = []
        self._statistics = StatisticsTable()
        self._frames = 0
        self._file_number = -1
        self._file_frames = 0
        self._table: Any = None
        self._videos: dict[str, VideoFile] = {}

    def close(self) -> None:
        """Remove what was not finished."""
        self._close_files()
        shutil.rmtree(self._building, ignore_errors=True)

    def add_episode(self, episode: Episode) -> None:
        """Add one episode.

        Raises:
            DataError: If it is empty, its cameras, picture size or rate differ from the first
                one's, or the format cannot hold it.
        """
        self._check(episode)
        keys = picture_keys(episode)
        if self._file_number < 0 or self._file_frames >= self._frames_per_file:
            self._next_file(episode)
        self._rows.append(self._describe(episode, keys))
        self._table.write_table(self._episode_table(episode, keys))
        for view, key in enumerate(keys):
            if self._pictures == "video":
                self._videos[key].write(episode.images[:, view])
        self._origins.append(dict(episode.source))
        self._frames += len(episode)
        self._file_frames += len(episode)

    def finish(self) -> Path:
        """Complete the data set and make it visible.

        Returns:
            Its folder.

        Raises:
            DataError: If there is no episode.
        """
        if self._first is None:
            raise DataError(f"there is no episode to write to {self._out}")
        self._close_files()
        self._write_meta(self._first)
        if self._out.is_dir():
            self._out.rmdir()
        self._building.rename(self._out)
        return self._out

    def _check(self, episode: Episode) -> None:
        if not len(episode):
            raise DataError("an episode without steps cannot be exported")
        if episode.control_hz != round(episode.control_hz):
            raise DataError(f"LeRobot needs whole frames per second, got {episode.control_hz}")
        height, width = episode.images.shape[2:4]
        if self._pictures == "video" and (height % 2 or width % 2):
            raise DataError(f"H.264 needs even sides, got {width}x{height}; use --pictures png")
        if self._first is None:
            self._first = episode
        first = self._first
        for name, wanted, got in (
            ("cameras", first.cameras, episode.cameras),
            ("picture size", first.images.shape[2:], episode.images.shape[2:]),
            ("rate", first.control_hz, episode.control_hz),
        ):
            if wanted != got:
                raise DataError(
                    f"expected {name} {wanted} like the first episode, got {got}; export them apart"
                )

    def _next_file(self, episode: Episode) -> None:
        self._close_files()
        self._file_number += 1
        self._file_frames = 0
        path = self._building / DATA_V3.format(**self._place())
        path.parent.mkdir(parents=True, exist_ok=True)
        self._table = self._parquet.ParquetWriter(path, self._schema(picture_keys(episode)))
        if self._pictures == "video":
            for key in picture_keys(episode):
                video = self._building / VIDEO_V3.format(video_key=key, **self._place())
                video.parent.mkdir(parents=True, exist_ok=True)
                self._videos[key] = VideoFile(video, round(episode.control_hz))

    def _close_files(self) -> None:
        for video in self._videos.values():
            video.close()
        self._videos.clear()
        if self._table is not None:
            self._table.close()
            self._table = None

    def _place(self) -> dict[str, int]:
        chunk, file = divmod(self._file_number, CHUNK_SIZE)
        return {"chunk_index": chunk, "file_index": file}

    def _describe(self, episode: Episode, keys: list[str]) -> dict[str, Any]:
        number, steps = len(self._rows), len(episode)
        row: dict[str, Any] = {
            "episode_index": number,
            "tasks": [episode.instruction],
            "length": steps,
            **{f"data/{name}": value for name, value in self._place().items()},
            "dataset_from_index": self._frames,
            "dataset_to_index": self._frames + steps,
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        }
        if self._pictures == "video":
            for key in keys:
                place: dict[str, float] = {
                    f"videos/{key}/{n}": value for n, value in self._place().items()
                }
                start = self._file_frames / episode.control_hz
                place[f"videos/{key}/from_timestamp"] = start
                place[f"videos/{key}/to_timestamp"] = start + steps / episode.control_hz
                row.update(place)
        for name, numbers in feature_statistics(episode, keys).items():
            self._statistics.add(name, numbers)
            row.update({f"stats/{name}/{kind}": value for kind, value in numbers.items()})
        return row

    def _columns(self, episode: Episode) -> dict[str, Any]:
        steps = len(episode)
        task = self._tasks.setdefault(episode.instruction, len(self._tasks))
        success = np.zeros(steps, dtype=np.bool_)
        success[-1] = episode.success
        return {
            "timestamp": (np.arange(steps) / episode.control_hz).astype(np.float32),
            "frame_index": np.arange(steps),
            "episode_index": np.full(steps, len(self._rows) - 1),
            "index": self._frames + np.arange(steps),
            "task_index": np.full(steps, task),
            "next.success": success,
        }

    def _episode_table(self, episode: Episode, keys: list[str]) -> Any:  # noqa: ANN401
        import pyarrow as pa

        columns: dict[str, Any] = {
            "action": list(episode.actions.astype(np.float32)),
            "observation.state": list(episode.state.astype(np.float32)),
            **self._columns(episode),
        }
        if self._pictures == "png":
            for view, key in enumerate(keys):
                columns[key] = [
                    {"bytes": png_of(image), "path": None} for image in episode.images[:, view]
                ]
        return pa.table(columns, schema=self._schema(keys))

    def _schema(self, keys: list[str]) -> Any:  # noqa: ANN401
        return schema_of(keys if self._pictures == "png" else ())

    def _write_meta(self, first: Episode) -> None:
        import pyarrow as pa

        meta = self._building / "meta"
        (self._building / EPISODES_FILE).parent.mkdir(parents=True)
        self._parquet.write_table(pa.Table.from_pylist(self._rows), self._building / EPISODES_FILE)
        self._parquet.write_table(tasks_table(self._tasks), meta / "tasks.parquet")
        info = info_of(
            first,
            video=self._pictures == "video",
            episodes=len(self._rows),
            frames=self._frames,
            tasks=len(self._tasks),
        )
        for name, content in (
            ("stats.json", self._statistics.total()),
            ("info.json", info),
            ("heisd.json", {"episodes": self._origins}),
        ):
            write_whole(meta / name, json.dumps(content, indent=1))


def png_of(image: ImageArray) -> bytes:
    """Return a picture as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()
