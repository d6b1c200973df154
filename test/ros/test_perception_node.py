import io

import numpy as np
import pytest
from heisd_ros.msg import VisualEmbedding
from PIL import Image as Picture
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_fakes import FakeEncoder, wait_until
from sensor_msgs.msg import CompressedImage, Image

from heisd_ros.nodes.conversions import frame_to_image, to_array, to_stamp
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.types import Frame

QOS = {
    "best_effort": QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT),
    "reliable": QoSProfile(depth=5, reliability=ReliabilityPolicy.RELIABLE),
    "transient_local": QoSProfile(depth=5, durability=DurabilityPolicy.TRANSIENT_LOCAL),
}


class Cameras(Node):
    """Two cameras, and a listener for what becomes of their pictures."""

    def __init__(self, context, *, profile=QOS["reliable"], kind=Image, suffix=""):
        super().__init__("cameras", context=context)
        self.received = []
        self.publishers_of = {
            camera: self.create_publisher(kind, f"{camera}/image{suffix}", profile)
            for camera in ("third_person", "wrist")
        }
        self.listener = self.create_subscription(
            VisualEmbedding, "embedding", self.received.append, 10
        )

    def find_peers(self):
        assert wait_until(
            lambda: (
                all(p.get_subscription_count() for p in self.publishers_of.values())
                and self.listener.get_publisher_count()
            )
        )

    def shoot(self, stamp_ns, value, cameras=("third_person", "wrist")):
        image = np.full((4, 6, 3), value, np.uint8)
        for camera in cameras:
            self.publishers_of[camera].publish(
                frame_to_image(Frame(image, camera, stamp_ns), f"{camera}_optical")
            )


@pytest.fixture
def make(context, spin):
    def build(*, exchange=None, profile=QOS["reliable"], kind=Image, suffix="", **overrides):
        parameters = [Parameter(k.replace("__", "."), value=v) for k, v in overrides.items()]
        encoder = FakeEncoder()
        node = PerceptionNode(
            encoder=encoder, exchange=exchange, context=context, parameter_overrides=parameters
        )
        cameras = Cameras(context, profile=profile, kind=kind, suffix=suffix)
        spin(node)
        spin(cameras)
        return node, cameras, encoder

    return build


@pytest.mark.parametrize("profile", QOS.values(), ids=QOS)
def test_every_kind_of_camera_is_heard_with_default_settings(make, profile):
    _, cameras, _ = make(profile=profile)
    cameras.find_peers()
    stamps = iter(range(1000, 2000))
    # Best effort may lose one: keep shooting, as a camera does.
    assert wait_until(lambda: cameras.shoot(next(stamps), 7) or cameras.received)
    message = cameras.received[0]
    assert message.data[0] == 7.0
    assert list(message.cameras) == ["third_person", "wrist"]
    assert message.header.frame_id.endswith("_optical")
    assert (message.views, message.patches, message.channels) == (2, 2, 3)


def test_a_best_effort_camera_and_a_reliable_subscription_are_warned_about(make, spin, context):
    from rcl_interfaces.msg import Log

    warnings = []
    listener = Node("log_reader", context=context)
    listener.create_subscription(Log, "/rosout", lambda m: warnings.append(m.msg), 50)
    spin(listener)
    make(profile=QOS["best_effort"], ros__camera_reliability="reliable")
    assert wait_until(lambda: any("wrist/image" in w and "RELIABILITY" in w for w in warnings))


def test_only_pictures_of_the_same_moment_are_encoded_together(make):
    _, cameras, encoder = make()
    cameras.find_peers()
    cameras.shoot(1_000_000_000, 1, cameras=("third_person",))
    cameras.shoot(2_000_000_000, 2, cameras=("wrist",))
    cameras.shoot(2_020_000_000, 3, cameras=("third_person",))  # 20 ms apart, 50 ms allowed
    assert wait_until(lambda: cameras.received)
    message = cameras.received[0]
    assert message.header.stamp == to_stamp(2_000_000_000)  # the oldest picture of the set
    views = np.array(message.data).reshape(2, 2, 3)
    assert (views[0, 0, 0], views[1, 0, 0]) == (3.0, 2.0)
    assert encoder.calls == 1


def test_within_a_process_the_patches_stay_and_the_message_stays_small(make):
    exchange = FeatureExchange()
    _, cameras, _ = make(exchange=exchange)
    cameras.find_peers()
    cameras.shoot(5, 9)
    assert wait_until(lambda: cameras.received)
    assert len(cameras.received[0].data) == 0
    assert exchange.take(5).patches[0, 0, 0] == 9.0


def test_unusable_pictures_are_counted_and_good_ones_still_encoded(make):
    node, cameras, _ = make()
    cameras.find_peers()
    depth = Image(height=1, width=1, encoding="16UC1", step=2, data=to_array("B", [0, 0]))
    short = Image(height=9, width=9, encoding="rgb8", step=27, data=to_array("B", [0, 0]))
    for bad in (depth, short, depth):
        cameras.publishers_of["wrist"].publish(bad)
    cameras.shoot(5, 9)
    assert wait_until(lambda: cameras.received)
    assert node.counts["depth_on_colour_input"] == 2
    assert node.counts["short_data"] == 1


def test_compressed_pictures_are_heard_if_configured(make):
    _, cameras, _ = make(
        kind=CompressedImage, suffix="/compressed", ros__image_transport="compressed"
    )
    cameras.find_peers()
    buffer = io.BytesIO()
    Picture.new("RGB", (8, 8), (200, 0, 0)).save(buffer, "PNG")
    message = CompressedImage(format="png", data=to_array("B", list(buffer.getvalue())))
    message.header.stamp = to_stamp(5)
    for publisher in cameras.publishers_of.values():
        publisher.publish(message)
    assert wait_until(lambda: cameras.received)
    assert np.array(cameras.received[0].data).reshape(2, 2, 3)[0, 0].tolist() == [200.0, 0.0, 0.0]


def test_without_pictures_the_diagnostics_say_so(make, spin, context):
    from diagnostic_msgs.msg import DiagnosticArray

    texts = []
    reader = Node("reader", context=context)
    reader.create_subscription(
        DiagnosticArray, "/diagnostics", lambda m: texts.append(m.status[0].message), 10
    )
    spin(reader)
    make()
    assert wait_until(lambda: "no_frames" in texts)
