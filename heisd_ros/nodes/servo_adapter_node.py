"""Our twists to MoveIt Servo: switches it to twists, keeps its rules, reports its status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.node import Node

from heisd_ros.command.reasons import Reason
from heisd_ros.command.servo import SERVO_STATES, UNKNOWN_STATE, ServoStream
from heisd_ros.config import HeisdConfig
from heisd_ros.errors import ConfigError
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, steady_clock, steady_ns
from heisd_ros.nodes.interfaces import load_interface
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.records import to_diagnostics
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.nodes.servo_peer import ServoSettings, ServoSwitch
from heisd_ros.types import EndEffectorCommand

INVALID = -1
"""Servo's status for a command it cannot use, also because it has not been switched to twists."""
POLL_S = 0.2
SILENT_S = 1.0
"""Servo tells its status in every cycle, unless it is paused, waits for the robot, or hangs."""
NO_STATUS = "no_status"
SETTINGS_DIFFER = "servo_settings_differ"


class ServoAdapterNode(Node):
    """Forwards twists to Servo once Servo takes them.

    Attributes:
        stream: Units, freshness and zeros at the end.
        switch: Whether Servo takes twists.
        settings: Whether Servo means by a number what we mean.
    """

    def __init__(self, *, config: HeisdConfig | None = None, **options: Any) -> None:  # noqa: ANN401
        """Read the configuration, subscribe, and begin to look for Servo.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.

        Raises:
            MissingDependencyError: If moveit_msgs is not installed.
            ConfigError: If our twists go to Servo already, so that the adapter would hear itself.
        """
        super().__init__("servo_adapter_node", **options)
        self.config = read_config(self, config)
        servo = self.config.servo
        self._check_topics(f"{servo.node}/delta_twist_cmds")
        status = load_interface("moveit_msgs/msg/ServoStatus", "the status of MoveIt Servo")
        self.stream = ServoStream(servo, self.config.command)
        self._out = self.create_publisher(
            TwistStamped, f"{servo.node}/delta_twist_cmds", qos.EVENTS
        )
        self._diagnostics = self.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, qos.EVENTS)
        self._code: int | None = None
        self._text = ""
        self._status_ns = 0
        self.create_subscription(status, f"{servo.node}/status", self._on_status, qos.EVENTS)
        self.create_subscription(TwistStamped, topics.TWIST, self._on_twist, qos.EVENTS)
        self.switch = ServoSwitch(self, servo.node, needed=servo.switch_command_type)
        self.settings = ServoSettings(self, servo)
        clock = steady_clock()
        self.create_timer(1.0 / self.config.command.publish_hz, self._tick, clock=clock)
        self.create_timer(POLL_S, self._poll, clock=clock)
        self.create_timer(1.0, self._report, clock=clock)

    def _check_topics(self, servo_topic: str) -> None:
        ours, theirs = map(self.resolve_topic_name, (topics.TWIST, servo_topic))
        if ours == theirs:
            raise ConfigError(
                f"{topics.TWIST} is remapped to {theirs}, where the adapter itself sends; leave it "
                "as it is with the adapter, or remap it and do not start the adapter"
            )

    @property
    def _ready(self) -> bool:
        return self.switch.ready and self.settings.agree(steady_ns())

    def _on_twist(self, message: TwistStamped) -> None:
        twist = convert.twist_to_command(message)
        self._send(self.stream.offer(twist, now_ns(self), steady_ns(), ready=self._ready))

    def _on_status(self, message: Any) -> None:  # noqa: ANN401  (moveit_msgs may be missing)
        code = int(message.code)
        changed = code != self._code
        if changed and not SERVO_STATES.get(code, UNKNOWN_STATE).moves:
            self.stream.counts[Reason.SERVO_HALTED.value] += 1
            self.get_logger().warning(f"MoveIt Servo: {message.message}")
        self._code, self._text, self._status_ns = code, message.message, steady_ns()
        # It stays invalid until the next good twist: that one must not wait for an answer.
        if changed and code == INVALID:
            self.switch.ask_again()

    def _tick(self) -> None:
        if self._ready:
            self._send(self.stream.tick(now_ns(self), steady_ns()))

    def _poll(self) -> None:
        if self.switch.poll(steady_ns()):
            self.stream.counts[Reason.SERVO_REFUSED.value] += 1
        self.settings.poll(steady_ns(), self.switch.servo)

    def _send(self, twist: EndEffectorCommand | None) -> None:
        if twist is not None:
            self._out.publish(convert.command_to_twist(twist))

    def _report(self) -> None:
        level, text = self._judge()
        values = {
            "code": self._code,
            "servo_says": self._text,
            "servo_settings": self.settings.difference or self.settings.state,
            **self.stream.counts,
        }
        name = f"{self.get_name()}: servo"
        self._diagnostics.publish(to_diagnostics(name, level, text, values, now_ns(self)))

    def _judge(self) -> tuple[bytes, str]:
        if self.settings.difference:
            return DiagnosticStatus.ERROR, SETTINGS_DIFFER
        if not self._ready:
            return DiagnosticStatus.WARN, Reason.SERVO_NOT_READY.value
        if self._code is None or steady_ns() - self._status_ns > SILENT_S * 1e9:
            return DiagnosticStatus.WARN, NO_STATUS
        state = SERVO_STATES.get(self._code, UNKNOWN_STATE)
        if not state.moves:
            return DiagnosticStatus.ERROR, state.name
        return (DiagnosticStatus.WARN if state.slowed else DiagnosticStatus.OK), state.name


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: ServoAdapterNode(context=context), args, wait_for_stop)
