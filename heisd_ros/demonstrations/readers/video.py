"""Pictures out of a video file at given times, and into one, with PyAV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.readers.lerobot_meta import INSTALL
from heisd_ros.demonstrations.source import check_size
from heisd_ros.errors import DataError, MissingDependencyError
from heisd_ros.types import ImageArray

ENCODING = {"crf": "18", "g": "2"}
"""Visually lossless; a key frame every second picture, as LeRobot's own videos have."""
END: tuple[float, Any] = (math.inf, None)


def read_pictures(path: Path, times_s: Sequence[float], tolerance_s: float) -> ImageArray:
    """Return the pictures shown at these times.

    Args:
        path: Video file.
        times_s: Ascending, seconds from the start of the file.
        tolerance_s: Largest distance between a time and its picture.

    Returns:
        uint8 (T, H, W, 3), RGB.

    Raises:
        DataError: If the file is damaged or has no picture at one of the times.
        MissingDependencyError: If PyAV is not installed.
    """
    library = av()
    found: list[ImageArray] = []
    try:
        with library.open(str(path)) as container:
            stream = container.streams.video[0]
            check_size(str(path), len(times_s), stream.height, stream.width)
            frames = _frames(container, stream, times_s[0] - tolerance_s)
            at, frame = next(frames, END)
            for time_s in times_s:
                while at < time_s - tolerance_s:
                    at, frame = next(frames, END)
                if at > time_s + tolerance_s:
                    break
                found.append(frame.to_ndarray(format="rgb24"))
    except (library.FFmpegError, OSError, IndexError, ValueError) as error:
        raise DataError(f"video {path} is missing, damaged or cut off: {error}") from error
    if len(found) < len(times_s):
        raise DataError(
            f"video {path} has {len(found)} of {len(times_s)} pictures: none within "
            f"{tolerance_s:g} s of {times_s[len(found)]:.3f} s; it was cut off or has another rate"
        )
    return np.stack(found)


def av() -> Any:  # noqa: ANN401
    """Return PyAV."""
    try:
        import av
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    return av


def _frames(container: Any, stream: Any, start_s: float) -> Iterator[tuple[float, Any]]:  # noqa: ANN401
    """Yield (time, frame) from the last key frame before a time on."""
    origin = stream.start_time or 0
    if start_s > 0.0:
        container.seek(int(start_s / stream.time_base) + origin, backward=True, stream=stream)
    for frame in container.decode(stream):
        if frame.pts is not None:
            yield float((frame.pts - origin) * stream.time_base), frame


class VideoFile:
    """A video that is written piece by piece: H.264, every picture can be sought."""

    def __init__(self, path: Path, fps: int) -> None:
        """Create the file.

        Args:
            path: File to write, `.mp4`.
            fps: Pictures per second.

        Raises:
            MissingDependencyError: If PyAV is not installed.
        """
        self._library = av()
        self._container = self._library.open(str(path), "w")
        self._stream = self._container.add_stream("libx264", rate=fps, options=ENCODING)
        self._started = False

    def write(self, images: ImageArray) -> None:
        """Append pictures, uint8 (T, H, W, 3), RGB, of even sides."""
        if not self._started:
            self._stream.height, self._stream.width = images.shape[1:3]
            self._stream.pix_fmt = "yuv420p"
            self._started = True
        for image in images:
            frame = self._library.VideoFrame.from_ndarray(
                np.ascontiguousarray(image), format="rgb24"
            )
            self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Write what is left and close the file."""
        if self._started:
            self._container.mux(self._stream.encode())
        self._container.close()
