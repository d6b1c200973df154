"""Everything a decoder says: commands one at a time, each told to the guard; then the report."""

from __future__ import annotations

import dataclasses
import threading
from functools import partial

from geometry_msgs.msg import TwistStamped

from heisd_ros.config import CommandConfig
from heisd_ros.decode.pilot import Decision, Pilot
from heisd_ros.msg import DecodeReport, GripperCommand
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import topics
from heisd_ros.nodes.clock import StampSource, now_ns
from heisd_ros.nodes.gripper_output import GripperOutput
from heisd_ros.nodes.managed import ManagedNode
from heisd_ros.nodes.records import decision_to_report, episode_end_report


class CommandOutput:
    """The only publisher of commands, for the deciding thread, the node's and whoever ends it.

    Order on the wire is the order in which the pilot gave the commands out: no other lock is taken
    and nothing but a command is published in between, so that a stop waits for one command at most.
    """

    def __init__(
        self,
        node: ManagedNode,
        pilot: Pilot,
        config: CommandConfig,
        gripper: GripperOutput | None,
    ) -> None:
        """Make the publishers, until the node is cleaned up; nothing is said before `open`.

        Args:
            node: Owner.
            pilot: Says what may be sent.
            config: What the gripper topic carries.
            gripper: A controller that takes goals; None if there is none.
        """
        self._pilot, self._config, self._controller = pilot, config, gripper
        self._wire = threading.Lock()
        self._is_open = False
        self._stamps = StampSource(partial(now_ns, node))
        self._sequence = 0
        self._twist = node.advertise(TwistStamped, topics.TWIST)
        self._gripper = node.advertise(GripperCommand, topics.GRIPPER)
        self._wanted = node.advertise(TwistStamped, topics.WANTED)
        self._report = node.advertise(DecodeReport, topics.DECODE_REPORT)

    @property
    def moving_topics(self) -> tuple[str, ...]:
        """Full names of the topics that move the arm."""
        return (self._twist.topic_name, self._gripper.topic_name)

    def open(self) -> None:
        """Let commands out."""
        self._is_open = True

    def close(self) -> None:
        """Let nothing out any more; a command that is on its way has left when this returns."""
        with self._wire:
            self._is_open = False

    def say(self, decision: Decision | None = None) -> int | None:
        """Publish what the pilot wants to be said now.

        Args:
            decision: A new one, to be said if it still may.

        Returns:
            The stamp, nanoseconds, on the node's clock; None if nothing is let out.
        """
        with self._wire:
            if not self._is_open:
                return None
            stamp_ns = self._stamps.next_ns()
            command = self._pilot.next_command(stamp_ns, decision)
            if command is not None:
                self._twist.publish(convert.command_to_twist(command))
                self._gripper.publish(convert.command_to_gripper(command, self._config))
            return stamp_ns

    def tell(self, decision: Decision, stamp_ns: int) -> None:
        """Publish what was decided though it may not move; the gripper gets what does move.

        Args:
            decision: The one that was said last; from the deciding thread.
            stamp_ns: The stamp it was said with, nanoseconds.
        """
        if decision.wanted is not None:
            wanted = dataclasses.replace(decision.wanted, stamp_ns=stamp_ns)
            self._wanted.publish(convert.command_to_twist(wanted))
        if self._controller is not None and decision.moves and not self._pilot.hold_reason:
            self._controller.want(decision.command.gripper)
        self._report.publish(decision_to_report(decision, stamp_ns, self._sequence))
        self._sequence += 1

    def tell_end(self, ended_ns: int) -> None:
        """Publish that an episode has ended; from the deciding thread.

        Args:
            ended_ns: Stamp of the last status of the episode, nanoseconds.
        """
        with self._wire:
            if not self._is_open:
                return
            stamp_ns = self._stamps.next_ns()
        self._report.publish(episode_end_report(ended_ns, stamp_ns))
