"""Puts together, from inputs that arrive one by one, what belongs to one picture."""

from __future__ import annotations

import dataclasses
import math

from heisd_ros.types import Observation, Proprioception, TrajectoryMetric, VisualFeatures

NO_FRAMES = "no_frames"
NO_INSTRUCTION = "no_instruction"
NO_CLOCK = "no_clock"
AHEAD_OF_CLOCK = "ahead_of_clock"
NO_POSE = "no_pose"
NO_GRIPPER_STATE = "no_gripper_state"
STALE_POSE = "stale_pose"
WAITING = "waiting"


class ObservationAssembler:
    """Hands out one observation per set of pictures, when robot state of that moment is there.

    State measured at or after the picture is waited for, for a short time: so simulation in
    lockstep decides from exactly the state of the picture, and a robot with a slow state topic
    decides from the newest state it has. Not thread-safe.

    Attributes:
        reason: Why the last `take` returned nothing; empty after an observation.
        instruction: The active instruction; empty before the first.
    """

    def __init__(self, *, patience_s: float, oldest_s: float) -> None:
        """Set up, empty.

        Args:
            patience_s: Longest wait for state as new as the picture, seconds.
            oldest_s: State older than the picture by more than this decides nothing, seconds.
        """
        self._patience_ns = round(patience_s * 1e9)
        self._oldest_ns = round(oldest_s * 1e9)
        self.instruction = ""
        self.clear()

    def clear(self) -> None:
        """Forget everything but the instruction, e.g. when the clock has jumped back."""
        self._features: VisualFeatures | None = None
        self._pose: Proprioception | None = None
        self._opening = math.nan
        self._opening_ns = 0
        self._force = math.nan
        self._force_ns = 0
        self._metric: TrajectoryMetric | None = None
        self._arrival_ns = 0
        self._arrived_steady_ns: int | None = None
        self._decided_ns = -1
        self.reason = NO_FRAMES

    def offer_features(
        self, features: VisualFeatures, now_ns: int, *, arrived_ns: int | None = None
    ) -> None:
        """Take the features of new pictures; pictures already decided from are ignored.

        Args:
            features: Of one set of pictures.
            now_ns: Time on the clock of the stamps, nanoseconds.
            arrived_ns: When the pictures arrived, on a clock that never jumps; passed on.
        """
        if features.stamp_ns != self._decided_ns:
            self._features, self._arrival_ns = features, now_ns
            self._arrived_steady_ns = arrived_ns

    def offer_pose(self, pose: Proprioception) -> None:
        """Take a measured pose; its gripper opening is not looked at."""
        self._pose = pose

    def offer_opening(self, opening: float, stamp_ns: int) -> None:
        """Take a measured gripper opening, [0, 1]."""
        self._opening, self._opening_ns = opening, stamp_ns

    def offer_force(self, force: float, stamp_ns: int) -> None:
        """Take the norm of a measured force, newtons; nan if the sensor said nothing usable.

        No observation waits for it: one without a force near its picture has None.
        """
        self._force, self._force_ns = force, stamp_ns

    def offer_metric(self, metric: TrajectoryMetric) -> None:
        """Take the metric of the trajectory up to its stamp."""
        self._metric = metric

    def take(self, now_ns: int, *, expect_metric: bool) -> Observation | None:
        """Return the next observation if it is complete, else None with a `reason`.

        Args:
            now_ns: Time on the clock of the stamps, nanoseconds.
            expect_metric: Whether somebody measures the metric; if nobody does, the policy will.
        """
        self.reason = self._missing(now_ns, expect_metric)
        features, pose = self._features, self._pose
        if self.reason or features is None or pose is None:
            return None
        self._features = None
        self._decided_ns = features.stamp_ns
        return Observation(
            frames=(),
            proprioception=dataclasses.replace(pose, gripper_opening=self._opening),
            instruction=self.instruction,
            features=features,
            metric=self._metric if expect_metric else None,
            stamp_ns=features.stamp_ns,
            arrived_ns=self._arrived_steady_ns,
            force=self._force_near(features.stamp_ns),
        )

    def _force_near(self, picture_ns: int) -> float | None:
        near = abs(picture_ns - self._force_ns) <= self._oldest_ns
        return self._force if near and math.isfinite(self._force) else None

    def _missing(self, now_ns: int, expect_metric: bool) -> str:
        if now_ns == 0:
            return NO_CLOCK
        if self._features is None:
            return NO_FRAMES
        if not self.instruction:
            return NO_INSTRUCTION
        return self._awaited(self._features.stamp_ns, now_ns, expect_metric)

    def _awaited(self, picture_ns: int, now_ns: int, expect_metric: bool) -> str:
        if picture_ns > now_ns:
            return AHEAD_OF_CLOCK
        newest = [self._pose.stamp_ns if self._pose else -1, self._opening_ns]
        if expect_metric:
            newest.append(self._metric.stamp_ns if self._metric else -1)
        if min(newest) >= picture_ns:
            return ""
        if 0 <= now_ns - self._arrival_ns < self._patience_ns:
            return WAITING
        return self._too_old(picture_ns)

    def _too_old(self, picture_ns: int) -> str:
        if self._pose is None:
            return NO_POSE
        if math.isnan(self._opening):
            return NO_GRIPPER_STATE
        oldest_ns = min(self._pose.stamp_ns, self._opening_ns)
        return STALE_POSE if picture_ns - oldest_ns > self._oldest_ns else ""
