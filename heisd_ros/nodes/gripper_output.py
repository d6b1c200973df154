"""The wanted opening as a real gripper controller takes it: a topic or an action, never waited for.

`gripper_cmd` is published in any case; this is for controllers that do not know our message.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from rclpy.action.client import ActionClient
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from heisd_ros.command.gripper_goals import GripperGoals, outcome
from heisd_ros.command.reasons import Reason
from heisd_ros.config import GripperConfig
from heisd_ros.nodes import qos
from heisd_ros.nodes.clock import steady_clock, steady_ns
from heisd_ros.nodes.interfaces import load_interface

POLL_S = 0.05
"""How often absent, late and changed goals are looked after."""

Done = Callable[[Reason | None], None]


class Sender(Protocol):
    """One way to a gripper controller."""

    def present(self) -> bool:
        """Return whether somebody is there to take a goal."""

    def send(self, position: float, done: Done) -> None:
        """Send a goal; `done` is called once it has ended, with why it failed or None."""

    def cancel(self) -> None:
        """Ask for an early end of the goal."""

    def destroy(self) -> None:
        """Free publisher or client."""


class GripperOutput:
    """Sends the wanted opening to the configured controller.

    Attributes:
        counts: How often each reason occurred; shown in the diagnostics.
    """

    def __init__(self, node: Node, config: GripperConfig) -> None:
        """Make publisher or client; nothing is sent before the first `want`.

        Args:
            node: Whose executor serves the answers.
            config: Which controller, and its positions.

        Raises:
            MissingDependencyError: If the message package of the controller is not installed.
        """
        self.counts: Counter[str] = Counter()
        self._node, self._config = node, config
        self._goals = GripperGoals(round(config.deadline_s * 1e9))
        self._lock = threading.RLock()
        self._sender = _make_sender(node, config)
        self._timer = node.create_timer(POLL_S, self._step, clock=steady_clock())

    def want(self, opening: float) -> None:
        """Set the wanted opening, [0, 1]; from any thread, returns at once."""
        with self._lock:
            self._goals.want(opening)

    def close(self) -> None:
        """Ask for the end of an outstanding goal, wait for nothing, and free everything."""
        with self._lock:
            self._node.destroy_timer(self._timer)
            if self._goals.outstanding is not None:
                self._sender.cancel()
            self._sender.destroy()

    def _step(self) -> None:
        with self._lock:
            now_ns = steady_ns()
            if self._goals.expired(now_ns):
                self._sender.cancel()
                self._failed(Reason.GRIPPER_DEADLINE)
            if self._goals.should_cancel:
                self._sender.cancel()
            opening = self._goals.next_goal(now_ns, present=self._sender.present())
            absence = self._goals.absence()
            if absence is not None:
                self._failed(absence)
            if opening is not None:
                done = partial(self._on_done, self._goals.outstanding)
                self._sender.send(position_of(opening, self._config), done)

    def _on_done(self, number: int | None, reason: Reason | None) -> None:
        with self._lock:
            if self._goals.ended(number) and reason is not None:
                self._failed(reason)

    def _failed(self, reason: Reason) -> None:
        self.counts[reason.value] += 1
        target = f"{self._config.controller} ({self._config.output})"
        self._node.get_logger().warning(f"gripper: {reason.value}, {target}")


class TopicSender:
    """A controller that takes positions from a topic; a published goal has ended."""

    def __init__(self, node: Node, kind: Any, topic: str, make: Callable[[float], Any]) -> None:  # noqa: ANN401
        """Make the publisher.

        Args:
            node: Owner.
            kind: Message class.
            topic: Name.
            make: Position to message.
        """
        self._node, self._make = node, make
        self._publisher = node.create_publisher(kind, topic, qos.EVENTS)

    def present(self) -> bool:
        """Return whether the controller subscribes."""
        return bool(self._publisher.get_subscription_count() > 0)

    def send(self, position: float, done: Done) -> None:
        """Publish."""
        self._publisher.publish(self._make(position))
        done(None)

    def cancel(self) -> None:
        """Do nothing: a published position cannot be taken back."""

    def destroy(self) -> None:
        """Free the publisher."""
        self._node.destroy_publisher(self._publisher)


class ActionSender:
    """A controller with an action: answers arrive on the node's executor."""

    def __init__(self, node: Node, kind: Any, name: str, make: Callable[[float], Any]) -> None:  # noqa: ANN401
        """Make the client.

        Args:
            node: Owner.
            kind: Action class.
            name: Name.
            make: Position to goal.
        """
        self._make = make
        self._status = load_interface("action_msgs/msg/GoalStatus", "gripper actions")
        self._client = ActionClient(node, kind, name)
        self._handle: Any = None
        self._cancelled = False

    def present(self) -> bool:
        """Return whether the server is there."""
        return bool(self._client.server_is_ready())

    def send(self, position: float, done: Done) -> None:
        """Send the goal; acceptance and result come later."""
        self._handle, self._cancelled = None, False
        future = self._client.send_goal_async(self._make(position))
        future.add_done_callback(partial(self._on_answer, done))

    def cancel(self) -> None:
        """Ask for cancellation once, as soon as the goal has been accepted."""
        if self._handle is not None and not self._cancelled:
            self._cancelled = True
            self._handle.cancel_goal_async()

    def destroy(self) -> None:
        """Free the client."""
        self._client.destroy()

    def _on_answer(self, done: Done, future: Any) -> None:  # noqa: ANN401  (a rclpy future)
        handle = future.result()
        if handle is None or not handle.accepted:
            done(Reason.GRIPPER_REJECTED)
            return
        self._handle = handle
        handle.get_result_async().add_done_callback(partial(self._on_result, done))

    def _on_result(self, done: Done, future: Any) -> None:  # noqa: ANN401  (a rclpy future)
        answer = future.result()
        done(
            outcome(
                succeeded=answer.status == self._status.STATUS_SUCCEEDED,
                cancelled=answer.status == self._status.STATUS_CANCELED,
                stalled=answer.result.stalled,
                reached=answer.result.reached_goal,
            )
        )


