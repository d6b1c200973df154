import math
from array import array

import numpy as np
import pytest

pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped, WrenchStamped
from sensor_msgs.msg import Image, JointState

from heisd_ros.config import CommandConfig
from heisd_ros.errors import DataError
from heisd_ros.nodes import conversions as convert
from heisd_ros.perception.images import ImageError
from heisd_ros.types import EndEffectorCommand, Frame, Proprioception, VisualFeatures

FINGERS = ("left", "right")


def image(encoding, height, width, step, data):
    message = Image(height=height, width=width, encoding=encoding, step=step)
    message.header.stamp = Time(sec=2, nanosec=5)
    message.data = array("B", data)
    return message


def pose(x=0.0, w=1.0):
    message = PoseStamped()
    message.header.stamp = Time(sec=1, nanosec=500_000_000)
    message.header.frame_id = "base"
    message.pose.position.x, message.pose.orientation.w = x, w
    return message


@pytest.mark.parametrize("stamp_ns", [0, 1, 999_999_999, 1_000_000_000, 1_700_000_000_123_456_789])
def test_stamp_goes_there_and_back(stamp_ns):
    assert convert.to_ns(convert.to_stamp(stamp_ns)) == stamp_ns


def test_padded_rows_are_cut_off():
    # Width 5, height 3, step 24: 15 bytes of picture and 9 of padding; pixel (r, c) = 10r, 10c, 7.
    rows = []
    for r in range(3):
        rows += [value for c in range(5) for value in (10 * r, 10 * c, 7)] + [255] * 9
    frame = convert.image_to_frame(image("rgb8", 3, 5, 24, [*rows, 1, 2, 3, 4]), "wrist")
    expected = [[[10 * r, 10 * c, 7] for c in range(5)] for r in range(3)]
    assert frame.image.tolist() == expected
    assert (frame.camera, frame.stamp_ns) == ("wrist", 2_000_000_005)


def test_blue_first_bytes_become_red():
    frame = convert.image_to_frame(image("bgr8", 1, 1, 3, [0, 0, 255]), "wrist")
    assert frame.image.tolist() == [[[255, 0, 0]]]


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [("16UC1", "depth_on_colour_input"), ("foo", "unknown_encoding"), ("", "unknown_encoding")],
)
def test_unusable_picture_is_refused_with_a_reason(encoding, reason):
    with pytest.raises(ImageError) as caught:
        convert.image_to_frame(image(encoding, 1, 1, 4, [0] * 4), "wrist")
    assert caught.value.reason == reason


def test_frame_goes_to_a_message_and_back():
    picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    message = convert.frame_to_image(Frame(picture, "wrist", 7), "optical")
    assert (message.encoding, message.step, message.header.frame_id) == ("rgb8", 12, "optical")
    assert np.array_equal(convert.image_to_frame(message, "wrist").image, picture)


def test_pose_carries_position_frame_and_stamp():
    state = convert.pose_to_proprioception(pose(0.25, w=2.0))
    assert state.position.tolist() == [0.25, 0.0, 0.0]
    assert state.orientation.tolist() == [0.0, 0.0, 0.0, 1.0]  # normalised
    assert (state.frame_id, state.stamp_ns) == ("base", 1_500_000_000)
    assert math.isnan(state.gripper_opening)


@pytest.mark.parametrize("bad", [pose(math.nan), pose(math.inf), pose(w=0.0), pose(w=math.nan)])
def test_pose_without_meaning_is_refused(bad):
    with pytest.raises(DataError, match="quaternion"):
        convert.pose_to_proprioception(bad)


def wrench(x, y, z):
    message = WrenchStamped()
    force = message.wrench.force
    force.x, force.y, force.z = x, y, z
    message.wrench.torque.x = 100.0
    return message


def test_the_force_of_a_wrench_is_its_norm_without_the_torque():
    assert convert.wrench_to_force(wrench(2.0, -3.0, 6.0)) == 7.0


@pytest.mark.parametrize(
    "bad", [(math.nan, 0.0, 0.0), (0.0, math.inf, 0.0), (math.inf, math.nan, 0.0)]
)
def test_a_force_that_is_not_finite_is_refused(bad):
    with pytest.raises(DataError, match="finite force"):
        convert.wrench_to_force(wrench(*bad))


def test_pose_goes_to_a_message_and_back():
    quaternion = np.array([0.0, 0.6, 0.0, 0.8])
    state = Proprioception(np.array([1.0, 2.0, 3.0]), quaternion, 0.5, 123, "world")
    back = convert.pose_to_proprioception(convert.proprioception_to_pose(state))
    assert back.position.tolist() == [1.0, 2.0, 3.0]
    assert np.allclose(back.orientation, quaternion, atol=1e-15)
    assert (back.stamp_ns, back.frame_id) == (123, "world")


