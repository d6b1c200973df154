"""The doctor's facts, gathered from another node's topics over DDS."""

import numpy as np
import pytest
from geometry_msgs.msg import TwistStamped
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image

from heisd_ros.config import make_config
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes.clock import now_ns
from heisd_ros.nodes.graph_facts import gather_graph
from heisd_ros.types import Frame

CONFIG = make_config({"perception.cameras": ["wrist"]})


class Driver(Node):
    """A best-effort camera at 20 Hz, on a topic of its own, and somebody who commands the arm."""

    def __init__(self, context):
        super().__init__("driver", context=context)
        self.pictures = self.create_publisher(Image, "cam/color", qos_profile_sensor_data)
        self.twist = self.create_publisher(TwistStamped, "twist_cmd", 10)
        self.create_timer(0.05, self.send)

    def send(self):
        picture = np.zeros((48, 64, 3), dtype=np.uint8)
        frame = Frame(picture, "wrist", now_ns(self) - 100_000_000)
        self.pictures.publish(convert.frame_to_image(frame, "optical"))


@pytest.fixture
def remapped(domain_id):
    from heisd_ros.nodes.runtime import ros_context

    arguments = ["--ros-args", "-r", "wrist/image:=cam/color"]
    with ros_context(arguments, domain_id=domain_id) as made:
        yield made


def test_camera_and_second_publisher_are_seen_through_a_remapping(context, remapped, spin):
    spin(Driver(context))
    facts = gather_graph(CONFIG, remapped, 4.0)
    camera = facts.topics["image wrist"]
    assert camera.name == "/cam/color"
    assert [(p.node, p.reliability) for p in camera.publishers] == [("/driver", "best_effort")]
    assert camera.received > 0
    assert {k: camera.values[k] for k in ("width", "height", "encoding", "error")} == {
        "width": "64",
        "height": "48",
        "encoding": "rgb8",
        "error": "",
    }
    assert camera.frame_id == "optical"
    assert min(camera.ages_ns) >= 100_000_000
    assert facts.image_topics == ("/cam/color",)
    assert [peer.node for peer in facts.topics["twist_cmd"].publishers] == ["/driver"]
    assert facts.topics["ee_pose"].publishers == ()
    assert facts.topics["ee_pose"].received == 0
