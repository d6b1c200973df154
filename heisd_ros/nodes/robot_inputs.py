"""What the decoder hears of robot and pictures: converted, or refused with a counted reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from geometry_msgs.msg import PoseStamped, WrenchStamped
from rclpy.event_handler import QoSSubscriptionMatchedInfo, SubscriptionEventCallbacks
from rclpy.node import Node
from sensor_msgs.msg import JointState

from heisd_ros.config import HeisdConfig
from heisd_ros.decode.assembler import ObservationAssembler
from heisd_ros.errors import DataError
from heisd_ros.msg import TrajectoryMetric, VisualEmbedding
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, steady_ns
from heisd_ros.nodes.exchange import FeatureExchange, RecentItems
from heisd_ros.nodes.identity import check_encoder
from heisd_ros.types import Observation, VisualFeatures


class Subscription(NamedTuple):
    """One input of the decoder.

    Attributes:
        kind: Message class.
        topic: Name.
        callback: Gets each message.
        profile: Quality of service.
        options: Further arguments of `create_subscription`.
    """

    kind: Any
    topic: str
    callback: Callable[[Any], None]
    profile: Any
    options: Mapping[str, Any] = MappingProxyType({})


class RobotInputs:
    """Feeds an assembler from four topics, five if a force is asked for.

    Attributes:
        vision_ms: Encoding time of recent pictures by their stamp, ms.
        expects_metric: Whether somebody publishes the metric; if nobody does, the policy measures.
    """

    def __init__(
        self,
        node: Node,
        assembler: ObservationAssembler,
        config: HeisdConfig,
        *,
        counts: Counter[str],
        fingerprint: str,
        exchange: FeatureExchange | None,
        lockstep: bool,
        then: Callable[[], None],
    ) -> None:
        """Set up.

        Args:
            node: Whose clock and logger are used.
            assembler: Gets what arrives.
            config: Finger joints and their width, and whether a force is asked for.
            counts: Where refusals are counted.
            fingerprint: Of the encoder that the policy was made for; empty if unknown.
            exchange: Where the patches of a perception node in this process are.
            lockstep: Whether simulated time waits for each decision.
            then: Called after each message that brought something.
        """
        self.vision_ms: RecentItems[float] = RecentItems()
        self.expects_metric = False
        self._node, self._assembler, self._config = node, assembler, config
        self._counts, self._fingerprint, self._exchange = counts, fingerprint, exchange
        self._lockstep, self._then = lockstep, then

    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return what is to be heard, for one time of being active."""
        self.expects_metric = False
        matched = {"event_callbacks": SubscriptionEventCallbacks(matched=self._on_metric_matched)}
        return (
            Subscription(VisualEmbedding, topics.EMBEDDING, self._on_embedding, qos.FEATURES),
            Subscription(
                TrajectoryMetric, topics.TRAJECTORY_METRIC, self._on_metric, qos.EVENTS, matched
            ),
            Subscription(PoseStamped, topics.POSE, self._on_pose, qos.SENSOR),
            Subscription(JointState, topics.JOINT_STATES, self._on_joint_states, qos.SENSOR),
            *self._wrench(),
        )

    def note(self, observation: Observation) -> None:
        """Count an observation without the force that was asked for: it is near contact."""
        if self._asks_for_force and observation.force is None:
            self._counts["no_wrench"] += 1

    @property
    def _asks_for_force(self) -> bool:
        return self._config.verify.tighten_max_force > 0.0

    def _wrench(self) -> tuple[Subscription, ...]:
        if not self._asks_for_force:
            return ()
        return (Subscription(WrenchStamped, topics.WRENCH, self._on_wrench, qos.SENSOR),)

    def _on_metric_matched(self, change: QoSSubscriptionMatchedInfo) -> None:
        self.expects_metric = change.current_count > 0

    def _on_embedding(self, message: VisualEmbedding) -> None:
        try:
            features = self._features(message)
        except DataError as error:
            self._refuse("bad_embedding", error)
            return
        self.vision_ms.put(features.stamp_ns, message.encode_ms)
        # In lockstep this process may be slow: only simulated time counts.
        arrived_ns = None if self._lockstep else convert.arrival_ns(message, steady_ns())
        self._assembler.offer_features(features, now_ns(self._node), arrived_ns=arrived_ns)
        self._then()

    def _on_metric(self, message: TrajectoryMetric) -> None:
        self._assembler.offer_metric(convert.message_to_metric(message))
        self._then()

    def _on_pose(self, message: PoseStamped) -> None:
        try:
            self._assembler.offer_pose(convert.pose_to_proprioception(message))
        except DataError as error:
            self._refuse("bad_pose", error)
            return
        self._then()

    def _on_joint_states(self, message: JointState) -> None:
        fingers, width = self._config.ros.finger_joints, self._config.command.gripper_max_m
        try:
            opening = convert.joints_to_opening(message, fingers, width)
        except DataError as error:
            self._refuse("bad_joint_states", error)
            return
        if opening is not None:
            self._assembler.offer_opening(opening, convert.to_ns(message.header.stamp))
            self._then()

    def _on_wrench(self, message: WrenchStamped) -> None:
        try:
            force = convert.wrench_to_force(message)
        except DataError as error:
            self._refuse("bad_wrench", error)
            force = math.nan
        # Nothing waits for a force: it begins no decision.
        self._assembler.offer_force(force, convert.to_ns(message.header.stamp))

    def _features(self, message: VisualEmbedding) -> VisualFeatures:
        check_encoder(message.encoder, self._fingerprint)
        if self._exchange is None:
            return convert.embedding_to_features(message)
        features = self._exchange.take(convert.to_ns(message.header.stamp))
        if features is None:
            raise DataError("the patches of this embedding are gone: decisions are too slow")
        return features

    def _refuse(self, reason: str, error: DataError) -> None:
        self._counts[reason] += 1
        self._node.get_logger().warning(f"{reason}: {error}", throttle_duration_sec=10.0)