def make_gripper_output(node: Node, config: GripperConfig) -> GripperOutput | None:
    """Return the configured output; None if only the `gripper_cmd` topic is wanted.

    Raises:
        MissingDependencyError: If the message package of the controller is not installed.
    """
    return None if config.output == "none" else GripperOutput(node, config)


def position_of(opening: float, config: GripperConfig) -> float:
    """Return the joint position of an opening in [0, 1], metres or radians."""
    return config.closed_position + opening * (config.open_position - config.closed_position)


def _make_sender(node: Node, config: GripperConfig) -> Sender:
    why = f"gripper.output: {config.output}"
    if config.output == "float64_multi_array":
        topic = f"{config.controller}/commands"
        return TopicSender(node, Float64MultiArray, topic, partial(_array, config))
    if config.output == "joint_trajectory":
        kind = load_interface("trajectory_msgs/msg/JointTrajectory", why)
        point = load_interface("trajectory_msgs/msg/JointTrajectoryPoint", why)
        topic = f"{config.controller}/joint_trajectory"
        return TopicSender(node, kind, topic, partial(_trajectory, config, kind, point))
    type_name = {
        "parallel_gripper_action": "ParallelGripperCommand",
        "gripper_action": "GripperCommand",
    }[config.output]
    kind = load_interface(f"control_msgs/action/{type_name}", why)
    make = _parallel_goal if config.output == "parallel_gripper_action" else _gripper_goal
    return ActionSender(node, kind, f"{config.controller}/gripper_cmd", partial(make, config, kind))


def _array(config: GripperConfig, position: float) -> Float64MultiArray:
    return Float64MultiArray(data=[position] * len(config.joints))


def _trajectory(config: GripperConfig, kind: Any, point: Any, position: float) -> Any:  # noqa: ANN401
    # Stamp zero: the controller begins when it gets the message.
    target = point(positions=[position] * len(config.joints))
    target.time_from_start.sec = int(config.move_time_s)
    target.time_from_start.nanosec = round(config.move_time_s % 1.0 * 1e9)
    return kind(joint_names=list(config.joints), points=[target])


def _parallel_goal(config: GripperConfig, kind: Any, position: float) -> Any:  # noqa: ANN401
    joints = len(config.joints)
    command = JointState(name=list(config.joints), position=[position] * joints)
    command.effort = [config.max_effort] * joints
    return kind.Goal(command=command)


def _gripper_goal(config: GripperConfig, kind: Any, position: float) -> Any:  # noqa: ANN401
    goal = kind.Goal()
    goal.command.position, goal.command.max_effort = position, config.max_effort
    return goal
