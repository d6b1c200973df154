"""Reports, metric and diagnostics of a running robot into a `LiveState`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from heisd_ros.diagnosis.live import LiveDecision, LiveState, LiveStatus
from heisd_ros.msg import DecodeReport, TrajectoryMetric
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import steady_ns
from heisd_ros.nodes.records import EPISODE_END, message_to_report
from heisd_ros.nodes.runtime import ros_context


class LiveNode(Node):
    """Subscribes; the state is only touched while the node is spun."""

    def __init__(self, state: LiveState, context: Context) -> None:
        """Subscribe."""
        super().__init__("heisd_monitor", context=context)
        self._state = state
        self.create_subscription(DecodeReport, topics.DECODE_REPORT, self._on_report, qos.EVENTS)
        self.create_subscription(
            TrajectoryMetric, topics.TRAJECTORY_METRIC, self._on_metric, qos.EVENTS
        )
        self.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_status, qos.EVENTS)

    def _on_report(self, message: DecodeReport) -> None:
        if message.reason == EPISODE_END:
            return
        age_ns = convert.to_ns(message.header.stamp) - convert.to_ns(message.image_stamp)
        self._state.offer_decision(
            LiveDecision(
                at_ns=steady_ns(),
                report=message_to_report(message),
                decided=message.decided,
                picture_age_s=age_ns * 1e-9,
                instruction=message.instruction,
                guard=message.guard,
            )
        )

    def _on_metric(self, message: TrajectoryMetric) -> None:
        self._state.offer_fused(message.fused, steady_ns())

    def _on_status(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.hardware_id == "heisd_ros":
                values = {pair.key: pair.value for pair in status.values}
                level = int.from_bytes(status.level, "big")
                self._state.offer_status(status.name, LiveStatus(level, status.message, values))


@contextmanager
def listening(state: LiveState, ros: Sequence[str]) -> Iterator[Callable[[float], None]]:
    """Listen into a state; what is yielded spins for so many seconds.

    Args:
        state: Filled while spinning.
        ros: Command line from `--ros-args` on.
    """
    with ros_context(list(ros)) as context:
        node = LiveNode(state, context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)

        def spin(seconds: float) -> None:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0.0:
                executor.spin_once(timeout_sec=left)

        try:
            yield spin
        finally:
            executor.shutdown()
            node.destroy_node()
