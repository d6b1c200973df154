"""Plays the pictures, poses and joints of a bag into DDS at the times of their reception.

    python bench/reliability/play_bag.py FOLDER

/clock follows the bag, also through its gaps, and goes on a second behind its end.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rclpy.node import Node
from rosbags.rosbag2 import Reader
from rosgraph_msgs.msg import Clock

from heisd_ros.nodes import qos
from heisd_ros.nodes.conversions import to_stamp
from heisd_ros.nodes.runtime import ros_context

TICK_S = 0.01
AFTER_S, FIND_S = 1.0, 60.0


def play(node: Node, folder: Path) -> None:
    """Publish everything, in real time."""
    with Reader(folder) as reader:
        topics = {c.topic: c.msgtype for c in reader.connections}
        publishers = {
            topic: node.create_publisher(
                _message(kind), topic, qos.SENSOR if "image" in topic else 10
            )
            for topic, kind in topics.items()
        }
        clock = node.create_publisher(Clock, "/clock", 10)
        _wait_for_readers([*publishers.values(), clock])
        started, first_ns = time.monotonic(), reader.start_time

        def advance(to_ns: int) -> None:
            while (due := started + (to_ns - first_ns) * 1e-9 - time.monotonic()) > 0.0:
                time.sleep(min(due, TICK_S))
                now_ns = first_ns + round((time.monotonic() - started) * 1e9)
                clock.publish(Clock(clock=to_stamp(now_ns)))

        for connection, log_ns, raw in reader.messages():
            advance(log_ns)
            publishers[connection.topic].publish(bytes(raw))
        advance(reader.end_time + round(AFTER_S * 1e9))


def _message(kind: str) -> type:
    """Return the class of a type, e.g. `sensor_msgs/msg/Image`."""
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _wait_for_readers(publishers: list) -> None:
    deadline = time.monotonic() + FIND_S
    while not all(p.get_subscription_count() for p in publishers):
        if time.monotonic() > deadline:
            raise TimeoutError("nobody listens to the bag")
        time.sleep(0.01)
    time.sleep(0.5)  # both sides have to know


def main() -> None:
    """Play one bag."""
    with ros_context([]) as context:
        node = Node("bag_player", context=context)
        play(node, Path(sys.argv[1]))
        node.destroy_node()


if __name__ == "__main__":
    main()
