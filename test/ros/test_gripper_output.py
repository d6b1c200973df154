"""What a gripper controller in another process receives."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest
import ros_interfaces
from rclpy.node import Node
from ros.robot import Robot, speed_of
from ros.scribe import Scribe
from ros_fakes import wait_until

from heisd_ros.config import GripperConfig
from heisd_ros.errors import MissingDependencyError
from heisd_ros.nodes.gripper_output import GripperOutput, make_gripper_output
from heisd_ros.share import share_dir

START_S = 60.0
JOINTS = ("left_finger", "right_finger")
TOPICS = ("float64_multi_array", "joint_trajectory")
ACTIONS = ("parallel_gripper_action", "gripper_action")
CONFIG = GripperConfig(joints=JOINTS, open_position=0.04, closed_position=0.01, deadline_s=1.0)


@pytest.fixture
def output(context, spin):
    """Make the output of a node that spins; closed when the node has stopped spinning.

    An action client that is destroyed while its node still waits for it ends the process.
    """

    def make(kind, **changes):
        if kind in ACTIONS:
            ros_interfaces.need("control_msgs")
        node = Node("arm", context=context)
        made = GripperOutput(node, dataclasses.replace(CONFIG, output=kind, **changes))
        node.close = made.close
        spin(node)
        return made

    return make


@pytest.fixture
def gripper(domain_id):
    """Start a controller in a process of its own; killed at the end."""
    started = []

    def start(kind, behaviour="reach"):
        if kind in ACTIONS:
            ros_interfaces.need("control_msgs")
        started.append(Scribe("fake_gripper.py", domain_id, kind, behaviour))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def positions(process, event):
    return [line["values"] for line in process.of(event)]


@pytest.mark.parametrize("kind", TOPICS)
def test_a_controller_on_a_topic_gets_every_change_once(output, gripper, kind):
    if kind == "joint_trajectory":
        ros_interfaces.need("trajectory_msgs")
    arm = output(kind)
    arm.want(1.0)
    controller = gripper(kind)  # later than the first decision
    assert wait_until(lambda: controller.of("position"), START_S)
    arm.want(1.0)
    arm.want(0.0)
    assert wait_until(lambda: len(controller.of("position")) == 2)
    assert positions(controller, "position") == [[0.04, 0.04], [0.01, 0.01]]
    if kind == "joint_trajectory":
        assert controller.of("position")[0]["joints"] == list(JOINTS)
        assert controller.of("position")[0]["s"] == 0.5
    assert arm.counts == {"gripper_absent": 1}


@pytest.mark.parametrize("kind", ACTIONS)
def test_an_action_server_that_appears_late_gets_the_goal_and_one_for_each_change(
    output, gripper, kind
):
    arm = output(kind)
    arm.want(1.0)
    assert wait_until(lambda: arm.counts["gripper_absent"] == 1)
    controller = gripper(kind)
    assert wait_until(lambda: len(controller.of("result")) == 1, START_S)
    for _ in range(3):
        arm.want(1.0)
    arm.want(0.0)
    assert wait_until(lambda: len(controller.of("result")) == 2)
    each = 2 if kind == "parallel_gripper_action" else 1
    assert positions(controller, "goal") == [[0.04] * each, [0.01] * each]
    assert controller.of("goal")[0]["effort"] == [20.0] * each
    assert arm.counts == {"gripper_absent": 1}


def test_a_server_that_never_answers_has_one_goal_at_a_time_and_a_deadline(output, gripper):
    controller = gripper("gripper_action", "never")
    arm = output("gripper_action")
    arm.want(1.0)
    assert wait_until(lambda: len(controller.of("goal")) == 1, START_S)
    arm.want(0.0)  # cancelled, the controller goes on: nothing more until the deadline
    assert wait_until(lambda: controller.of("cancel"))
    assert wait_until(lambda: len(controller.of("goal")) == 2)
    assert arm.counts["gripper_deadline"] == 1
    assert positions(controller, "goal") == [[0.04], [0.01]]


@pytest.mark.parametrize(
    ("behaviour", "counts"),
    [
        ("stall", {}),  # it holds something
        ("abort", {"gripper_failed": 1}),
        ("reject", {"gripper_rejected": 1}),
    ],
)
def test_stalled_is_a_grasp_and_failures_are_counted(output, gripper, behaviour, counts):
    controller = gripper("gripper_action", behaviour)
    assert wait_until(lambda: controller.of("ready"), START_S)
    arm = output("gripper_action")
    arm.want(0.0)
    event = "goal" if behaviour == "reject" else "result"
    assert wait_until(lambda: controller.of(event))
    assert wait_until(lambda: arm._goals.outstanding is None)
    arm.counts.pop("gripper_absent", None)  # before discovery
    assert arm.counts == counts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_goal_ends_the_decoder_at_once_and_cleanly(
    gripper, context, spin, domain_id, number
):
    ros_interfaces.need("control_msgs")
    controller = gripper("gripper_action", "never")
    program = """
from ros_fakes import ScriptedPolicy, constant
from heisd_ros.nodes.decoder_node import DecoderNode, watch_fatal
from heisd_ros.nodes.runtime import run_node
policy = ScriptedPolicy(constant([0.01, 0, 0, 0, 0, 0, 0.0]))
values = {
    "arming.start": "armed", "gripper.output": "gripper_action", "command.image_timeout_s": "5.0"
}
arguments = ["--ros-args"]
for name, value in values.items():
    arguments += ["-p", f"{name}:={value}"]
make = lambda context: DecoderNode(policy=policy, context=context)
raise SystemExit(run_node(make, arguments, watch_fatal))
"""
    paths = [str(share_dir()), str(share_dir() / "test"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain_id),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    robot = spin(Robot(context))
    robot.find_peers(START_S)
    robot.instruct()
    end = robot.stream(5.0)
    assert wait_until(lambda: controller.of("executing"), START_S)
    seen = len(robot.reports)  # the decoder learns of the acceptance within a few decisions
    assert wait_until(lambda: len(robot.reports) >= seen + 5, START_S)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    end()
    assert (process.returncode, "Traceback" in output) == (0, False), output
    assert wait_until(lambda: speed_of(robot.twists[-1][2]) == 0.0)
    assert wait_until(lambda: controller.of("cancel"))  # asked for once, not waited for
    assert len(controller.of("goal")) == 1


@pytest.mark.parametrize("kind", ACTIONS)
def test_without_control_msgs_the_error_says_what_to_install(context, monkeypatch, kind):
    monkeypatch.setitem(sys.modules, "control_msgs.action", None)
    node = Node("arm", context=context)
    with pytest.raises(MissingDependencyError, match="ros-<distribution>-control-msgs"):
        make_gripper_output(node, dataclasses.replace(CONFIG, output=kind))
    node.destroy_node()


def test_no_output_is_made_unless_asked_for(context):
    node = Node("arm", context=context)
    assert make_gripper_output(node, GripperConfig()) is None
    node.destroy_node()
