"""Camera pictures in, visual embedding out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import qos_policy_name_from_kind
from sensor_msgs.msg import CompressedImage, Image

from heisd_ros.build import build_encoder, free_memory
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.assembler import NO_FRAMES
from heisd_ros.decode.stopwatch import Stopwatch
from heisd_ros.msg import VisualEmbedding
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.conversions import compressed_to_frame, features_to_embedding, image_to_frame
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.identity import fingerprint
from heisd_ros.nodes.managed import ManagedNode, Status
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.nodes.worker import LatestWorker
from heisd_ros.perception.images import ImageError
from heisd_ros.perception.pairing import FramePairer
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Frame

CLOSE_TIMEOUT_S = 2.0


class PerceptionNode(ManagedNode):
    """Pairs the pictures of all cameras, encodes the newest set, publishes its features.

    Attributes:
        counts: Pictures, encoded sets, and refused pictures by reason.
    """

    function = "pictures"

    def __init__(
        self,
        *,
        config: HeisdConfig | None = None,
        encoder: VisionEncoder | None = None,
        exchange: FeatureExchange | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Declare the parameters.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            encoder: None loads the configured one when the node is configured.
            exchange: Where a decoder in this process finds the patches; None: in the message.
            options: Passed on to rclpy.
        """
        super().__init__("perception_node", config=config, **options)
        self.counts: Counter[str] = Counter()
        self._given_encoder = encoder
        self._encoder: VisionEncoder | None = None
        self._exchange = exchange
        self._worker: LatestWorker | None = None
        self._optical_frame = ""
        self._frames_reported = 0
        self._unheard: dict[str, str] = {}

    def status(self) -> Status:
        """Return counters by reason, and which cameras cannot be heard."""
        skipped = 0 if self._worker is None else self._worker.dropped
        values: dict[str, object] = {
            **self.counts,
            **self._pairer.drops,
            "skipped_sets": skipped,
            **self._unheard,
        }
        silent = self.counts["frames"] == self._frames_reported
        self._frames_reported = self.counts["frames"]
        if not silent:
            return Status(DiagnosticStatus.OK, "ok", values)
        text = f"{NO_FRAMES}: {', '.join(self._unheard.values())}" if self._unheard else NO_FRAMES
        return Status(DiagnosticStatus.WARN, text, values)

    def _configure(self) -> None:
        self._encoder = self._given_encoder or build_encoder(self.config)
        self._worker = LatestWorker("encode")
        self._embedding = self.advertise(VisualEmbedding, topics.EMBEDDING, qos.FEATURES)

    def _activate(self) -> None:
        perception = self.config.perception
        self._unheard.clear()
        self._pairer = FramePairer(
            perception.cameras, round(perception.pairing_tolerance_s * 1_000_000_000)
        )
        transport = self.config.ros.image_transport
        kind, convert = {
            "raw": (Image, image_to_frame),
            "compressed": (CompressedImage, compressed_to_frame),
        }[transport]
        for camera in perception.cameras:
            topic = topics.image_topic(camera, transport)
            self.subscribe(
                kind,
                topic,
                partial(self._on_image, camera, convert),
                qos.camera(self.config.ros.camera_reliability),
                event_callbacks=SubscriptionEventCallbacks(
                    incompatible_qos=partial(self._on_incompatible, camera, topic)
                ),
            )

    def _cleanup(self) -> None:
        if self._worker is not None:
            self._worker.close(CLOSE_TIMEOUT_S)
        self._worker = self._encoder = None
        free_memory()

    def _on_image(self, camera: str, convert: Any, message: Any) -> None:  # noqa: ANN401
        self.counts["frames"] += 1
        if not self._embedding.get_subscription_count():
            self.counts["no_listener"] += 1
            return
        try:
            frames = self._pairer.push(convert(message, camera))
        except ImageError as error:
            self._refuse(camera, error)
            return
        self._optical_frame = message.header.frame_id
        if frames is not None and self._worker is not None and self._encoder is not None:
            self._worker.submit(partial(self._encode, self._encoder, frames))

    def _refuse(self, camera: str, error: ImageError) -> None:
        self.counts[error.reason] += 1
        self.get_logger().warning(f"{camera}: {error}", once=True)

    def _on_incompatible(self, camera: str, topic: str, event: Any) -> None:  # noqa: ANN401
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self._unheard[camera] = f"{topic} offers another {policy}"
        self.get_logger().warning(
            f"no pictures from {self.resolve_topic_name(topic)}: the camera does not offer the "
            f"{policy} asked for; set ros.camera_reliability to best_effort"
        )

    def _encode(self, encoder: VisionEncoder, frames: Sequence[Frame]) -> None:
        watch = Stopwatch(time.perf_counter)
        features = encoder.encode(frames)
        if self._exchange is not None:
            self._exchange.put(features.stamp_ns, features)
        message = features_to_embedding(
            features,
            with_patches=self._exchange is None,
            cameras=self.config.perception.cameras,
            encoder=fingerprint(encoder),
        )
        message.header.frame_id = self._optical_frame
        message.encode_ms = watch.stage_ms()["total"]
        message.sequence = self.counts["sets"]
        self.counts["sets"] += 1
        self._embedding.publish(message)


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: PerceptionNode(context=context), args, wait_for_stop)
