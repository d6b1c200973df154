"""Our twists to MoveIt Servo: switches it to twists, keeps its rules, reports its status."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.node import Node

from heisd_ros.command.reasons import Reason
from heisd_ros.command.servo import SERVO_STATES, UNKNOWN_STATE, ServoStream
from heisd_ros.config import HeisdConfig
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, steady_clock, steady_ns
from heisd_ros.nodes.interfaces import load_interface
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.records import to_diagnostics
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.types import EndEffectorCommand

INVALID = -1
"""Servo's status for a command it cannot use, also because it has not been switched to twists."""
POLL_S = 0.2
ANSWER_S = 2.0
"""A switch without an answer after this long is asked for again."""


class ServoAdapterNode(Node):
    """Forwards twists to Servo once Servo takes them.

    Attributes:
        stream: Units, freshness and zeros at the end.
        switch: Whether Servo takes twists.
    """

    def __init__(self, *, config: HeisdConfig | None = None, **options: Any) -> None:  # noqa: ANN401
        """Read the configuration, subscribe, and begin to look for Servo.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.

        Raises:
            MissingDependencyError: If moveit_msgs is not installed.
        """
        super().__init__("servo_adapter_node", **options)
        self.config = read_config(self, config)
        servo = self.config.servo
        status = load_interface("moveit_msgs/msg/ServoStatus", "the status of MoveIt Servo")
        self.stream = ServoStream(servo, self.config.command)
        self._out = self.create_publisher(
            TwistStamped, f"{servo.node}/delta_twist_cmds", qos.EVENTS
        )
        self._diagnostics = self.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, qos.EVENTS)
        self._code: int | None = None
        self._text = ""
        self.create_subscription(status, f"{servo.node}/status", self._on_status, qos.EVENTS)
        self.create_subscription(TwistStamped, topics.TWIST, self._on_twist, qos.EVENTS)
        self.switch = ServoSwitch(self, servo.node, needed=servo.switch_command_type)
        clock = steady_clock()
        self.create_timer(1.0 / self.config.command.publish_hz, self._tick, clock=clock)
        self.create_timer(POLL_S, self._poll, clock=clock)
        self.create_timer(1.0, self._report, clock=clock)

    def _on_twist(self, message: TwistStamped) -> None:
        twist = convert.twist_to_command(message)
        self._send(self.stream.offer(twist, now_ns(self), steady_ns(), ready=self.switch.ready))

    def _on_status(self, message: Any) -> None:  # noqa: ANN401  (moveit_msgs may be missing)
        code = int(message.code)
        halted = not SERVO_STATES.get(code, UNKNOWN_STATE).moves
        if halted and code != self._code:
            self.stream.counts[Reason.SERVO_HALTED.value] += 1
            self.get_logger().warning(f"MoveIt Servo: {message.message}")
        self._code, self._text = code, message.message
        if code == INVALID:
            self.switch.ask_again()

    def _tick(self) -> None:
        if self.switch.ready:
            self._send(self.stream.tick(now_ns(self), steady_ns()))

    def _poll(self) -> None:
        if self.switch.poll(steady_ns()):
            self.stream.counts[Reason.SERVO_REFUSED.value] += 1

    def _send(self, twist: EndEffectorCommand | None) -> None:
        if twist is not None:
            self._out.publish(convert.command_to_twist(twist))

    def _report(self) -> None:
        state = SERVO_STATES.get(self._code, UNKNOWN_STATE) if self._code is not None else None
        level, text = DiagnosticStatus.OK, "no_status" if state is None else state.name
        if not self.switch.ready:
            level, text = DiagnosticStatus.WARN, Reason.SERVO_NOT_READY.value
        elif state is not None and not state.moves:
            level = DiagnosticStatus.ERROR
        elif state is None or state.slowed:
            level = DiagnosticStatus.WARN
        values = {"code": self._code, "servo_says": self._text, **self.stream.counts}
        name = f"{self.get_name()}: servo"
        self._diagnostics.publish(to_diagnostics(name, level, text, values, now_ns(self)))


class ServoSwitch:
    """Asks Servo to take twists: when it appears, when it has been restarted, when it refuses them.

    Attributes:
        ready: Whether Servo has agreed, or needs no asking.
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
        self._servo: frozenset[bytes] = frozenset()
        self._refused = False
        if needed:
            kind = load_interface("moveit_msgs/srv/ServoCommandType", "switching MoveIt Servo")
            self._kind = kind
            self._client = node.create_client(kind, f"{servo}/switch_command_type")

    def ask_again(self) -> None:
        """Take Servo for one that has to be asked: it may have been restarted."""
        if self._needed:
            self.ready = False

    def poll(self, now_ns: int) -> bool:
        """Ask if that is due; return True if Servo has refused since the last poll.

        Args:
            now_ns: Time on a clock that never jumps, nanoseconds.
        """
        if self._needed:
            self._look(now_ns)
        refused, self._refused = self._refused, False
        return refused

    def _look(self, now_ns: int) -> None:
        endpoints = self._node.get_publishers_info_by_topic(self._status_topic)
        servo = frozenset(bytes(endpoint.endpoint_gid) for endpoint in endpoints)
        if servo != self._servo or not self._client.service_is_ready():
            self._servo, self.ready = servo, False
        waiting = self._asked_ns is not None and now_ns - self._asked_ns < ANSWER_S * 1e9
        if self.ready or waiting or not self._client.service_is_ready():
            return
        self._asked_ns = now_ns
        request = self._kind.Request(command_type=self._kind.Request.TWIST)
        self._client.call_async(request).add_done_callback(partial(self._on_answer, servo))

    def _on_answer(self, servo: frozenset[bytes], future: Any) -> None:  # noqa: ANN401
        agreed = bool(future.result().success)
        self._refused = not agreed
        if agreed:
            self._asked_ns = None
            self.ready = servo == self._servo


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: ServoAdapterNode(context=context), args, wait_for_stop)
