"""Records what goes over the topics, as it came, into an MCAP bag that needs no ROS to be read."""

from __future__ import annotations

import datetime
import importlib
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.serialization import deserialize_message, serialize_message

from heisd_ros.config import HeisdConfig, to_flat
from heisd_ros.demonstrations.bag_writer import BagWriter
from heisd_ros.errors import HeisdError
from heisd_ros.msg import DecodeReport, EpisodeStatus, VisualEmbedding
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import steady_clock
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.records import EPISODE_END
from heisd_ros.nodes.runtime import run_node

CONFIG_FACT = "heisd_config"
"""Key in the bag's metadata; `offline/bag.py` reads it."""
FAST = (topics.POSE, topics.JOINT_STATES, topics.WRENCH)
"""Robot state, which may be sent best effort."""
IMAGE, COMPRESSED_IMAGE = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
NOT_RECORDED = ("servo_adapter_node",)
"""What goes to MoveIt Servo is our twist in other units, and its messages may not be installed."""
LAST_WORDS_S = 0.5
"""After the last episode's end, time for messages that are on their way."""
READY_FROM = (topics.EMBEDDING, topics.TRAJECTORY_METRIC, topics.DECODE_REPORT)
POLL_S = 0.05


class RecorderNode(Node):
    """Subscribes to everything and hands the serialised messages to a writing thread.

    Attributes:
        finished: Episodes that were said to be done.
    """

    def __init__(self, *, config: HeisdConfig | None = None, **options: Any) -> None:  # noqa: ANN401
        """Make the bag and subscribe.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.
        """
        super().__init__("recorder_node", **options)
        self.config = read_config(self, config)
        self.finished = 0
        self._decisions: Counter[str] = Counter()
        self._last: DecodeReport | None = None
        self._kinds = recorded_topics(self.config)
        self._writer = BagWriter(
            self.config.record.folder or default_folder(),
            {self.resolve_topic_name(name): kind for name, kind in self._kinds.items()},
            facts={CONFIG_FACT: json.dumps(to_flat(self.config))},
        )
        for name, kind in self._kinds.items():
            self._subscribe(name, kind)
        self.create_timer(1.0, self._tell, clock=steady_clock())
        self.get_logger().info(f"recording to {self._writer.folder}")

    def ready(self) -> bool:
        """Return whether perception, trajectory and decoder are there to be recorded."""
        return all(self.count_publishers(topic) for topic in READY_FROM)

    def close(self) -> None:
        """Finish the bag."""
        self._tell()
        try:
            self._writer.close()
        except HeisdError as error:
            self.get_logger().error(str(error))
            return
        written = sum(self._writer.written.values())
        self.get_logger().info(
            f"bag {self._writer.folder}: {written} messages, {self._writer.dropped} lost"
        )

    def _subscribe(self, name: str, kind: str) -> None:
        profile = qos.EVENTS
        if kind in (IMAGE, COMPRESSED_IMAGE):
            profile = qos.camera(self.config.ros.camera_reliability)
        elif name in FAST:
            profile = qos.SENSOR
        keep = {
            topics.EPISODE_STATUS: self._on_status,
            topics.DECODE_REPORT: self._on_report,
            topics.EMBEDDING: self._on_embedding,
        }.get(name, self._keep)
        callback = partial(keep, self.resolve_topic_name(name))
        self.create_subscription(message_class(kind), name, callback, profile, raw=True)

    def _keep(self, topic: str, message: bytes) -> None:
        self._writer.put(topic, time.time_ns(), message)

    def _on_embedding(self, topic: str, message: bytes) -> None:
        if self.config.record.patches:
            self._keep(topic, message)
            return
        stamp_ns = time.time_ns()
        self._writer.put_later(lambda: (topic, stamp_ns, without_patches(message)))

    def _on_status(self, topic: str, message: bytes) -> None:
        self._keep(topic, message)
        self.finished += bool(deserialize_message(message, EpisodeStatus).done)

    def _on_report(self, topic: str, message: bytes) -> None:
        self._keep(topic, message)
        report = deserialize_message(message, DecodeReport)
        if report.reason != EPISODE_END:
            self._last = report
            self._decisions["skipped" if report.skipped else report.kind] += 1

    def _tell(self) -> None:
        last = self._last
        if last is None:
            return
        total = sum(self._decisions.values())
        shares = ", ".join(f"{kind} {count}" for kind, count in self._decisions.most_common())
        self.get_logger().info(
            f"progress: decision {total}, now {'skipped' if last.skipped else last.kind}, "
            f"F {last.fused:.2f}, forward passes {last.forwards}; so far {shares}"
        )


def recorded_topics(config: HeisdConfig) -> dict[str, str]:
    """Return relative name -> type of everything that is recorded."""
    kinds = {
        row.name: row.kind
        for row in topics.ENDPOINTS
        if row.direction in ("in", "out") and row.node not in NOT_RECORDED
    }
    transport = config.ros.image_transport
    image = IMAGE if transport == "raw" else COMPRESSED_IMAGE
    cameras = {topics.image_topic(c, transport): image for c in config.perception.cameras}
    # Private topics are made for a person who is looking, not for a record.
    rest = {name: kind for name, kind in kinds.items() if "<camera>" not in name and name[0] != "~"}
    return {**cameras, **rest}


def default_folder() -> Path:
    """Return a new folder's name from the time of day."""
    return Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")


def message_class(kind: str) -> Any:  # noqa: ANN401  (a message class)
    """Return the class of a type such as `std_msgs/msg/String`."""
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def without_patches(message: bytes) -> bytes:
    """Return a serialised embedding without its patch features: they are most of its bytes."""
    content = deserialize_message(message, VisualEmbedding)
    del content.data[:]
    return bytes(serialize_message(content))


def wait_for_end(node: RecorderNode, stop: threading.Event) -> int:
    """Record until told to stop, or until the configured number of episodes is done."""
    wanted, told = node.config.record.episodes, False
    while not stop.wait(POLL_S):
        if not told and node.ready():
            node.get_logger().info("ready: perception, trajectory and decoder are there")
            told = True
        if wanted and node.finished >= wanted:
            stop.wait(LAST_WORDS_S)
            break
    return 0


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: RecorderNode(context=context), args, wait_for_end)
