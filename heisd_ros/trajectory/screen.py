"""Decides which measured positions may enter the window, and when the window must be emptied."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from heisd_ros.types import FloatArray

LATE_DELIVERY_NS = 200_000_000
"""A stamp this little older than the last is a late message; an older one, a restarted clock."""

FURTHEST_M = 1e4
"""No arm is this far from its base; squares of larger numbers may overflow."""

JITTER_M = 2e-3
"""Jump that two samples at almost equal stamps may always have, metres."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A position (3,) in metres and its time in nanoseconds."""

    position: FloatArray
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do: empty the window first or not, then add these samples."""

    samples: tuple[Sample, ...] = ()
    clear: bool = False


DROP = Verdict()


class PoseScreen:
    """Judges positions one by one, against the last good one.

    A single position that is too far to be reached is dropped. If the next one confirms the new
    place, the arm really is there (reset, new tf tree) and the trajectory starts anew from it.
    """

    def __init__(self, max_speed: float, max_gap_s: float) -> None:
        """Set up.

        Args:
            max_speed: A faster position is a jump, m/s.
            max_gap_s: A longer pause starts a new trajectory, seconds.
        """
        self._max_speed = max_speed
        self._max_gap_ns = round(max_gap_s * 1e9)
        self.counts: Counter[str] = Counter()
        self.reset()

    def reset(self) -> None:
        """Forget the last position; the counts are kept."""
        self._last: Sample | None = None
        self._frame_id = ""
        self._jumped: Sample | None = None

    def judge(self, position: FloatArray, stamp_ns: int, frame_id: str) -> Verdict:
        """Return whether this position (3,) counts, and whether the window survives it."""
        if not np.isfinite(position).all():
            return self._drop("non_finite")
        if float(np.abs(position).max()) > FURTHEST_M:
            return self._drop("out_of_range")
        sample = Sample(position, stamp_ns)
        if self._last is None:
            return self._start(sample, frame_id)
        if frame_id != self._frame_id:
            return self._start(sample, frame_id, "frame_changed")
        return self._judge_time(sample, self._last)

    def _judge_time(self, sample: Sample, last: Sample) -> Verdict:
        elapsed_ns = sample.stamp_ns - last.stamp_ns
        if elapsed_ns == 0:
            return self._drop("equal_stamp")
        if elapsed_ns < -LATE_DELIVERY_NS:
            return self._start(sample, self._frame_id, "time_jumped_back")
        if elapsed_ns < 0:
            return self._drop("late")
        if elapsed_ns > self._max_gap_ns:
            return self._start(sample, self._frame_id, "gap")
        if self._is_reachable(last, sample):
            self._last, self._jumped = sample, None
            return Verdict((sample,))
        return self._judge_jump(sample)

    def _judge_jump(self, sample: Sample) -> Verdict:
        first = self._jumped
        self._jumped = sample
        if first is None or not self._is_reachable(first, sample):
            return self._drop("jump")
        self._start(sample, self._frame_id, "moved_by_jump")
        return Verdict((first, sample), clear=True)

    def _is_reachable(self, before: Sample, after: Sample) -> bool:
        elapsed_s = (after.stamp_ns - before.stamp_ns) * 1e-9
        distance = float(np.linalg.norm(after.position - before.position))
        return elapsed_s > 0.0 and distance <= self._max_speed * elapsed_s + JITTER_M

    def _start(self, sample: Sample, frame_id: str, reason: str = "") -> Verdict:
        if reason:
            self.counts[reason] += 1
        self._last, self._frame_id, self._jumped = sample, frame_id, None
        return Verdict((sample,), clear=True)

    def _drop(self, reason: str) -> Verdict:
        self.counts[reason] += 1
        return DROP
