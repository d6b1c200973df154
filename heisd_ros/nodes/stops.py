"""Emergency stop, dead man's switch, arming: heard by a node for as long as it exists."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.node import Node
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from heisd_ros.command.arming import Arming
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import steady_ns


class StopInputs:
    """Feeds the arming state from topics and services.

    Each topic is subscribed once per kind of publisher, because no single subscription hears
    them all: best effort, reliable, and latched. A state heard twice changes nothing.
    """

    def __init__(self, node: Node, arming: Arming, on_stop: Callable[[], None]) -> None:
        """Subscribe and serve.

        Args:
            node: Owner.
            arming: The state to feed.
            on_stop: Called after everything that may have ended a motion, to say so at once.
        """
        self._node, self._arming, self._on_stop = node, arming, on_stop
        for topic, callback in ((topics.ESTOP, self._estop), (topics.DEADMAN, self._deadman)):
            for profile in (qos.SENSOR, qos.EVENTS, qos.LATCHED):
                node.create_subscription(Bool, topic, callback, profile)
        node.create_service(Trigger, topics.ARM, self._arm)
        node.create_service(Trigger, topics.DISARM, self._disarm)

    def _estop(self, message: Bool) -> None:
        was_armed = self._arming.armed
        self._arming.estop(message.data, steady_ns())
        if message.data:
            self._on_stop()
            if was_armed:
                self._node.get_logger().warning("emergency stop; arm again after its release")

    def _deadman(self, message: Bool) -> None:
        self._arming.deadman(message.data, steady_ns())
        if not message.data:
            self._on_stop()

    def _arm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:  # noqa: ARG002
        refusal = self._arming.arm(steady_ns())
        response.success = refusal is None
        response.message = "armed: decisions move the arm" if refusal is None else refusal.value
        self._node.get_logger().warning(f"arm: {response.message}")
        return response

    def _disarm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:  # noqa: ARG002
        self._arming.disarm()
        self._on_stop()
        response.success, response.message = True, "dry run: nothing moves until armed"
        return response