def test_opening_is_the_sum_of_the_fingers_over_the_maximum():
    message = JointState(name=["j1", "left", "right"], position=[9.0, 0.01, 0.03])
    assert convert.joints_to_opening(message, FINGERS, 0.08) == pytest.approx(0.5)


def test_opening_stays_within_its_range():
    message = JointState(name=["left", "right"], position=[0.05, 0.05])
    assert convert.joints_to_opening(message, FINGERS, 0.08) == 1.0


def test_joint_message_of_the_arm_alone_says_nothing_about_the_gripper():
    assert convert.joints_to_opening(JointState(name=["j1"], position=[1.0]), FINGERS, 0.08) is None


@pytest.mark.parametrize(
    ("names", "positions"),
    [(["left"], [0.01]), (["left", "right"], [0.01]), (["left", "right"], [0.01, math.nan])],
)
def test_half_a_gripper_is_refused(names, positions):
    with pytest.raises(DataError, match="left, right"):
        convert.joints_to_opening(JointState(name=names, position=positions), FINGERS, 0.08)


def test_joints_go_to_a_message_and_back():
    state = Proprioception(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]), 0.75, 9)
    message = convert.proprioception_to_joints(state, FINGERS, 0.08)
    assert convert.joints_to_opening(message, FINGERS, 0.08) == pytest.approx(0.75)


def test_features_go_to_a_message_and_back_bit_for_bit():
    rng = np.random.default_rng(0)
    patches = rng.standard_normal((2, 3, 4)).astype(np.float32)
    embedding = rng.standard_normal(5).astype(np.float32)
    message = convert.features_to_embedding(
        VisualFeatures(patches, embedding, 77), with_patches=True, cameras=("a", "b"), encoder="e"
    )
    back = convert.embedding_to_features(message)
    assert np.array_equal(back.patches, patches)
    assert np.array_equal(back.embedding, embedding)
    assert (back.stamp_ns, message.encoder, list(message.cameras)) == (77, "e", ["a", "b"])


def test_composed_message_has_no_patches_and_is_refused_by_a_lone_decoder():
    features = VisualFeatures(np.zeros((1, 2, 3), np.float32), np.zeros(5, np.float32), 1)
    message = convert.features_to_embedding(
        features, with_patches=False, cameras=("a",), encoder=""
    )
    assert len(message.data) == 0
    with pytest.raises(DataError, match="patch numbers"):
        convert.embedding_to_features(message)


def test_damaged_patch_count_is_refused():
    features = VisualFeatures(np.zeros((1, 2, 3), np.float32), np.zeros(5, np.float32), 1)
    message = convert.features_to_embedding(features, with_patches=True, cameras=(), encoder="")
    message.channels = 4
    with pytest.raises(DataError, match="got 6"):
        convert.embedding_to_features(message)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["patches", "embedding"])
def test_features_that_are_not_finite_are_refused(part, value):
    patches, embedding = np.zeros((1, 2, 3), np.float32), np.zeros(5, np.float32)
    {"patches": patches, "embedding": embedding}[part][..., -1] = value
    message = convert.features_to_embedding(
        VisualFeatures(patches, embedding, 1), with_patches=True, cameras=("a",), encoder=""
    )
    with pytest.raises(DataError, match="finite"):
        convert.embedding_to_features(message)


def test_command_keeps_every_bit_on_the_way_over_the_wire():
    linear, angular = np.array([0.1, -0.2, 1 / 3]), np.array([1e-300, -0.0, 2.5])
    command = EndEffectorCommand(linear, angular, 0.25, "base", 42)
    back = convert.to_wire_command(
        convert.command_to_twist(command), convert.command_to_gripper(command, CommandConfig())
    )
    assert back.linear.tobytes() == linear.tobytes()
    assert back.angular.tobytes() == angular.tobytes()
    assert (back.gripper, back.frame_id, back.stamp_ns) == (0.25, "base", 42)


@pytest.mark.parametrize(
    ("convention", "opened", "closed"),
    [("open_is_one", 1.0, 0.0), ("minus_one_open", -1.0, 1.0), ("position_m", 0.08, 0.0)],
)
def test_gripper_message_speaks_the_configured_convention(convention, opened, closed):
    config = CommandConfig(gripper_convention=convention)
    for opening, value in ((1.0, opened), (0.0, closed)):
        command = EndEffectorCommand(np.zeros(3), np.zeros(3), opening, "base", 0)
        message = convert.command_to_gripper(command, config)
        assert message.value == pytest.approx(value)
        assert (message.opening, message.convention) == (opening, convention)
