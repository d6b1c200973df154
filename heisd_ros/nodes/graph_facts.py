"""Listens to a running ROS graph for a while and says what was seen, for `heisd doctor`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from rclpy.utilities import get_rmw_implementation_identifier
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image, JointState

from heisd_ros.config import HeisdConfig
from heisd_ros.diagnosis.facts import BEST_EFFORT, RELIABLE, GraphFacts, PeerFacts, TopicFacts
from heisd_ros.errors import HeisdError
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, uses_sim_time

NAME = "heisd_doctor"
IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
KEPT = 1000
"""Stamps kept of one topic."""
OUR_STATUSES = (
    *("perception_node", "trajectory_node", "decoder_node", "heisd_node"),
    "servo_adapter_node",
)
Describe = Callable[[Any], dict[str, str]]


@dataclass
class _Heard:
    """What arrived on one topic so far."""

    received: int = 0
    stamps_ns: list[int] = field(default_factory=list)
    ages_ns: list[int] = field(default_factory=list)
    frame_id: str = ""
    values: dict[str, str] = field(default_factory=dict)


def gather_graph(config: HeisdConfig, context: Context, seconds: float) -> GraphFacts:
    """Listen to the topics of a configuration.

    Args:
        config: Of the nodes that shall run.
        context: Initialised with the nodes' remappings.
        seconds: How long to listen.
    """
    node = ListeningNode(config, context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    start = time.monotonic()
    try:
        while time.monotonic() - start < seconds:
            executor.spin_once(timeout_sec=0.1)
        return node.facts(time.monotonic() - start)
    finally:
        executor.shutdown()
        node.destroy_node()


class ListeningNode(Node):
    """Subscribes to every input, best effort, and publishes nothing."""

    def __init__(self, config: HeisdConfig, context: Context) -> None:
        """Subscribe."""
        super().__init__(NAME, context=context)
        self._heard: dict[str, _Heard] = {}
        self._names: dict[str, str] = {}
        self._statuses: dict[str, tuple[int, str]] = {}
        transport = config.ros.image_transport
        kind, describe = (
            (Image, _image) if transport == "raw" else (CompressedImage, _compressed_image)
        )
        for camera in config.perception.cameras:
            topic = topics.image_topic(camera, transport)
            self._listen(f"image {camera}", kind, topic, describe)
        self._listen("ee_pose", PoseStamped, topics.POSE, _pose)
        self._listen("joint_states", JointState, topics.JOINT_STATES, _joints)
        self._listen("/clock", Clock, topics.CLOCK, _nothing)
        for topic in (topics.INSTRUCTION, topics.TWIST, topics.GRIPPER):
            self._names[topic] = self.resolve_topic_name(topic)
        self._names["servo twist"] = self.resolve_topic_name(
            f"{config.servo.node}/delta_twist_cmds"
        )
        self.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_status, qos.EVENTS)

    def facts(self, seconds: float) -> GraphFacts:
        """Return everything that was seen in so many seconds."""
        seen = {role: self._topic(role, name, seconds) for role, name in self._names.items()}
        images = [
            name
            for name, kinds in self.get_topic_names_and_types()
            if set(kinds) & set(IMAGES) and self.count_publishers(name)
        ]
        return GraphFacts(
            topics=seen,
            image_topics=tuple(sorted(images)),
            use_sim_time=uses_sim_time(self),
            statuses=dict(self._statuses),
            rmw=str(get_rmw_implementation_identifier()),
        )

    def _listen(self, role: str, kind: Any, topic: str, describe: Describe) -> None:  # noqa: ANN401
        heard = _Heard()
        self._heard[role], self._names[role] = heard, self.resolve_topic_name(topic)
        self.create_subscription(
            kind, topic, partial(self._on_message, heard, describe), qos.SENSOR
        )

    def _on_message(self, heard: _Heard, describe: Describe, message: Any) -> None:  # noqa: ANN401
        heard.received += 1
        if hasattr(message, "header") and len(heard.stamps_ns) < KEPT:
            stamp_ns = convert.to_ns(message.header.stamp)
            heard.stamps_ns.append(stamp_ns)
            heard.ages_ns.append(now_ns(self) - stamp_ns)
            heard.frame_id = message.header.frame_id
        heard.values.update(describe(message))

    def _on_status(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.split(":")[0].rsplit("/", 1)[-1] in OUR_STATUSES:
                self._statuses[status.name] = (int.from_bytes(status.level, "big"), status.message)

    def _topic(self, role: str, name: str, seconds: float) -> TopicFacts:
        heard = self._heard.get(role, _Heard())
        return TopicFacts(
            name=name,
            publishers=self._peers(self.get_publishers_info_by_topic(name)),
            subscriptions=self._peers(self.get_subscriptions_info_by_topic(name)),
            received=heard.received,
            seconds=seconds,
            stamps_ns=tuple(heard.stamps_ns),
            ages_ns=tuple(heard.ages_ns),
            frame_id=heard.frame_id,
            values=dict(heard.values),
        )

    def _peers(self, found: list[Any]) -> tuple[PeerFacts, ...]:
        return tuple(
            PeerFacts(
                f"{peer.node_namespace.rstrip('/')}/{peer.node_name}",
                peer.topic_type,
                _reliability(peer.qos_profile.reliability),
                _durability(peer.qos_profile.durability),
            )
            for peer in found
            if peer.node_name != NAME
        )


def _image(message: Image) -> dict[str, str]:
    facts = {
        "encoding": message.encoding,
        "width": str(message.width),
        "height": str(message.height),
        "bytes": str(len(message.data)),
    }
    return {**facts, "error": _error_of(convert.image_to_frame, message)}


def _compressed_image(message: CompressedImage) -> dict[str, str]:
    error = _error_of(convert.compressed_to_frame, message)
    facts = {"encoding": message.format or "compressed", "bytes": str(len(message.data))}
    if not error:
        height, width = convert.compressed_to_frame(message, "").image.shape[:2]
        facts.update({"width": str(width), "height": str(height)})
    return {**facts, "error": error}


def _pose(message: PoseStamped) -> dict[str, str]:
    try:
        convert.pose_to_proprioception(message)
    except HeisdError as error:
        return {"error": str(error)}
    return {"error": ""}


def _joints(message: JointState) -> dict[str, str]:
    return {"joints": " ".join(message.name)}


def _nothing(message: Any) -> dict[str, str]:  # noqa: ANN401, ARG001
    return {}


def _error_of(decode: Callable[[Any, str], Any], message: Any) -> str:  # noqa: ANN401
    try:
        decode(message, "")
    except HeisdError as error:
        return str(error)
    return ""


def _reliability(policy: ReliabilityPolicy) -> str:
    return BEST_EFFORT if policy == ReliabilityPolicy.BEST_EFFORT else RELIABLE


def _durability(policy: DurabilityPolicy) -> str:
    latched = policy == DurabilityPolicy.TRANSIENT_LOCAL
    return "transient_local" if latched else "volatile"
