"""Camera pictures in, visual embedding out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from heisd_ros.build import build_encoder
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.stopwatch import Stopwatch
from heisd_ros.msg import VisualEmbedding
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, steady_clock
from heisd_ros.nodes.conversions import compressed_to_frame, features_to_embedding, image_to_frame
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.identity import fingerprint
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.records import to_diagnostics
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.nodes.worker import LatestWorker
from heisd_ros.perception.images import ImageError
from heisd_ros.perception.pairing import FramePairer
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Frame

CLOSE_TIMEOUT_S = 2.0


class PerceptionNode(Node):
    """Pairs the pictures of all cameras, encodes the newest set, publishes its features.

    Attributes:
        counts: Pictures, encoded sets, and refused pictures by reason.
    """

    def __init__(
        self,
        *,
        config: HeisdConfig | None = None,
        encoder: VisionEncoder | None = None,
        exchange: FeatureExchange | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Read the configuration and subscribe.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            encoder: None builds the configured one.
            exchange: Where a decoder in this process finds the patches; None: in the message.
            options: Passed on to rclpy.
        """
        super().__init__("perception_node", **options)
        self.config = read_config(self, config)
        perception = self.config.perception
        self._encoder = encoder or build_encoder(self.config)
        self._exchange = exchange
        self._pairer = FramePairer(
            perception.cameras, round(perception.pairing_tolerance_s * 1_000_000_000)
        )
        self._worker = LatestWorker("encode")
        self.counts: Counter[str] = Counter()
        self._optical_frame = ""
        self._frames_reported = 0
        self._embedding = self.create_publisher(VisualEmbedding, topics.EMBEDDING, qos.FEATURES)
        self._diagnostics = self.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, qos.EVENTS)
        self._subscribe()
        self.create_timer(1.0, self._report, clock=steady_clock())

    def close(self) -> None:
        """Stop encoding."""
        self._worker.close(CLOSE_TIMEOUT_S)

    def _subscribe(self) -> None:
        transport = self.config.ros.image_transport
        kind, convert = {
            "raw": (Image, image_to_frame),
            "compressed": (CompressedImage, compressed_to_frame),
        }[transport]
        for camera in self.config.perception.cameras:
            self.create_subscription(
                kind,
                topics.image_topic(camera, transport),
                partial(self._on_image, camera, convert),
                qos.camera(self.config.ros.camera_reliability),
            )

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
        if frames is not None:
            self._worker.submit(partial(self._encode, frames))

    def _refuse(self, camera: str, error: ImageError) -> None:
        self.counts[error.reason] += 1
        self.get_logger().warning(f"{camera}: {error}", once=True)

    def _encode(self, frames: Sequence[Frame]) -> None:
        watch = Stopwatch(time.perf_counter)
        features = self._encoder.encode(frames)
        if self._exchange is not None:
            self._exchange.put(features.stamp_ns, features)
        message = features_to_embedding(
            features,
            with_patches=self._exchange is None,
            cameras=self.config.perception.cameras,
            encoder=fingerprint(self._encoder),
        )
        message.header.frame_id = self._optical_frame
        message.encode_ms = watch.stage_ms()["total"]
        message.sequence = self.counts["sets"]
        self.counts["sets"] += 1
        self._embedding.publish(message)

    def _report(self) -> None:
        values = {**self.counts, **self._pairer.drops, "skipped_sets": self._worker.dropped}
        silent = self.counts["frames"] == self._frames_reported
        self._frames_reported = self.counts["frames"]
        level = DiagnosticStatus.WARN if silent else DiagnosticStatus.OK
        text = "no_frames" if silent else "ok"
        name = f"{self.get_name()}: pictures"
        self._diagnostics.publish(to_diagnostics(name, level, text, values, now_ns(self)))


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: PerceptionNode(context=context), args, wait_for_stop)
