"""Another node that publishes commands on our topics is named and counted."""

import pytest
from geometry_msgs.msg import TwistStamped
from heisd_ros.msg import GripperCommand
from rclpy.node import Node
from ros.robot import Robot
from ros_fakes import ScriptedPolicy, constant, wait_until

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.runtime import ros_context

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
OK, WARN, ERROR = b"\x00", b"\x01", b"\x02"


def statuses(robot):
    """Level, text and values of what the decoder has said of itself, oldest first."""
    return [
        (status.level, status.message, {pair.key: pair.value for pair in status.values})
        for _, _, array in list(robot.statuses)
        for status in array.status
        if status.name.startswith("decoder_node")
    ]


@pytest.fixture
def other(domain_id):
    """A node in a participant of its own, as another process has it."""
    with ros_context([], domain_id=domain_id) as context:
        node = Node("teleop", namespace="/desk", context=context)
        yield node
        node.destroy_node()


@pytest.mark.parametrize(("start", "level"), [("armed", ERROR), ("disarmed", WARN)])
def test_a_second_publisher_is_told_with_its_name_until_it_is_gone(
    context, spin, other, start, level
):
    config = replace(HeisdConfig(), arming__start=start)
    decoder = DecoderNode(config=config, policy=ScriptedPolicy(constant(MOVE)), context=context)
    spin(decoder)
    robot = spin(Robot(context))
    assert wait_until(lambda: statuses(robot) and statuses(robot)[-1][1] != "unconfigured")
    assert "foreign_publisher" not in statuses(robot)[-1][1]
    assert statuses(robot)[-1][2]["other_publishers"] == ""
    publishers = [
        other.create_publisher(kind, topic, 1)
        for kind, topic in ((TwistStamped, "/twist_cmd"), (GripperCommand, "/gripper_cmd"))
    ]
    named = "/desk/teleop on /twist_cmd, /desk/teleop on /gripper_cmd"
    assert wait_until(lambda: statuses(robot)[-1][2]["other_publishers"] == named, 30.0)
    told = statuses(robot)[-1]
    assert told[:2] == (level, f"foreign_publisher {named}")
    assert decoder.pilot.counts["foreign_publisher"] == 2
    for publisher in publishers:
        other.destroy_publisher(publisher)
    assert wait_until(lambda: statuses(robot)[-1][2]["other_publishers"] == "", 30.0)
    assert statuses(robot)[-1][2]["foreign_publisher"] == "2"  # it was there


def test_a_second_decoder_of_the_same_name_is_another_one(context, spin, domain_id):
    first = DecoderNode(policy=ScriptedPolicy(constant(MOVE)), context=context)
    spin(first)
    with ros_context([], domain_id=domain_id) as elsewhere:
        second = DecoderNode(policy=ScriptedPolicy(constant(MOVE)), context=elsewhere)
        assert second.bring_up()
        assert wait_until(lambda: first.pilot.counts["foreign_publisher"] >= 2, 30.0)
        second.close()
        second.destroy_node()


def test_the_graph_is_not_asked_at_every_tick(context, monkeypatch):
    decoder = DecoderNode(policy=ScriptedPolicy(constant(MOVE)), context=context)
    assert decoder.bring_up()
    asked = []
    for name in ("get_publishers_info_by_topic", "count_publishers", "get_topic_names_and_types"):
        monkeypatch.setattr(decoder, name, lambda *args: asked.append(args) or [])
    for _ in range(50):
        decoder._tick()
    assert asked == []
    decoder.status()  # once per second
    assert len(asked) == 2
    decoder.close()
    decoder.destroy_node()
