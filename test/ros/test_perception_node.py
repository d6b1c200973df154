import io
import itertools
import threading

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from heisd_ros.msg import VisualEmbedding
from PIL import Image as Picture
from rcl_interfaces.msg import Log
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_fakes import FakeEncoder, wait_until
from rosgraph_msgs.msg import Clock
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


def test_unusable_pictures_are_counted_told_once_and_good_ones_still_encoded(make, spin, context):
    reader = spin(Reader(context))
    node, cameras, _ = make()
    cameras.find_peers()
    assert wait_until(lambda: node.count_subscribers("/rosout"))
    depth = Image(height=1, width=1, encoding="16UC1", step=2, data=to_array("B", [0, 0]))
    short = Image(height=9, width=9, encoding="rgb8", step=27, data=to_array("B", [0, 0]))
    for bad in (depth, short, depth):
        cameras.publishers_of["wrist"].publish(bad)
    cameras.publishers_of["third_person"].publish(depth)
    cameras.shoot(5, 9)
    assert wait_until(lambda: cameras.received)
    assert wait_until(lambda: node.counts["depth_on_colour_input"] == 3)
    assert node.counts["short_data"] == 1
    assert wait_until(lambda: reader.logged(WARNING, "third_person: "))
    # One line per camera and reason, however many pictures.
    assert len(reader.logged(WARNING, "wrist: ")) == 2
    assert len(reader.logged(WARNING, "third_person: ")) == 1


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


class Reader(Node):
    """What the diagnostics and the log say."""

    def __init__(self, context):
        super().__init__("reader", context=context)
        self.statuses, self.log = [], []
        self.create_subscription(DiagnosticArray, "/diagnostics", self._keep, 10)
        self.create_subscription(Log, "/rosout", self._log, 50)

    def _keep(self, message):
        self.statuses += [s for s in message.status if "pictures" in s.name]

    def _log(self, message):
        self.log.append((message.level, message.msg))

    def status(self):
        """Level, text and values of the newest status."""
        if not self.statuses:
            return None
        newest = self.statuses[-1]
        return newest.level, newest.message, {v.key: v.value for v in newest.values}

    def logged(self, level, text):
        return [message for severity, message in self.log if severity == level and text in message]


WARNING, INFO = 30, 20


def test_without_pictures_the_diagnostics_say_so(make, spin, context):
    reader = spin(Reader(context))
    make()
    assert wait_until(lambda: reader.status() and reader.status()[1].startswith("no_frames"))
    level, text, values = reader.status()
    assert (level, text) == (DiagnosticStatus.WARN, "no_frames: third_person wrist")
    assert values["wrist.last_stamp_ns"] == "None"


def shoot_until(cameras, condition, stamps, which, timeout_s=10.0, value=7):
    """Shoot at 50 Hz until the condition holds; `stamps` may repeat."""

    def step():
        cameras.shoot(next(stamps), value, cameras=which)
        return wait_until(condition, 0.02)

    return wait_until(step, timeout_s)


@pytest.mark.parametrize("how", ["no_frames", "frozen"])
def test_one_camera_that_is_lost_is_named_and_nothing_is_encoded_without_it(
    make, spin, context, how
):
    reader = spin(Reader(context))
    # With the shortest time-out a busy machine would lose the other camera too.
    node, cameras, _ = make(command__image_timeout_s=1.0, command__lifetime_s=0.3)
    cameras.find_peers()
    assert wait_until(lambda: node.count_subscribers("/rosout"))
    stamps = itertools.count(1_000_000_000, 20_000_000)
    both = ("third_person", "wrist")
    assert shoot_until(cameras, lambda: len(cameras.received) >= 3, stamps, both)
    last_ns = next(stamps) - 20_000_000
    assert wait_until(lambda: cameras.received[-1].header.stamp == to_stamp(last_ns))
    seen = len(cameras.received)
    if how == "frozen":
        repeat = iter(lambda: last_ns, None)

    def told():
        if how == "frozen":  # the wrist repeats its last picture
            cameras.shoot(next(repeat), 7, cameras=("wrist",))
        status = reader.status()
        return status[1] == f"{how}: wrist" if status else False

    assert shoot_until(cameras, told, stamps, ("third_person",))
    level, _, values = reader.status()
    assert level == DiagnosticStatus.WARN
    assert float(values["wrist.silent_s"]) > 1.0
    assert values["wrist.last_stamp_ns"] == str(last_ns)
    assert "third_person.silent_s" not in values
    assert len(cameras.received) == seen
    assert shoot_until(cameras, lambda: len(cameras.received) > seen, stamps, both)
    assert shoot_until(cameras, lambda: reader.status()[1] == "ok", stamps, both)
    assert reader.logged(WARNING, "wrist: no usable picture") == [
        f"wrist: no usable picture for 1.0 s ({how})"
    ]
    assert len(reader.logged(INFO, "wrist: pictures arrive")) == 1


