"""Markers and picture as another node receives them; the live view's state from the same topics."""

import time

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from heisd_ros.msg import DecodeReport, VisualEmbedding
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from ros_fakes import wait_until
from sensor_msgs.msg import Image

from heisd_ros.config import make_config
from heisd_ros.diagnosis.live import LiveState
from heisd_ros.diagnosis.palette import MODES
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes.live_node import LiveNode
from heisd_ros.types import Frame, Hits

markers = pytest.importorskip("visualization_msgs.msg")

CONFIG = make_config({"perception.cameras": ["wrist"], "command.translation_scale": 0.05})


class Store:
    def search(self, embedding, task, k, *, after=None):
        assert task == "go"
        whole = np.zeros(1, dtype=np.int64)
        action = np.array([[2.0, 0, 0, 0, 0, 0, 1.0]])
        return Hits(
            np.ones(1, np.float32),
            *(whole, whole, whole),
            action,
            np.zeros((1, 1, 7)),
            whole,
            np.zeros((1, 3)),
        )


class Robot(Node):
    def __init__(self, context):
        super().__init__("robot", context=context)
        self.arrays, self.images, self.x = [], [], 0.0
        self.create_subscription(
            markers.MarkerArray, "visualiser_node/markers", self.arrays.append, 1
        )
        self.create_subscription(Image, "visualiser_node/image", self.images.append, 5)
        self.pose = self.create_publisher(PoseStamped, "ee_pose", 10)
        self.report = self.create_publisher(DecodeReport, "decode_report", 10)
        self.embedding = self.create_publisher(VisualEmbedding, "embedding", 2)
        self.picture = self.create_publisher(Image, "wrist/image", qos_profile_sensor_data)

    def send(self):
        self.x += 0.01
        pose = PoseStamped()
        pose.header.frame_id = "base"
        pose.pose.position.x = self.x
        self.pose.publish(pose)
        report = DecodeReport(instruction="go", kind="drafter", decided=True, fused=0.1, forwards=3)
        report.header.stamp = convert.to_stamp(1_000_000_000)
        report.image_stamp = convert.to_stamp(900_000_000)
        report.stage, report.stage_ms = ["total"], [25.0]
        self.report.publish(report)
        message = VisualEmbedding()
        message.embedding = convert.to_array("f", [1.0])
        self.embedding.publish(message)
        frame = Frame(np.full((20, 60, 3), 7, np.uint8), "wrist", 1)
        self.picture.publish(convert.frame_to_image(frame, "optical"))


def test_markers_picture_and_live_state_arrive(context, spin):
    from heisd_ros.nodes.visualiser_node import VisualiserNode

    state = LiveState()
    spin(VisualiserNode(context=context, config=CONFIG, store=Store()))
    spin(LiveNode(state, context))
    robot = spin(Robot(context))

    def names():
        return [m.ns for m in robot.arrays[-1].markers[1:]] if robot.arrays else []

    def complete():
        robot.send()
        time.sleep(0.02)
        return names() == ["trajectory", "candidates"] and robot.images and state.last

    assert wait_until(complete, 20.0)
    trail, candidate = robot.arrays[-1].markers[1:]
    assert trail.header.frame_id == "base"
    assert len(trail.points) == len(trail.colors) > 1
    colour = trail.colors[-1]
    assert (colour.r, colour.g, colour.b) == pytest.approx(MODES["drafter"].rgb(), abs=1e-6)
    # One action of 2 units at 0.05 m per unit.
    assert candidate.points[1].x - candidate.points[0].x == pytest.approx(0.1)
    picture = convert.image_to_frame(robot.images[-1], "").image
    assert picture.shape == (20 + 8 + 24, 68, 3)
    assert (picture[4:24, 4:64] == 7).all()
    assert robot.images[-1].header.frame_id == "optical"
    assert (state.last.instruction, state.last.report.forwards) == ("go", 3)
    assert state.last.picture_age_s == pytest.approx(0.1)
