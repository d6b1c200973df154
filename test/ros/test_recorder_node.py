"""What goes over real topics is in the bag, and the bag becomes the record of the run."""

import threading

import numpy as np
import pytest
from ros_fakes import FakeEncoder, LineEnvironment, ScriptedPolicy, constant, wait_until

pytest.importorskip("rosbags")

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.demonstrations.readers.rosbag2 import BagSettings
from heisd_ros.nodes.heisd_node import ComposedGraph
from heisd_ros.nodes.recorder_node import RecorderNode, recorded_topics, wait_for_end
from heisd_ros.offline.bag import run_record_from_bag
from heisd_ros.offline.replay import replay_bag

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.fixture
def config(tmp_path):
    return replace(
        HeisdConfig(),
        command__control_hz=20.0,
        command__max_linear=2.0,
        command__max_linear_step=4.0,
        simulation__max_steps=40,
        record__folder=str(tmp_path / "bag"),
        record__episodes=1,
    )


def test_a_run_over_topics_is_recorded_and_read_back(config, context, spin, tmp_path):
    recorder = spin(RecorderNode(config=config, context=context))
    policy = ScriptedPolicy(constant(MOVE))
    with ComposedGraph(
        config,
        context,
        with_simulation=True,
        environment=LineEnvironment(),
        policy=policy,
        encoder=FakeEncoder(),
    ) as graph:
        assert wait_until(recorder.ready)
        outcome = graph.simulation.play_episode(0, threading.Event())
        wait_for_end(recorder, threading.Event())
    recorder.close()
    assert (outcome.success, outcome.steps) == (True, 10)

    run = run_record_from_bag(tmp_path / "bag")
    assert (run.instruction, run.outcome, run.steps) == ("go right", "success", 10)
    assert run.suite == "libero_spatial"
    assert len(run.rows) == 10
    for step, row in enumerate(run.rows):
        assert row.position == pytest.approx((0.01 * step, 0.0, 0.5))
        assert row.stamp_s == pytest.approx(0.05 * step)
        assert row.gripper == pytest.approx(0.5)
        assert row.twist == pytest.approx((0.2, 0, 0, 0, 0, 0))  # 0.01 m in 1/20 s
        assert row.tokens == tuple(range(31744, 31751))
    assert run.config["command.control_hz"] == 20.0
    assert [(f.moment, f.camera) for f in run.frames][:2] == [
        ("start", "third_person"),
        ("start", "wrist"),
    ]
    assert run.frames[-1].image[0, 0, 0] == 9  # the picture's brightness is its number

    # The recorded pictures and poses give a policy what it was given live.
    again = ScriptedPolicy(constant(MOVE))
    replay = replay_bag(tmp_path / "bag", again, config)
    assert replay.agreement.same_actions == 1.0
    for live, replayed in zip(policy.observations, again.observations, strict=True):
        assert replayed.stamp_ns == live.stamp_ns
        assert np.array_equal(replayed.proprioception.position, live.proprioception.position)
        assert replayed.metric.displacement == live.metric.displacement


def test_patches_are_left_out_unless_asked_for(config, context, spin, tmp_path):
    recorder = spin(RecorderNode(config=config, context=context))
    from heisd_ros.msg import VisualEmbedding

    from heisd_ros.nodes import qos, topics

    speaker = spin(context_node(context))
    publisher = speaker.create_publisher(VisualEmbedding, topics.EMBEDDING, qos.FEATURES)
    assert wait_until(lambda: publisher.get_subscription_count() == 1)
    publisher.publish(VisualEmbedding(embedding=[1.0, 0.0], data=[0.5] * 64, patches=64))
    assert wait_until(lambda: recorder._writer.written["/embedding"] == 1)
    recorder.close()
    from heisd_ros.demonstrations.bag_files import BagFiles

    with BagFiles(tmp_path / "bag") as files:
        (message,) = files.messages(["/embedding"])
    assert list(message.content.embedding) == [1.0, 0.0]
    assert len(message.content.data) == 0
    assert message.content.patches == 64


def context_node(context):
    from rclpy.node import Node

    return Node("speaker", context=context)


def test_everything_that_a_reader_needs_is_recorded():
    topics = recorded_topics(replace(HeisdConfig(), ros__image_transport="compressed"))
    assert topics["wrist/image/compressed"] == "sensor_msgs/msg/CompressedImage"
    assert {"ee_pose", "joint_states", "instruction", "decode_report", "twist_cmd"} < set(topics)
    assert {"gripper_cmd", "episode_status", "trajectory_metric", "/clock"} < set(topics)


def test_a_folder_that_exists_is_not_overwritten(config, context, tmp_path):
    (tmp_path / "bag").mkdir()
    from heisd_ros.errors import DataError

    with pytest.raises(DataError, match="exists already"):
        RecorderNode(config=config, context=context)


def test_the_reader_finds_our_topics_in_a_namespace():
    names = {
        f"/arm/{name.lstrip('/')}": kind for name, kind in recorded_topics(HeisdConfig()).items()
    }
    from heisd_ros.demonstrations.bag_topics import find_topics

    found = find_topics(names, BagSettings().cameras)
    assert found.cameras["wrist"] == "/arm/wrist/image"
    assert found.roles["pose"] == "/arm/ee_pose"


def test_reader_settings_match_the_configuration_defaults():
    config = HeisdConfig()
    settings = BagSettings()
    assert settings.cameras == config.perception.cameras
    assert settings.finger_joints == config.ros.finger_joints
    assert settings.pairing_tolerance_s == config.perception.pairing_tolerance_s
