"""Latency the nodes add: camera picture to twist through the composed graph, without a model.

    python bench/node_latency.py [--size 224] [--hz 20] [--steps 400]

Encoder and policy answer at once, so what is left is conversion, DDS, threads and guard. Prints
one JSON object: milliseconds from before the first picture is published until the twist that was
decided from it arrives. Camera and arm are one process, the graph is another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from geometry_msgs.msg import PoseStamped, TwistStamped
from heisd_ros.msg import DecodeReport
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes import qos
from heisd_ros.nodes.conversions import (
    frame_to_image,
    proprioception_to_joints,
    proprioception_to_pose,
    to_ns,
)
from heisd_ros.nodes.heisd_node import ComposedGraph
from heisd_ros.nodes.runtime import NodeThread, ros_context, share_interpreter
from heisd_ros.share import config_file
from heisd_ros.types import (
    Action,
    DecodeResult,
    DraftKind,
    Frame,
    Observation,
    Proprioception,
    VisualFeatures,
)
from heisd_ros.types import DecodeReport as Report

CAMERAS = ("third_person", "wrist")
FINGERS = HeisdConfig().ros.finger_joints
WARM_UP = 40
STATE_AHEAD_S = 0.005
"""State of the picture's moment comes first: a real encoder takes longer than a state topic."""


class NoModel:
    """An encoder and policy that answer at once."""

    def encode(self, frames: Sequence[Frame]) -> VisualFeatures:
        """Return features of the right size at once."""
        embedding = np.zeros(4352, np.float32)
        embedding[0] = 1.0
        return VisualFeatures(np.zeros((1, 1, 1), np.float32), embedding, frames[0].stamp_ns)

    def reset(self, instruction: str) -> None:
        """Nothing to reset."""

    def act(self, observation: Observation) -> DecodeResult:  # noqa: ARG002
        """Return one small motion at once."""
        action = Action(np.zeros(7, np.int64), np.array([0.01, 0, 0, 0, 0, 0, 1.0]))
        return DecodeResult(action, Report(DraftKind.AR, False, 1, 7, {"total": 0.0}))

    def end_episode(self, success: bool) -> None:
        """Nothing to learn."""


class Robot(Node):
    """Publishes pictures and state, notes when each twist arrives."""

    def __init__(self, context, size: tuple[int, int]) -> None:
        super().__init__("robot", context=context)
        self.image = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
        self.pause = threading.Event()
        self.arrived: dict[int, float] = {}
        self.decided: dict[int, int] = {}
        self.cameras = [self.create_publisher(Image, f"{c}/image", qos.FEATURES) for c in CAMERAS]
        self.pose = self.create_publisher(PoseStamped, "ee_pose", 10)
        self.joints = self.create_publisher(JointState, "joint_states", 10)
        self.instruction = self.create_publisher(String, "instruction", 10)
        self.create_subscription(TwistStamped, "twist_cmd", self.on_twist, 50)
        self.create_subscription(DecodeReport, "decode_report", self.on_report, 50)

    def on_twist(self, message: TwistStamped) -> None:
        """Note when the twist of a stamp arrived."""
        self.arrived[to_ns(message.header.stamp)] = time.perf_counter()

    def on_report(self, message: DecodeReport) -> None:
        """Note which twist was decided from a picture."""
        self.decided[to_ns(message.image_stamp)] = to_ns(message.header.stamp)

    def publish(self) -> tuple[int, float]:
        """Publish state and pictures; return their stamp and the time before the pictures."""
        stamp_ns = time.time_ns()
        orientation = np.array([0.0, 0.0, 0.0, 1.0])
        state = Proprioception(np.array([0.4, 0.0, 0.3]), orientation, 0.5, stamp_ns, "base")
        self.pose.publish(proprioception_to_pose(state))
        self.joints.publish(proprioception_to_joints(state, FINGERS, 0.08))
        images = [frame_to_image(Frame(self.image, c, stamp_ns), c) for c in CAMERAS]
        self.pause.wait(STATE_AHEAD_S)
        start = time.perf_counter()
        for publisher, image in zip(self.cameras, images, strict=True):
            publisher.publish(image)
        return stamp_ns, start


def serve() -> None:
    """Run the composed graph until standard input is closed."""
    share_interpreter()
    model = NoModel()
    config = replace(HeisdConfig(), arming__start="armed")
    with (
        ros_context([]) as context,
        ComposedGraph(config, context, with_simulation=False, policy=model, encoder=model),
    ):
        sys.stdin.read()


@contextmanager
def graph_in_a_process() -> Iterator[None]:
    """Run the composed graph beside us, as on a robot: cameras and arm are other processes."""
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(20)


def measure(size: tuple[int, int], hz: float, steps: int) -> list[float]:
    """Return milliseconds per decided picture."""
    pause = threading.Event()
    with graph_in_a_process(), ros_context([]) as context:
        robot = Robot(context, size)
        thread = NodeThread(robot)
        publishers = [*robot.cameras, robot.pose, robot.joints, robot.instruction]
        while not all(item.get_subscription_count() for item in publishers):
            pause.wait(0.01)
        pause.wait(1.0)
        robot.instruction.publish(String(data="go"))
        sent = []
        for _ in range(steps + WARM_UP):
            sent.append(robot.publish())
            pause.wait(1.0 / hz)
        pause.wait(0.5)
        thread.stop()
        robot.destroy_node()
    matched = [(start, robot.arrived.get(robot.decided.get(stamp, -1))) for stamp, start in sent]
    return [1e3 * (at - start) for start, at in matched[WARM_UP:] if at is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="224", help="side, or HEIGHTxWIDTH")
    parser.add_argument("--hz", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    # Pictures above 512 KiB do not fit the default shared memory of Fast DDS (Kilted, Jazzy names).
    for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        os.environ.setdefault(name, str(config_file("fastdds_large_images.xml")))
    sides = [int(part) for part in options.size.split("x")]
    latencies = measure((sides[0], sides[-1]), options.hz, options.steps)
    p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
    figures = {
        "pictures": f"2 x {options.size}",
        "hz": options.hz,
        "sent": options.steps,
        "decided": len(latencies),
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(max(latencies), 2),
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
