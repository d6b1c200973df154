"""Simulated time, and finding the command that was decided from one picture."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from geometry_msgs.msg import TwistStamped

from heisd_ros.msg import DecodeReport, GripperCommand
from heisd_ros.nodes.conversions import SECOND_NS, to_ns, to_wire_command
from heisd_ros.nodes.records import EPISODE_END
from heisd_ros.types import EndEffectorCommand, Observation

Item = TypeVar("Item")

EPISODE_GAP_NS = 60 * SECOND_NS
"""Pause between episodes: long enough to empty every window and buffer on the way."""

KEPT = 256
"""Messages kept while their partners are on the way: five seconds at 50 Hz."""


class EpisodeClock:
    """Simulated time: control periods within an episode, a long pause between two."""

    def __init__(self, control_hz: float) -> None:
        """Begin at one second: zero would mean that there is no clock."""
        self._control_hz = control_hz
        self._start_ns = SECOND_NS
        self._step = 0

    @property
    def now_ns(self) -> int:
        """Simulated time in nanoseconds."""
        return self._start_ns + round(self._step * SECOND_NS / self._control_hz)

    def tick(self) -> None:
        """Let one control period pass."""
        self._step += 1

    def next_episode(self) -> None:
        """Let the pause between two episodes pass."""
        self._start_ns = self.now_ns + EPISODE_GAP_NS
        self._step = 0


def restamp(observation: Observation, stamp_ns: int) -> Observation:
    """Return the observation as if everything in it had been measured at this time."""
    state = observation.proprioception
    return dataclasses.replace(
        observation,
        frames=tuple(dataclasses.replace(f, stamp_ns=stamp_ns) for f in observation.frames),
        proprioception=state and dataclasses.replace(state, stamp_ns=stamp_ns),
        stamp_ns=stamp_ns,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the decoder made of one picture: the report, and the command as it came on the wire."""

    report: DecodeReport
    command: EndEffectorCommand


class CommandMatcher:
    """Joins report, twist and gripper command of one decision by their common stamp.

    Offered by the node's thread, waited for by the simulator's.
    """

    def __init__(self) -> None:
        """Set up, empty."""
        self._condition = threading.Condition()
        self._reports: _Recent[DecodeReport] = _Recent()
        self._twists: _Recent[TwistStamped] = _Recent()
        self._grippers: _Recent[GripperCommand] = _Recent()
        self._undrained: list[DecodeReport] = []

    def offer_report(self, message: DecodeReport) -> None:
        """Take a report."""
        with self._condition:
            self._reports.put(to_ns(message.image_stamp), message)
            if message.reason != EPISODE_END:
                self._undrained.append(message)
            self._condition.notify_all()

    def offer_twist(self, message: TwistStamped) -> None:
        """Take a twist."""
        with self._condition:
            self._twists.put(to_ns(message.header.stamp), message)
            self._condition.notify_all()

    def offer_gripper(self, message: GripperCommand) -> None:
        """Take a gripper command."""
        with self._condition:
            self._grippers.put(to_ns(message.header.stamp), message)
            self._condition.notify_all()

    def wait_for_report(self, image_ns: int, timeout_s: float) -> DecodeReport | None:
        """Return the report about this stamp, or None when the time is up."""
        with self._condition:
            self._condition.wait_for(lambda: image_ns in self._reports, timeout_s)
            return self._reports.get(image_ns)

    def wait_for_answer(self, image_ns: int, timeout_s: float) -> Answer | None:
        """Return decision and command for the picture of this stamp, or None when time is up."""
        with self._condition:
            self._condition.wait_for(lambda: self._answer(image_ns) is not None, timeout_s)
            return self._answer(image_ns)

    def newest(self, now_ns: int, lifetime_ns: int) -> EndEffectorCommand | None:
        """Return the newest command if it is not older than its lifetime, as an arm would.

        Args:
            now_ns: Time on the clock of the stamps, nanoseconds.
            lifetime_ns: Older commands are ignored, nanoseconds.
        """
        with self._condition:
            twist, gripper = self._twists.newest(), self._grippers.newest()
        if twist is None or gripper is None:
            return None
        command = to_wire_command(twist, gripper)
        return command if now_ns - command.stamp_ns <= lifetime_ns else None

    def drain_reports(self) -> tuple[DecodeReport, ...]:
        """Return the reports of decisions since the last call, oldest first."""
        with self._condition:
            drained, self._undrained = self._undrained, []
        return tuple(drained)

    def _answer(self, image_ns: int) -> Answer | None:
        report = self._reports.get(image_ns)
        if report is None:
            return None
        stamp_ns = to_ns(report.header.stamp)
        twist, gripper = self._twists.get(stamp_ns), self._grippers.get(stamp_ns)
        if twist is None or gripper is None:
            return None
        return Answer(report, to_wire_command(twist, gripper))


class _Recent(Generic[Item]):
    """The last messages of one kind by stamp."""

    def __init__(self) -> None:
        self._items: OrderedDict[int, Item] = OrderedDict()

    def put(self, stamp_ns: int, item: Item) -> None:
        self._items[stamp_ns] = item
        while len(self._items) > KEPT:
            self._items.popitem(last=False)

    def get(self, stamp_ns: int) -> Item | None:
        return self._items.get(stamp_ns)

    def newest(self) -> Item | None:
        return next(reversed(self._items.values()), None)

    def __contains__(self, stamp_ns: int) -> bool:
        return stamp_ns in self._items
