"""A recorded run as observations and as what was decided from them, without ROS and without DDS.

Time is that of the message headers; a message without a stamp counts by its time of reception.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.bag_decisions import (
    SECOND_NS,
    RecordedDecision,
    RecordedStatus,
    read_decisions,
    read_status,
    stamp_of,
    velocities,
)
from heisd_ros.demonstrations.bag_files import BagFiles, BagMessage
from heisd_ros.demonstrations.bag_topics import (
    COMPRESSED_IMAGE,
    UNSTAMPED_TWIST,
    BagTopics,
    find_topics,
)
from heisd_ros.errors import DataError
from heisd_ros.perception.images import ImageError, decode_compressed, decode_image
from heisd_ros.perception.pairing import FramePairer
from heisd_ros.types import (
    FloatArray,
    Frame,
    IntArray,
    Observation,
    Proprioception,
)


@dataclass(frozen=True, slots=True)
class BagSettings:
    """What must be known about a robot to read its bag.

    Attributes:
        cameras: Names in view order.
        finger_joints: Joints whose positions add up to the finger distance.
        gripper_max_m: Finger distance of an open gripper, metres.
        pairing_tolerance_s: Largest difference of stamps within one set of pictures.
        oldest_state_s: State further from the picture than this is not used.
        mapping: Topic mapping, see `bag_topics.load_mapping`.
        salvage: Read MCAP files that were cut off as far as they go.
        forces: Read wrenches too; there may be a thousand per second.
    """

    cameras: tuple[str, ...] = ("third_person", "wrist")
    finger_joints: tuple[str, ...] = ("panda_finger_joint1", "panda_finger_joint2")
    gripper_max_m: float = 0.08
    pairing_tolerance_s: float = 0.05
    oldest_state_s: float = 0.5
    mapping: Mapping[str, Any] | None = None
    salvage: bool = False
    forces: bool = False


class BagReader(Closing):
    """A bag, read in two passes: everything small at once, pictures as a stream.

    Attributes:
        topics: What its topics carry.
        poses: Measured poses by stamp, with the gripper opening of that time.
        decisions: What was decided, in order.
        statuses: What was said about the episodes, in order.
        twists: Commanded velocities (6,), m/s and rad/s, by stamp.
        drops: What was not used and why, with counts.
    """

    def __init__(self, path: str | Path, settings: BagSettings | None = None) -> None:
        """Open the bag and read all but its pictures.

        Raises:
            DataError: If it is no bag, damaged, empty, or lacks a camera.
            MissingDependencyError: If rosbags is not installed.
        """
        self._settings = settings or BagSettings()
        self._files = BagFiles(path, salvage=self._settings.salvage)
        self.path = self._files.path
        self.drops: Counter[str] = Counter()
        try:
            self.topics: BagTopics = find_topics(
                self._files.topics,
                self._settings.cameras,
                self._settings.mapping,
                source=f"bag {self.path}",
            )
            self._read_small()
        except BaseException:
            self._files.close()
            raise
        for topic, count in self._files.unknown().items():
            self.drops[f"{topic}: unknown type"] += count

    @property
    def facts(self) -> Mapping[str, str]:
        """Texts that the recorder kept."""
        return self._files.facts

    def skipped(self) -> dict[str, int]:
        """Return everything that could not be read or was not used, with counts."""
        unreadable = Counter(self._files.skipped)
        total = self.drops + unreadable
        return {reason: count for reason, count in sorted(total.items()) if count}

    def frame_sets(self) -> Iterator[tuple[int, tuple[Frame, ...]]]:
        """Yield (time of reception, paired pictures) in order, each picture once."""
        cameras = {topic: camera for camera, topic in self.topics.cameras.items()}
        tolerance_ns = round(self._settings.pairing_tolerance_s * SECOND_NS)
        pairer = FramePairer(self._settings.cameras, tolerance_ns)
        for message in self._files.messages(cameras):
            frame = self._frame(message, cameras[message.topic])
            frames = None if frame is None else pairer.push(frame)
            if frames is not None:
                yield message.log_ns, frames
        pairer.clear("unpaired")
        self.drops.update({f"picture {why}": count for why, count in pairer.drops.items()})

    def observations(
        self, *, instruction: str = "", period_s: float = 0.0
    ) -> Iterator[Observation]:
        """Yield what a policy would have seen.

        A bag with decode reports gives the observations that were decided from; any other one
        gives pictures at least a period apart.

        Args:
            instruction: The task in words; empty takes what was recorded.
            period_s: Shortest time between two observations, seconds.

        Raises:
            DataError: If no instruction was recorded and none is given.
        """
        decided = {decision.image_ns: decision.instruction for decision in self.decisions}
        last_ns = next_ns = -(2**62)
        for log_ns, frames in self.frame_sets():
            stamp_ns = min(frame.stamp_ns for frame in frames)
            if decided:
                wanted = stamp_ns in decided
            else:
                back = stamp_ns < next_ns - 2 * round(period_s * SECOND_NS)  # the clock restarted
                # A tenth of slack: cameras are not exactly on time.
                wanted = back or stamp_ns >= next_ns - round(0.1 * period_s * SECOND_NS)
            if not wanted:
                if not decided and stamp_ns <= last_ns:
                    self.drops["pictures not newer than those before"] += 1
                continue
            last_ns = stamp_ns
            next_ns = stamp_ns + round(period_s * SECOND_NS)
            state = self.state_at(stamp_ns)
            if state is None and self.poses:
                self.drops["observation without a pose near it"] += 1
                continue
            task = instruction or decided.get(stamp_ns) or self._instruction_at(log_ns)
            force = self._force_at(stamp_ns)
            yield Observation(frames, state, task, stamp_ns=stamp_ns, force=force)

    def state_at(self, stamp_ns: int) -> Proprioception | None:
        """Return the measured state nearest to a stamp; None if there is none near it."""
        pose = _nearest(self.poses, self._pose_ns, stamp_ns)
        limit_ns = round(self._settings.oldest_state_s * SECOND_NS)
        return pose if pose and abs(pose.stamp_ns - stamp_ns) <= limit_ns else None

    def _force_at(self, stamp_ns: int) -> float | None:
        """Return the norm of the nearest force, newtons; None if it is far or not finite."""
        nearest = _nearest(self._forces, self._force_ns, stamp_ns)
        limit_ns = round(self._settings.oldest_state_s * SECOND_NS)
        if nearest is None or abs(nearest[0] - stamp_ns) > limit_ns:
            return None
        return float(nearest[1]) if math.isfinite(nearest[1]) else None

    def close(self) -> None:
        """Close the bag."""
        self._files.close()

    def _read_small(self) -> None:
        role_of = {topic: role for role, topic in self.topics.roles.items()}
        if not self._settings.forces:
            role_of.pop(self.topics.roles.get("wrench", ""), None)
        kept: dict[str, list[BagMessage]] = {role: [] for role in self.topics.roles}
        for message in self._files.messages(role_of):
            kept[role_of[message.topic]].append(message)
        self._forces = self._norms(kept.get("wrench", []))
        self._force_ns = np.array([at for at, _ in self._forces], dtype=np.int64)
        openings = self._openings(kept.get("joint_states", []))
        self.poses = _sorted_once(self._poses(kept.get("pose", [])))
        self.poses = [_with_opening(pose, openings) for pose in self.poses]
        self._pose_ns = np.array([pose.stamp_ns for pose in self.poses], dtype=np.int64)
        self._instructions = [
            (m.log_ns, m.content.data.strip()) for m in kept.get("instruction", [])
        ]
        self.statuses: list[RecordedStatus] = [
            read_status(message) for message in kept.get("status", [])
        ]
        twists = kept.get("twist", [])
        self.twists = sorted(map(_velocities_at, twists), key=lambda entry: entry[0])
        stamped = [message for message in twists if message.kind != UNSTAMPED_TWIST]
        self.decisions: list[RecordedDecision] = read_decisions(
            kept.get("report", []), stamped, kept.get("gripper", [])
        )

    def _instruction_at(self, log_ns: int) -> str:
        texts = [(received, text) for received, text in self._instructions if text]
        before = [text for received, text in texts if received <= log_ns]
        if not texts:
            raise DataError(
                f"bag {self.path} holds no instruction; say what the arm shall do with "
                "--instruction"
            )
        return str(before[-1] if before else texts[0][1])

    def _frame(self, message: BagMessage, camera: str) -> Frame | None:
        content = message.content
        try:
            if message.kind == COMPRESSED_IMAGE:
                image = decode_compressed(content.data)
            else:
                image = decode_image(
                    content.height,
                    content.width,
                    content.encoding,
                    content.step,
                    content.data,
                    bool(content.is_bigendian),
                )
        except ImageError as error:
            self.drops[f"{message.topic}: {error.reason}"] += 1
            return None
        return Frame(image, camera, stamp_of(message))

    def _poses(self, messages: Sequence[BagMessage]) -> Iterator[Proprioception]:
        for message in messages:
            p, q = message.content.pose.position, message.content.pose.orientation
            position, orientation = np.array([p.x, p.y, p.z]), np.array([q.x, q.y, q.z, q.w])
            length = float(np.linalg.norm(orientation))
            if not (np.isfinite(position).all() and math.isfinite(length) and length > 0.0):
                self.drops["pose that is not finite"] += 1
                continue
            frame_id = message.content.header.frame_id
            yield Proprioception(
                position, orientation / length, math.nan, stamp_of(message), frame_id
            )

    def _norms(self, messages: Sequence[BagMessage]) -> list[tuple[int, float]]:
        found = []
        for message in messages:
            f = message.content.wrench.force
            found.append((stamp_of(message), math.hypot(f.x, f.y, f.z)))
            if not math.isfinite(found[-1][1]):
                self.drops["wrench that is not finite"] += 1
        return sorted(found, key=lambda entry: entry[0])

    def _openings(self, messages: Sequence[BagMessage]) -> list[tuple[int, float]]:
        found = []
        for message in messages:
            joints = dict(zip(message.content.name, message.content.position, strict=False))
            if not set(self._settings.finger_joints) <= set(joints):
                continue  # the message of another part of the robot
            gap = sum(float(joints[name]) for name in self._settings.finger_joints)
            opening = min(max(gap / self._settings.gripper_max_m, 0.0), 1.0)
            if math.isfinite(opening):
                found.append((stamp_of(message), opening))
        return sorted(found)


def _velocities_at(message: BagMessage) -> tuple[int, FloatArray]:
    """Return when and what was commanded; a twist without a header counts by its reception."""
    if message.kind == UNSTAMPED_TWIST:
        return message.log_ns, velocities(message.content)
    return stamp_of(message), velocities(message.content.twist)


def _sorted_once(poses: Iterator[Proprioception]) -> list[Proprioception]:
    """Return the poses in time order, one per stamp: pictures may have been sent again."""
    by_stamp = {pose.stamp_ns: pose for pose in poses}
    return [by_stamp[stamp_ns] for stamp_ns in sorted(by_stamp)]


def _with_opening(pose: Proprioception, openings: list[tuple[int, float]]) -> Proprioception:
    if not openings:
        return pose
    stamps = np.array([stamp_ns for stamp_ns, _ in openings], dtype=np.int64)
    nearest = _nearest(openings, stamps, pose.stamp_ns)
    return pose if nearest is None else dataclasses.replace(pose, gripper_opening=nearest[1])


def _nearest(items: Sequence[Any], stamps: IntArray, stamp_ns: int) -> Any:  # noqa: ANN401
    """Return the item whose stamp is nearest, the earlier one of two equally near; None if none."""
    if not len(items):
        return None
    after = int(np.searchsorted(stamps, stamp_ns))
    near = [place for place in (after - 1, after) if 0 <= place < len(items)]
    return items[min(near, key=lambda place: abs(int(stamps[place]) - stamp_ns))]
