"""Markers and an annotated picture for RViz and Foxglove. Works only for who is looking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from geometry_msgs.msg import Point, PoseStamped
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import ColorRGBA

from heisd_ros.build import build_store
from heisd_ros.config import HeisdConfig
from heisd_ros.diagnosis.palette import AT_REST, Look, look_of
from heisd_ros.diagnosis.scene import Line, Trail, annotate, candidate_lines
from heisd_ros.errors import DataError, HeisdError, MissingDependencyError
from heisd_ros.msg import DecodeReport, EpisodeStatus, VisualEmbedding
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.records import EPISODE_END
from heisd_ros.nodes.runtime import run_node, wait_for_stop
from heisd_ros.protocols import DemonstrationStore
from heisd_ros.types import Frame

LINE_WIDTH_M = 0.004
MARKER_PERIOD_S = 0.1


class VisualiserNode(Node):
    """Draws the way of the arm, the retrieved candidates, and the newest picture with its mode."""

    def __init__(
        self,
        *,
        config: HeisdConfig | None = None,
        store: DemonstrationStore | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Read the configuration and subscribe.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            store: Demonstrations for the candidates; None opens the configured store when the
                first features arrive.
            options: Passed on to rclpy.

        Raises:
            MissingDependencyError: If visualization_msgs is not installed.
        """
        super().__init__("visualiser_node", **options)
        self.config = read_config(self, config)
        self._kinds = marker_kinds()
        self._store = store
        self._store_refused = False
        self._trail = Trail()
        self._candidates: list[Line] = []
        self._pose: PoseStamped | None = None
        self._report = DecodeReport(fused=math.nan)
        self._look: Look = AT_REST
        self._markers = self.create_publisher(
            self._kinds.MarkerArray, topics.MARKERS, qos.reliable(1)
        )
        self._image = self.create_publisher(Image, topics.ANNOTATED_IMAGE, qos.reliable(1))
        self._subscribe()
        self.create_timer(MARKER_PERIOD_S, self._draw)

    def _subscribe(self) -> None:
        transport = self.config.ros.image_transport
        camera = self.config.perception.cameras[0]
        image_kind = Image if transport == "raw" else CompressedImage
        for kind, topic, callback, profile in (
            (PoseStamped, topics.POSE, self._on_pose, qos.SENSOR),
            (DecodeReport, topics.DECODE_REPORT, self._on_report, qos.EVENTS),
            (VisualEmbedding, topics.EMBEDDING, self._on_embedding, qos.FEATURES),
            (EpisodeStatus, topics.EPISODE_STATUS, self._on_status, qos.EVENTS),
            (
                image_kind,
                topics.image_topic(camera, transport),
                self._on_image,
                qos.camera(self.config.ros.camera_reliability),
            ),
        ):
            self.create_subscription(kind, topic, callback, profile)

    def _on_pose(self, message: PoseStamped) -> None:
        self._pose = message
        self._trail.add(convert.position_of(message), self._look)

    def _on_report(self, message: DecodeReport) -> None:
        if message.reason != EPISODE_END:
            self._report = message
            self._look = look_of(message.kind, skipped=message.skipped, decided=message.decided)

    def _on_status(self, message: EpisodeStatus) -> None:
        if message.done:
            self._trail.clear()
            self._candidates = []

    def _on_embedding(self, message: VisualEmbedding) -> None:
        """Look up what retrieval would find for these pictures; only for who is looking."""
        if not self._markers.get_subscription_count() or self._pose is None:
            return
        store = self._store or self._open_store(message.encoder)
        if store is None:
            return
        embedding = np.frombuffer(message.embedding, dtype=np.float32)
        try:
            hits = store.search(embedding, self._report.instruction, self.config.retrieval.top_k)
        except HeisdError as error:
            self.get_logger().warning(f"no candidates: {error}", throttle_duration_sec=10.0)
            return
        scale = self.config.command.translation_scale
        self._candidates = candidate_lines(convert.position_of(self._pose), hits, scale)

    def _open_store(self, encoder: str) -> DemonstrationStore | None:
        if self._store_refused:
            return None
        try:
            self._store = build_store(self.config, encoder)
        except HeisdError as error:
            self.get_logger().warning(f"no candidates are drawn: {error}")
        self._store_refused = self._store is None
        return self._store

    def _on_image(self, message: Any) -> None:  # noqa: ANN401  (Image or CompressedImage)
        if not self._image.get_subscription_count():
            return
        raw = isinstance(message, Image)
        to_frame = convert.image_to_frame if raw else convert.compressed_to_frame
        try:
            frame = to_frame(message, "")
        except DataError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=10.0)
            return
        picture = annotate(frame.image, self._look, caption(self._report, self._look))
        self._image.publish(
            convert.frame_to_image(Frame(picture, "", frame.stamp_ns), message.header.frame_id)
        )

    def _draw(self) -> None:
        if self._pose is None or not self._markers.get_subscription_count():
            return
        lines = [("trajectory", 0, self._trail.line())]
        lines += [("candidates", number, line) for number, line in enumerate(self._candidates)]
        kinds = self._kinds
        clear = kinds.Marker(ns="candidates", action=kinds.Marker.DELETEALL)
        drawn = [self._marker(*entry) for entry in lines if len(entry[2].points) > 1]
        self._markers.publish(kinds.MarkerArray(markers=[clear, *drawn]))

    def _marker(self, name: str, number: int, line: Line) -> Any:  # noqa: ANN401
        kind = self._kinds.Marker
        marker = kind(ns=name, id=number, type=kind.LINE_STRIP, action=kind.ADD)
        assert self._pose is not None
        marker.header = self._pose.header
        marker.pose.orientation.w = 1.0
        marker.scale.x = LINE_WIDTH_M
        marker.points = [Point(x=x, y=y, z=z) for x, y, z in line.points.tolist()]
        marker.colors = [ColorRGBA(r=r, g=g, b=b, a=a) for r, g, b, a in line.colours.tolist()]
        return marker


def caption(report: DecodeReport, look: Look) -> list[str]:
    """Return what is written below the picture."""
    total = dict(zip(report.stage, report.stage_ms, strict=False)).get("total", math.nan)
    return [
        f"{look.label}, F {report.fused:.2f}",
        f"forwards {report.forwards}, {total:.0f} ms {report.guard}".rstrip(),
    ]


def marker_kinds() -> Any:  # noqa: ANN401  (the module visualization_msgs.msg)
    """Return the marker messages.

    Raises:
        MissingDependencyError: If visualization_msgs is not installed.
    """
    try:
        from visualization_msgs import msg
    except ImportError as error:
        raise MissingDependencyError(
            "visualization_msgs is needed for markers: apt install "
            "ros-$ROS_DISTRO-visualization-msgs, or pip install ros-jazzy-visualization-msgs"
        ) from error
    return msg


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: VisualiserNode(context=context), args, wait_for_stop)
