"""Looped bags, missing clocks and silent cameras: through all three nodes."""

import math

import numpy as np
import pytest
from rcl_interfaces.msg import Log
from rclpy.node import Node
from rclpy.parameter import Parameter
from ros.robot import Robot, speed_of
from ros_fakes import FakeEncoder, ScriptedPolicy, constant, wait_until
from sensor_msgs.msg import Image
from std_srvs.srv import Trigger

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes.conversions import frame_to_image
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.nodes.trajectory_node import TrajectoryNode
from heisd_ros.types import Frame

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
TENTH = 100_000_000
SECOND = 10 * TENTH
CAMERAS = ("third_person", "wrist")
CONFIG = replace(HeisdConfig(), arming__start="armed")
WARNING, INFO = 30, 20


class Player(Robot):
    """Publishes what a bag holds: pictures of two cameras, poses, joints and /clock."""

    def __init__(self, context, **options):
        super().__init__(context, **options)
        self.pictures = [self.create_publisher(Image, f"{c}/image", 10) for c in CAMERAS]

    def find_nodes(self):
        sinks = [*self.pictures, *self.inputs.values()]
        assert wait_until(lambda: all(p.get_subscription_count() for p in sinks), 15.0)
        assert wait_until(lambda: self.inputs["ee_pose"].get_subscription_count() == 2, 15.0)
        assert wait_until(lambda: self.clock_topic.get_subscription_count() == 3, 15.0)

    def play(self, stamp_ns, x):
        self.publish_clock(stamp_ns)
        self.publish_pose(stamp_ns, x)
        for publisher, camera in zip(self.pictures, CAMERAS, strict=True):
            image = np.zeros((2, 2, 3), np.uint8)
            publisher.publish(frame_to_image(Frame(image, camera, stamp_ns), camera))


@pytest.fixture
def play(context, spin):
    """The three nodes on simulated time, and a bag player that has found them."""
    time_ns = [0]
    overrides = [Parameter("use_sim_time", value=True)]
    options = {"config": CONFIG, "context": context, "parameter_overrides": overrides}
    policy = ScriptedPolicy(constant(MOVE))
    spin(PerceptionNode(encoder=FakeEncoder(), **options))
    spin(TrajectoryNode(**options))
    spin(DecoderNode(policy=policy, **options))
    player = spin(Player(context, time_ns=lambda: time_ns[0]))
    player.find_nodes()
    assert wait_until(lambda: player.count_publishers("trajectory_metric") == 1)

    def step(tenth, x):
        """One moment of the bag; waits for the decision, as far as there will be one."""
        time_ns[0] = tenth * TENTH
        decided = len(policy.observations)
        player.play(time_ns[0], x)
        return wait_until(lambda: len(policy.observations) > decided, 5.0)

    step.player, step.policy = player, policy
    return step


@pytest.mark.parametrize("starts", [(1000, 1000, 1000), (1000, 1600)], ids=["loops", "ahead"])
def test_every_loop_of_a_bag_decides_alike_and_nothing_is_measured_across_the_jump(play, starts):
    # 2 s at 10 Hz along x, 0.02 m per picture: the last position is 0.38 m from the first.
    length = 20
    play.player.instruct()
    decided = []
    for start in starts:
        before = len(play.policy.observations)
        for index in range(length):
            play(start + index, 0.02 * index)
        decided.append(play.policy.observations[before:])
    for loop in decided:
        assert abs(len(loop) - len(decided[0])) <= 1
        assert len(loop) >= length - 1
        for number, observation in enumerate(loop[-length:], length - len(loop)):
            metric = observation.metric
            # So many samples of this loop, not more than the window: none of the loop before.
            assert metric.samples <= number + 1
            assert metric.displacement == pytest.approx(0.02 * (metric.samples - 1), abs=1e-6)
            assert math.isnan(metric.fused) == (metric.samples < 3)


class LogReader(Node):
    def __init__(self, context):
        super().__init__("log_reader", context=context)
        self.lines = []
        self.create_subscription(Log, "/rosout", self._keep, 100)

    def _keep(self, message):
        self.lines.append((message.level, message.msg))

    def of(self, level, text):
        return [line for severity, line in self.lines if severity == level and text in line]


def test_without_a_clock_it_is_said_and_the_stop_service_answers(context, spin):
    log = spin(LogReader(context))
    overrides = [Parameter("use_sim_time", value=True)]
    policy = ScriptedPolicy(constant(MOVE))
    spin(DecoderNode(config=CONFIG, policy=policy, context=context, parameter_overrides=overrides))
    robot = spin(Robot(context, time_ns=lambda: 0))
    robot.find_peers()
    robot.instruct()
    robot.publish_picture(0)
    assert wait_until(lambda: log.of(WARNING, "waiting for /clock"))
    client = robot.create_client(Trigger, "decoder_node/stop")
    assert client.wait_for_service(10.0)
    answer = client.call_async(Trigger.Request())
    assert wait_until(answer.done)
    assert answer.result().success
    assert not policy.observations
    assert not any(speed_of(message) for _, _, message in robot.twists)


def test_a_loss_of_pictures_is_one_warning_and_their_return_one_line(context, spin):
    log = spin(LogReader(context))
    # Lives long, so that a busy machine does not lose a picture by itself.
    config = replace(CONFIG, command__lifetime_s=1.0, command__image_timeout_s=2.0)
    node = spin(DecoderNode(config=config, policy=ScriptedPolicy(constant(MOVE)), context=context))
    robot = spin(Robot(context))
    robot.find_peers()
    assert wait_until(lambda: node.count_subscribers("/rosout"))
    robot.instruct()
    for number in (1, 2):
        begin = robot.twists[-1][0] if robot.twists else 0.0
        end = robot.stream(20.0)
        assert wait_until(lambda begin=begin: robot.moving(begin))
        end()
        moved = robot.moving()[-1]
        assert wait_until(lambda moved=moved: len(robot.zeros(moved)) > 5)
        assert wait_until(lambda n=number: len(log.of(WARNING, "the arm is at rest")) == n)
        assert len(log.of(INFO, "decisions arrive, the arm moves")) == number
    assert "no_frames" in log.of(WARNING, "the arm is at rest")[0]
