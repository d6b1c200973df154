"""A robot for tests of the decoder node: publishes its inputs, records its outputs."""

from __future__ import annotations

import threading
import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped, TwistStamped
from heisd_ros.msg import DecodeReport, GripperCommand, VisualEmbedding
from rclpy.node import Node
from ros_fakes import wait_until
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from heisd_ros.nodes import conversions as convert
from heisd_ros.types import Proprioception, VisualFeatures


class Robot(Node):
    """Wall time unless `time_ns` is given."""

    def __init__(self, context, *, time_ns=time.time_ns):
        super().__init__("robot", context=context)
        self.time_ns = time_ns
        self.twists, self.reports, self.grippers, self.statuses = [], [], [], []
        self.outputs = []
        for kind, topic, kept in (
            (TwistStamped, "twist_cmd", self.twists),
            (GripperCommand, "gripper_cmd", self.grippers),
            (DecodeReport, "decode_report", self.reports),
            (DiagnosticArray, "/diagnostics", self.statuses),
        ):
            self.outputs.append(self.create_subscription(kind, topic, self._keeper(kept), 100))
        self.inputs = {
            topic: self.create_publisher(kind, topic, 10)
            for kind, topic in (
                (String, "instruction"),
                (VisualEmbedding, "embedding"),
                (PoseStamped, "ee_pose"),
                (JointState, "joint_states"),
            )
        }
        self.clock_topic = self.create_publisher(Clock, "/clock", 10)
        self.seen = np.ones((1, 1, 2), np.float32), np.array([1.0], np.float32), ("a",), ""
        """Patches, embedding, cameras and encoder that are published as a picture."""

    def _keeper(self, kept):
        return lambda message: kept.append((time.monotonic(), self.time_ns(), message))

    def find_peers(self, timeout_s=15.0):
        """Wait until the decoder hears us and we hear it."""
        assert wait_until(
            lambda: (
                all(p.get_subscription_count() for p in self.inputs.values())
                and all(s.get_publisher_count() for s in self.outputs)
            ),
            timeout_s,
        )

    def instruct(self, text="go"):
        self.inputs["instruction"].publish(String(data=text))

    def publish_pose(self, stamp_ns, x=0.0):
        orientation = np.array([0.0, 0.0, 0.0, 1.0])
        state = Proprioception(np.array([x, 0.0, 0.5]), orientation, 0.5, stamp_ns, "base")
        self.inputs["ee_pose"].publish(convert.proprioception_to_pose(state))
        fingers = ("panda_finger_joint1", "panda_finger_joint2")
        self.inputs["joint_states"].publish(convert.proprioception_to_joints(state, fingers, 0.08))

    def publish_picture(self, stamp_ns=None):
        """Publish state and features of one moment."""
        stamp_ns = self.time_ns() if stamp_ns is None else stamp_ns
        self.publish_pose(stamp_ns)
        patches, embedding, cameras, encoder = self.seen
        self.inputs["embedding"].publish(
            convert.features_to_embedding(
                VisualFeatures(patches, embedding, stamp_ns),
                with_patches=True,
                cameras=cameras,
                encoder=encoder,
            )
        )

    def stream(self, hz):
        """Publish pictures at a rate until the returned function is called."""
        stop = threading.Event()

        def run():
            while not stop.wait(1.0 / hz):
                self.publish_picture()

        thread = threading.Thread(target=run)
        thread.start()

        def end():
            stop.set()
            thread.join()

        return end

    def publish_clock(self, stamp_ns):
        self.clock_topic.publish(Clock(clock=convert.to_stamp(stamp_ns)))

    def moving(self, since=0.0):
        """Times at which a twist other than zero arrived."""
        return [at for at, _, m in self.twists if at >= since and speed_of(m) > 0.0]

    def zeros(self, since=0.0):
        """Times at which a zero twist arrived."""
        return [at for at, _, m in self.twists if at >= since and speed_of(m) == 0.0]

    def diagnosis(self, part):
        """Texts of the statuses whose name contains `part`."""
        return [s.message for _, _, a in self.statuses for s in a.status if part in s.name]


def speed_of(message):
    """Norm of the linear velocity, m/s."""
    v = message.twist.linear
    return (v.x**2 + v.y**2 + v.z**2) ** 0.5
