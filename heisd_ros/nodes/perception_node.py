"""Camera pictures in, visual embedding out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import qos_policy_name_from_kind
from sensor_msgs.msg import CompressedImage, Image

from heisd_ros.build import build_encoder, free_memory
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.stopwatch import Stopwatch
from heisd_ros.msg import VisualEmbedding
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, on_time_jump, steady_ns, uses_sim_time
from heisd_ros.nodes.conversions import (
    compressed_to_frame,
    features_to_embedding,
    image_to_frame,
    to_ns,
)
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.identity import fingerprint
from heisd_ros.nodes.managed import ManagedNode, Status
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.nodes.worker import LatestWorker
from heisd_ros.perception.images import ImageError
from heisd_ros.perception.pairing import FramePairer, is_of_before
from heisd_ros.perception.watch import CameraWatch, Silence
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Frame

CLOSE_TIMEOUT_S = 2.0
WATCH_S = 0.1
"""How often it is asked whether a camera has fallen silent."""


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
        self._unheard: dict[str, str] = {}
        self._refused: set[tuple[str, str]] = set()
        self._epoch = 0

    def status(self) -> Status:
        """Return counters by reason, and which cameras are silent since when."""
        skipped = 0 if self._worker is None else self._worker.dropped
        values: dict[str, object] = {
            **self.counts,
            **self._pairer.drops,
            "skipped_sets": skipped,
            **self._unheard,
        }
        now = self._time_ns()
        silent = self._watch.silent(now)
        for camera, silence in silent.items():
            values[f"{camera}.silent_s"] = round((now - silence.since_ns) * 1e-9, 2)
            values[f"{camera}.last_stamp_ns"] = silence.stamp_ns
        if not silent:
            return Status(DiagnosticStatus.OK, "ok", values)
        text = ", ".join([*_by_reason(silent), *self._unheard.values()])
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
        self._simulated = uses_sim_time(self)
        self._time_ns = partial(now_ns, self) if self._simulated else steady_ns
        timeout_ns = round(self.config.command.image_timeout_s * 1_000_000_000)
        self._watch = CameraWatch(perception.cameras, timeout_ns, self._time_ns())
        self.every(WATCH_S, self._tell_changes)
        if self._simulated:
            self._while_active.append(on_time_jump(self, self._on_time_jump).unregister)
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
        stamp_ns = to_ns(message.header.stamp)
        if is_of_before(stamp_ns, now_ns(self) if self._simulated else 0):
            self.counts["ahead_of_clock"] += 1
            return
        if not self._embedding.get_subscription_count():
            self.counts["no_listener"] += 1
            self._watch.note(camera, stamp_ns, self._time_ns())
            return
        try:
            frame = convert(message, camera)
        except ImageError as error:
            self._refuse(camera, error)
            return
        self._watch.note(camera, stamp_ns, self._time_ns())
        self._optical_frame = message.header.frame_id
        frames = self._pairer.push(frame)
        if frames is not None and self._worker is not None and self._encoder is not None:
            self._worker.submit(partial(self._encode, self._encoder, frames, self._epoch))

    def _on_time_jump(self, delta_ns: int) -> None:
        self._watch.shift(delta_ns)
        if delta_ns < 0:
            self.counts["clock_back"] += 1
            self._epoch += 1
            self._pairer.forget_after(now_ns(self))

    def _tell_changes(self) -> None:
        """Say once that a camera has fallen silent, and once that it is back."""
        lost, back = self._watch.changes(self._time_ns())
        for camera, silence in lost.items():
            timeout_s = self.config.command.image_timeout_s
            self.get_logger().warning(
                f"{camera}: no usable picture for {timeout_s} s ({silence.reason})"
            )
        for camera in back:
            self.get_logger().info(f"{camera}: pictures arrive")

    def _refuse(self, camera: str, error: ImageError) -> None:
        self.counts[error.reason] += 1
        self._watch.refuse(camera, error.reason)
        if (camera, error.reason) not in self._refused:
            self._refused.add((camera, error.reason))
            self.get_logger().warning(f"{camera}: {error}")

    def _on_incompatible(self, camera: str, topic: str, event: Any) -> None:  # noqa: ANN401
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self._unheard[camera] = f"{topic} offers another {policy}"
        self.get_logger().warning(
            f"no pictures from {self.resolve_topic_name(topic)}: the camera does not offer the "
            f"{policy} asked for; set ros.camera_reliability to best_effort"
        )

    def _encode(self, encoder: VisionEncoder, frames: Sequence[Frame], epoch: int) -> None:
        watch = Stopwatch(time.perf_counter)
        features = encoder.encode(frames)
        if epoch != self._epoch:
            self.counts["time_jumped_back"] += len(frames)
            return
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


def _by_reason(silent: Mapping[str, Silence]) -> list[str]:
    reasons = dict.fromkeys(silence.reason for silence in silent.values())
    return [
        f"{reason}: {' '.join(c for c, silence in silent.items() if silence.reason == reason)}"
        for reason in reasons
    ]


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: PerceptionNode(context=context), args, wait_for_stop)