def test_a_camera_whose_pictures_are_refused_is_lost_for_that_reason(make, spin, context):
    reader = spin(Reader(context))
    _, cameras, _ = make()
    cameras.find_peers()
    depth = Image(height=1, width=1, encoding="16UC1", step=2, data=to_array("B", [0, 0]))

    def told():
        cameras.publishers_of["wrist"].publish(depth)
        return reader.status() and "depth_on_colour_input: wrist" in reader.status()[1]

    stamps = itertools.count(1_000_000_000, 20_000_000)
    assert shoot_until(cameras, told, stamps, ("third_person",))
    assert not cameras.received


class Bag:
    """Plays pictures and /clock as a looped bag does."""

    def __init__(self, node, cameras):
        self.node, self.cameras = node, cameras
        self._clock = cameras.create_publisher(Clock, "/clock", 10)
        assert wait_until(self._clock.get_subscription_count)

    def time(self, stamp_ns):
        """Set the time and wait until the node has it."""
        self._clock.publish(Clock(clock=to_stamp(stamp_ns)))
        assert wait_until(lambda: self.node.get_clock().now().nanoseconds == stamp_ns)

    def taken(self):
        """Pictures the node has looked at."""
        return self.node.counts["frames"]

    def picture(self, stamp_ns, camera, value=7):
        seen = self.taken()
        self.cameras.shoot(stamp_ns, value, cameras=(camera,))
        assert wait_until(lambda: self.taken() == seen + 1)

    def stamps(self):
        """Stamps of the features that another node received, in tenths of a second."""
        return [
            (m.header.stamp.sec * 10**9 + m.header.stamp.nanosec) // TENTH
            for m in self.cameras.received
        ]


TENTH = 100_000_000


@pytest.fixture
def bag(make):
    node, cameras, encoder = make(use_sim_time=True)
    cameras.find_peers()
    made = Bag(node, cameras)
    made.encoder = encoder
    return made


def test_every_loop_of_a_bag_gives_the_same_sets(bag):
    for loop in range(3):
        for tenth in range(1000, 1010):  # from 100.0 s to 100.9 s, as ros2 bag play --loop
            bag.time(tenth * TENTH)
            bag.picture(tenth * TENTH, "third_person")
            bag.picture(tenth * TENTH, "wrist")
            number = 10 * loop + tenth - 999
            assert wait_until(lambda number=number: len(bag.stamps()) == number)
    assert bag.stamps() == [*range(1000, 1010)] * 3
    assert bag.node.counts["clock_back"] == 2
    assert not bag.node._pairer.drops


def test_a_picture_of_the_last_loop_never_pairs_with_one_of_this_loop(bag):
    bag.time(1000 * TENTH)
    bag.picture(1000 * TENTH, "third_person")
    for tenth in range(1000, 1006):  # the first camera of the bag ends early
        bag.time(tenth * TENTH)
        bag.picture(tenth * TENTH, "wrist")
    assert wait_until(lambda: bag.stamps() == [1000])
    bag.time(1000 * TENTH)
    # No stamp of this camera has gone back: only /clock tells that time has.
    bag.picture(1005 * TENTH, "third_person")
    bag.picture(1006 * TENTH, "third_person")
    bag.picture(1006 * TENTH, "wrist")
    assert wait_until(lambda: len(bag.stamps()) == 2)
    assert bag.stamps() == [1000, 1006]
    assert bag.node._pairer.drops["time_jumped_back"] == 5


def test_a_late_picture_of_the_last_loop_costs_no_set_of_this_loop(bag):
    bag.time(1050 * TENTH)
    bag.time(1000 * TENTH)
    bag.picture(1001 * TENTH, "third_person")
    bag.picture(1049 * TENTH, "wrist")  # on its way since before the jump
    bag.picture(1001 * TENTH, "wrist")
    assert wait_until(lambda: bag.stamps() == [1001])
    assert bag.node.counts["ahead_of_clock"] == 1


def test_pictures_that_come_just_before_their_time_are_paired(bag):
    bag.time(1050 * TENTH)
    bag.picture(1050 * TENTH, "wrist")
    bag.picture(1000 * TENTH, "wrist")  # the first of the next loop, before /clock says so
    bag.time(1000 * TENTH)
    bag.picture(1000 * TENTH, "third_person")
    assert wait_until(lambda: bag.stamps() == [1000])


def test_features_of_the_last_loop_that_are_still_being_made_are_not_sent(bag):
    busy, go_on = threading.Event(), threading.Event()
    encode = bag.encoder.encode

    def slowly(frames):
        busy.set()
        assert go_on.wait(30)
        return encode(frames)

    bag.encoder.encode = slowly
    bag.time(1050 * TENTH)
    bag.picture(1050 * TENTH, "third_person")
    bag.picture(1050 * TENTH, "wrist")
    assert busy.wait(10)
    bag.time(1000 * TENTH)
    go_on.set()
    bag.picture(1000 * TENTH, "third_person")
    bag.picture(1000 * TENTH, "wrist")
    assert wait_until(bag.stamps)
    assert bag.stamps() == [1000]
    assert bag.node.counts["time_jumped_back"] == 2
