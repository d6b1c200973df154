"""End-effector pose in, trajectory metric out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped

from heisd_ros.config import HeisdConfig
from heisd_ros.decode.methods import method_config
from heisd_ros.msg import EpisodeStatus, TrajectoryMetric
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.conversions import metric_to_message, position_of, to_ns
from heisd_ros.nodes.managed import ManagedNode, Status
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.trajectory.metric import TrajectoryMeter


class TrajectoryNode(ManagedNode):
    """Publishes the kinematic metric after every pose."""

    function = "poses"

    def __init__(
        self,
        *,
        config: HeisdConfig | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Declare the parameters.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.
        """
        super().__init__("trajectory_node", config=config, **options)

    def status(self) -> Status:
        """Return the dropped poses by reason."""
        return Status(DiagnosticStatus.OK, "ok", dict(self._meter.drops))

    def _configure(self) -> None:
        self._meter = TrajectoryMeter(method_config(self.config).trajectory)
        self._metric = self.advertise(TrajectoryMetric, topics.TRAJECTORY_METRIC)

    def _activate(self) -> None:
        self._meter.reset()
        self.subscribe(PoseStamped, topics.POSE, self._on_pose, qos.SENSOR)
        self.subscribe(EpisodeStatus, topics.EPISODE_STATUS, self._on_episode_status, qos.EVENTS)

    def _on_pose(self, message: PoseStamped) -> None:
        before = self._meter.drops.copy()
        frame_id = message.header.frame_id
        metric = self._meter.update(position_of(message), to_ns(message.header.stamp), frame_id)
        reason = ",".join(self._meter.drops - before)
        self._metric.publish(metric_to_message(metric, frame_id, reason))

    def _on_episode_status(self, message: EpisodeStatus) -> None:
        if message.done:
            self._meter.reset()


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: TrajectoryNode(context=context), args, wait_for_stop)
