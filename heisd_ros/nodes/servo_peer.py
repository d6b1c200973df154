"""What is asked of MoveIt Servo: to take twists, and what its numbers mean."""

from __future__ import annotations

from functools import partial
from typing import Any

from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python

from heisd_ros.command.servo import settings_difference
from heisd_ros.config import ServoConfig
from heisd_ros.nodes.interfaces import load_interface

ANSWER_S = 2.0
"""A switch without an answer after this long is asked for again; parameters are waited for."""


class ServoSwitch:
    """Asks Servo to take twists: when it appears, when it has been restarted, when it refuses them.

    Attributes:
        ready: Whether Servo has agreed, or needs no asking.
        servo: The running Servo, as its status topic shows it: another one after a restart.
    """

    def __init__(self, node: Node, servo: str, *, needed: bool) -> None:
        """Make the client.

        Args:
            node: Owner.
            servo: Name of Servo's node.
            needed: False for a Servo without this service; it is taken for ready then.

        Raises:
            MissingDependencyError: If it is needed and moveit_msgs is not installed.
        """
        self.ready = not needed
        self._needed = needed
        self._node, self._status_topic = node, f"{servo}/status"
        self._asked_ns: int | None = None
        self.servo: frozenset[bytes] = frozenset()
        self._refused = self._doubtful = False
        if needed:
            kind = load_interface("moveit_msgs/srv/ServoCommandType", "switching MoveIt Servo")
            self._kind = kind
            self._client = node.create_client(kind, f"{servo}/switch_command_type")

    def ask_again(self) -> None:
        """Ask at the next poll, since Servo may take something else now; twists go on meanwhile."""
        self._doubtful = True

    def poll(self, now_ns: int) -> bool:
        """Ask if that is due; return True if Servo has refused since the last poll.

        Args:
            now_ns: Time on a clock that never jumps, nanoseconds.
        """
        endpoints = self._node.get_publishers_info_by_topic(self._status_topic)
        servo = frozenset(bytes(endpoint.endpoint_gid) for endpoint in endpoints)
        changed, self.servo = servo != self.servo, servo
        if self._needed:
            self._ask_if_due(now_ns, changed=changed)
        refused, self._refused = self._refused, False
        return refused

    def _ask_if_due(self, now_ns: int, *, changed: bool) -> None:
        there = self._client.service_is_ready()
        if changed or not there:
            self.ready = False
        waiting = self._asked_ns is not None and now_ns - self._asked_ns < ANSWER_S * 1e9
        if waiting or not there or (self.ready and not self._doubtful):
            return
        self._asked_ns, self._doubtful = now_ns, False
        request = self._kind.Request(command_type=self._kind.Request.TWIST)
        self._client.call_async(request).add_done_callback(partial(self._on_answer, self.servo))

    def _on_answer(self, servo: frozenset[bytes], future: Any) -> None:  # noqa: ANN401
        agreed = bool(future.result().success)
        self._refused = not agreed
        if agreed:
            self._asked_ns = None
        self.ready = agreed and servo == self.servo


class ServoSettings:
    """Reads the parameters of Servo that say what a number means, and compares them with ours.

    Other units or, without units, other scales would make another speed, and nobody would be told.
    A Servo that does not answer is taken at its word, the configuration's.

    Attributes:
        difference: What differs; empty if nothing does, or nothing is known yet.
        state: `unknown`, `not_told` or `agree`.
    """

    NAMES = ("command_in_type", "scale.linear", "scale.rotational")

    def __init__(self, node: Node, servo: ServoConfig) -> None:
        """Make the client.

        Args:
            node: Owner.
            servo: What is configured.
        """
        self.difference, self.state = "", "unknown"
        self._node, self._config = node, servo
        self._client = node.create_client(GetParameters, f"{servo.node}/get_parameters")
        self._servo: frozenset[bytes] = frozenset()
        self._seen_ns: int | None = None
        self._asked = False

    def agree(self, now_ns: int) -> bool:
        """Return whether twists may go out: nothing differs, and Servo had time to say so."""
        if self.difference or self.state != "unknown":
            return not self.difference
        return self._seen_ns is None or now_ns - self._seen_ns >= ANSWER_S * 1e9

    def poll(self, now_ns: int, servo: frozenset[bytes]) -> None:
        """Ask every Servo once.

        Args:
            now_ns: Time on a clock that never jumps, nanoseconds.
            servo: The running Servo.
        """
        if servo != self._servo:
            self._servo, self._asked = servo, False
            self._seen_ns = now_ns if servo else None
            self.difference, self.state = "", "unknown"
        if self._asked or not servo or not self._client.service_is_ready():
            return
        self._asked = True
        request = GetParameters.Request(names=[f"moveit_servo.{name}" for name in self.NAMES])
        self._client.call_async(request).add_done_callback(partial(self._on_answer, servo))

    def _on_answer(self, servo: frozenset[bytes], future: Any) -> None:  # noqa: ANN401
        if servo != self._servo:
            return
        values = future.result().values
        told = [parameter_value_to_python(value) for value in values]
        if len(told) < len(self.NAMES) or None in told:
            self.state = "not_told"
            return
        self.difference, self.state = settings_difference(*told, ours=self._config), "agree"
        if self.difference:
            self._node.get_logger().error(f"nothing is sent to MoveIt Servo: {self.difference}")
