"""Frames of several cameras to sets taken at the same time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from heisd_ros.errors import ConfigError, DataError
from heisd_ros.types import Frame

BUFFER_FRAMES = 8
"""Frames kept per camera; a camera that is further ahead of the others is not paired."""

AHEAD_NS = 1_000_000_000
"""A picture further ahead of simulated time was taken before that time went back."""


def is_of_before(stamp_ns: int, now_ns: int) -> bool:
    """Return whether a picture is of the time before simulated time went back.

    Args:
        stamp_ns: Of the picture, nanoseconds.
        now_ns: Simulated time, nanoseconds; 0: not known yet, or real time, which never goes back.
    """
    return now_ns > 0 and stamp_ns - now_ns > AHEAD_NS


class FramePairer:
    """Joins the newest frame of one camera with the nearest ones of all others.

    Every frame is used at most once. A stamp that goes back means that the clock restarted (a
    bag played again): everything buffered is dropped.

    Attributes:
        drops: Frames that were not used, by reason: `unpaired`, `duplicate`, `time_jumped_back`.
    """

    def __init__(self, cameras: Sequence[str], tolerance_ns: int) -> None:
        """Set up, empty.

        Args:
            cameras: Names, in the order of the result.
            tolerance_ns: Largest difference of stamps within a set, nanoseconds.

        Raises:
            ConfigError: If there is no camera, a name is given twice, or the tolerance negative.
        """
        if not cameras or len(set(cameras)) != len(cameras) or tolerance_ns < 0:
            raise ConfigError(
                f"pairing needs distinct cameras and a tolerance >= 0, got {list(cameras)} and "
                f"{tolerance_ns} ns"
            )
        self._waiting: dict[str, deque[Frame]] = {name: deque() for name in cameras}
        self._newest_ns: dict[str, int] = {}
        self._tolerance_ns = tolerance_ns
        self.drops: Counter[str] = Counter()

    def push(self, frame: Frame) -> tuple[Frame, ...] | None:
        """Take one frame; return a set in configured order as soon as one is complete.

        Raises:
            DataError: If the camera is not one of the configured ones.
        """
        if frame.camera not in self._waiting:
            raise DataError(
                f"camera must be one of {', '.join(self._waiting)}; got {frame.camera!r}"
            )
        newest_ns = self._newest_ns.get(frame.camera)
        if newest_ns is not None and frame.stamp_ns == newest_ns:
            self.drops["duplicate"] += 1
            return None
        if newest_ns is not None and frame.stamp_ns < newest_ns:
            self.clear("time_jumped_back")
        self._newest_ns[frame.camera] = frame.stamp_ns
        self._buffer(frame)
        return self._take_set(frame)

    def clear(self, reason: str = "cleared") -> None:
        """Drop everything buffered, counted under `reason`."""
        dropped = sum(len(queue) for queue in self._waiting.values())
        if dropped:
            self.drops[reason] += dropped
        for queue in self._waiting.values():
            queue.clear()
        self._newest_ns.clear()

    def forget_after(self, stamp_ns: int) -> None:
        """Drop what is stamped later: time has gone back to this, so it is of the time before.

        Args:
            stamp_ns: The new time, nanoseconds. Frames within the tolerance after it are kept: they
                came a little sooner than the message that told the time.
        """
        latest_ns = stamp_ns + self._tolerance_ns
        for camera, queue in self._waiting.items():
            kept = [frame for frame in queue if frame.stamp_ns <= latest_ns]
            if len(kept) < len(queue):
                self.drops["time_jumped_back"] += len(queue) - len(kept)
            queue.clear()
            queue.extend(kept)
            if self._newest_ns.get(camera, latest_ns) > latest_ns:
                del self._newest_ns[camera]

    def _buffer(self, frame: Frame) -> None:
        queue = self._waiting[frame.camera]
        queue.append(frame)
        if len(queue) > BUFFER_FRAMES:
            queue.popleft()
            self.drops["unpaired"] += 1

    def _take_set(self, frame: Frame) -> tuple[Frame, ...] | None:
        if not all(self._waiting.values()):
            return None
        chosen = tuple(
            min(queue, key=lambda other: abs(other.stamp_ns - frame.stamp_ns))
            for queue in self._waiting.values()
        )
        stamps = [item.stamp_ns for item in chosen]
        if max(stamps) - min(stamps) > self._tolerance_ns:
            return None
        for item in chosen:
            self._drop_until(item)
        return chosen

    def _drop_until(self, used: Frame) -> None:
        """Forget a used frame and the older ones of its camera."""
        queue = self._waiting[used.camera]
        while queue.popleft() is not used:
            self.drops["unpaired"] += 1
