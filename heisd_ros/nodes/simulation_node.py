"""The simulated robot: pictures and state out, twist and gripper command in."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from geometry_msgs.msg import PoseStamped, TwistStamped
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String

from heisd_ros.build import build_environment
from heisd_ros.command.command import zero_command
from heisd_ros.config import HeisdConfig
from heisd_ros.msg import DecodeReport, EpisodeStatus, GripperCommand
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.lockstep import CommandMatcher, EpisodeClock, restamp
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.records import message_to_report, to_episode_status
from heisd_ros.nodes.runtime import run_node
from heisd_ros.protocols import Environment
from heisd_ros.types import EndEffectorCommand, EpisodeOutcome, Observation

RESEND_S = 1.0
"""Wall time after which an unanswered picture is sent again: its first copy may have been lost."""

ACKNOWLEDGE_S = 2.0
"""Longest wait, wall time, for the decoder to close its episode."""

POLL_S = 0.02


class SimulationNode(Node):
    """Plays episodes of an environment over topics.

    In lockstep each control step waits for the command that was decided from exactly its picture,
    so an episode over topics equals one by direct calls. In realtime the arm takes the newest
    command, however old its picture is.

    Attributes:
        counts: Time-outs and refused commands.
    """

    def __init__(
        self,
        *,
        config: HeisdConfig | None = None,
        environment: Environment | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Read the configuration, publish and subscribe; the environment is made when first used.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            environment: None builds the configured one, in the thread that plays the episodes.
            options: Passed on to rclpy.
        """
        super().__init__("simulation_node", **options)
        self.config = read_config(self, config)
        self.counts: Counter[str] = Counter()
        self._environment = environment
        self._episode_clock: EpisodeClock | None = None
        self._matcher = CommandMatcher()
        self._publish_topics()
        for kind, topic, callback in (
            (DecodeReport, topics.DECODE_REPORT, self._matcher.offer_report),
            (TwistStamped, topics.TWIST, self._matcher.offer_twist),
            (GripperCommand, topics.GRIPPER, self._matcher.offer_gripper),
        ):
            self.create_subscription(kind, topic, callback, qos.EVENTS)

    def _publish_topics(self) -> None:
        cameras = self.config.perception.cameras
        self._time = self.create_publisher(Clock, topics.CLOCK, qos.EVENTS)
        self._images = {
            camera: self.create_publisher(Image, topics.image_topic(camera), qos.FEATURES)
            for camera in cameras
        }
        self._pose = self.create_publisher(PoseStamped, topics.POSE, qos.EVENTS)
        self._joints = self.create_publisher(JointState, topics.JOINT_STATES, qos.EVENTS)
        self._instruction = self.create_publisher(String, topics.INSTRUCTION, qos.EVENTS)
        self._status = self.create_publisher(EpisodeStatus, topics.EPISODE_STATUS, qos.EVENTS)

    def play_episode(self, init: int, stop: threading.Event) -> EpisodeOutcome:
        """Play one episode; the calling thread must be the same for all episodes.

        Args:
            init: Number of the initial state.
            stop: Ends the episode early.
        """
        environment = self.environment()
        clock = self._episode_clock = self._episode_clock or EpisodeClock(environment.control_hz)
        clock.next_episode()
        self._publish_time()
        self._await_listeners(stop)
        self._matcher.drain_reports()
        steps, success, crash = 0, False, ""
        try:
            observation = environment.reset(init)
            for steps in range(1, self.config.simulation.max_steps + 1):
                command = self._exchange(environment, restamp(observation, clock.now_ns), stop)
                if stop.is_set():
                    break
                outcome = environment.step(command)
                clock.tick()
                observation, success = outcome.observation, outcome.success
                self._publish_status(environment, init, steps, success)
                if success:
                    break
        except Exception as error:
            self.get_logger().error(f"episode ended in {type(error).__name__}: {error}")
            crash = f"{type(error).__name__}: {error}"
        reason = _reason(success, crash, stop)
        self._finish(environment, init, steps, success=success, reason=reason)
        reports = tuple(message_to_report(report) for report in self._matcher.drain_reports())
        return EpisodeOutcome(environment.instruction, init, success, steps, crash, reports)

    def environment(self) -> Environment:
        """Return the environment, made on the first call."""
        if self._environment is None:
            self._environment = build_environment(self.config)
        return self._environment

    def close(self) -> None:
        """Free the environment; from the thread that plays the episodes."""
        if self._environment is not None:
            self._environment.close()

    def _exchange(
        self, environment: Environment, observation: Observation, stop: threading.Event
    ) -> EndEffectorCommand:
        """Show the robot's state and return what the arm shall do in the next control period."""
        started = time.monotonic()
        self._publish(environment, observation)
        if self.config.simulation.clock == "lockstep":
            return self._await_command(environment, observation, stop)
        period_s = 1.0 / (environment.control_hz * self.config.simulation.factor)
        stop.wait(max(0.0, started + period_s - time.monotonic()))
        lifetime_ns = round(self.config.command.lifetime_s * convert.SECOND_NS)
        command = self._matcher.newest(observation.stamp_ns, lifetime_ns)
        return command or self._rest("no_command", observation)

    def _await_command(
        self, environment: Environment, observation: Observation, stop: threading.Event
    ) -> EndEffectorCommand:
        deadline = time.monotonic() + self.config.simulation.timeout_s
        resend = time.monotonic() + RESEND_S
        while not stop.is_set() and time.monotonic() < deadline:
            answer = self._matcher.wait_for_answer(observation.stamp_ns, RESEND_S / 10)
            if answer is not None:
                return answer.command
            if time.monotonic() > resend:
                self.counts["resent"] += 1
                self._publish(environment, observation)
                resend = time.monotonic() + RESEND_S
        return self._rest("decision_timeout", observation)

    def _rest(self, reason: str, observation: Observation) -> EndEffectorCommand:
        """Return the command of an arm that hears nothing: no motion, fingers as they are."""
        self.counts[reason] += 1
        state = observation.proprioception
        opening = 1.0 if state is None else state.gripper_opening
        return zero_command(self.config.command.frame_id, opening, stamp_ns=observation.stamp_ns)

    def _publish(self, environment: Environment, observation: Observation) -> None:
        command, state = self.config.command, observation.proprioception
        self._publish_time()
        self._instruction.publish(String(data=environment.instruction))
        if state is not None:
            fingers = self.config.ros.finger_joints
            self._joints.publish(
                convert.proprioception_to_joints(state, fingers, command.gripper_max_m)
            )
            self._pose.publish(convert.proprioception_to_pose(state))
        for frame in observation.frames:
            if frame.camera in self._images:
                message = convert.frame_to_image(frame, f"{frame.camera}_optical_frame")
                self._images[frame.camera].publish(message)

    def _publish_time(self) -> None:
        if self._episode_clock is not None:
            self._time.publish(Clock(clock=convert.to_stamp(self._episode_clock.now_ns)))

    def _publish_status(
        self,
        environment: Environment,
        init: int,
        step: int,
        success: bool,
        *,
        done: bool = False,
        reason: str = "",
    ) -> int:
        stamp_ns = self._episode_clock.now_ns if self._episode_clock is not None else 0
        simulation = self.config.simulation
        status = to_episode_status(
            stamp_ns,
            suite=simulation.suite,
            task=simulation.task,
            init=init,
            instruction=environment.instruction,
            step=step,
            success=success,
            done=done,
            reason=reason,
        )
        self._status.publish(status)
        return stamp_ns

    def _finish(
        self, environment: Environment, init: int, steps: int, *, success: bool, reason: str
    ) -> None:
        """Announce the end and wait until the decoder has learned from it."""
        stamp_ns = self._publish_status(environment, init, steps, success, done=True, reason=reason)
        lockstep = self.config.simulation.clock == "lockstep"
        if lockstep and self._matcher.wait_for_report(stamp_ns, ACKNOWLEDGE_S) is None:
            self.counts["end_not_acknowledged"] += 1
            self.get_logger().warning("the decoder did not close its episode in time")

    def _await_listeners(self, stop: threading.Event) -> None:
        """Wait until perception, trajectory and decoder have found our topics and we theirs."""
        while (missing := self._missing()) and not stop.is_set():
            self.get_logger().info(f"waiting for {missing}", throttle_duration_sec=5.0)
            self._publish_time()
            stop.wait(POLL_S)

    def _missing(self) -> str:
        heard = (*self._images.values(), self._pose, self._joints, self._instruction, self._status)
        silent = [item.topic_name for item in heard if not item.get_subscription_count()]
        silent += [item.topic_name for item in self.subscriptions if not _publishers(item)]
        return ", ".join(silent)


def _publishers(subscription: Any) -> bool:  # noqa: ANN401  (rclpy.subscription.Subscription)
    # The node's own subscriptions include those that rclpy makes for parameters.
    return bool(subscription.get_publisher_count())


def _reason(success: bool, crash: str, stop: threading.Event) -> str:
    if success:
        return "success"
    if crash:
        return "crash"
    return "interrupted" if stop.is_set() else "max_steps"


def play_configured(node: SimulationNode, stop: threading.Event) -> int:
    """Play the configured number of episodes, counting the initial state up.

    Returns:
        Exit code: 0 if every episode succeeded or the process was told to stop.
    """
    simulation = node.config.simulation
    played, failed = 0, 0
    while not stop.is_set() and (played < simulation.episodes or not simulation.episodes):
        outcome = node.play_episode(simulation.init + played, stop)
        played += 1
        failed += not outcome.success
        node.get_logger().info(
            f"episode {played}: {'success' if outcome.success else 'failure'} "
            f"after {outcome.steps} steps"
        )
    return 0 if stop.is_set() else int(failed > 0)


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: SimulationNode(context=context), args, play_configured)
