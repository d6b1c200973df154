"""Dry run, emergency stop, dead man's switch and stop service of an arm that is not simulated."""

import time

import pytest
from geometry_msgs.msg import TwistStamped
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from ros.robot import Robot, speed_of
from ros_fakes import ScriptedPolicy, constant, wait_until
from std_msgs.msg import Bool, Float64MultiArray
from std_srvs.srv import Trigger

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes import qos
from heisd_ros.nodes.decoder_node import DecoderNode

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # 0.05 m/s at 5 Hz
CONFIG = replace(HeisdConfig(), command__lifetime_s=2.0, command__image_timeout_s=2.0)
PUBLISHERS = {
    "best_effort": qos_profile_sensor_data,
    "reliable": QoSProfile(depth=1),
    "latched": qos.LATCHED,
}


class Operator(Robot):
    """A robot with a person beside it."""

    def __init__(self, context):
        super().__init__(context)
        self.wanted = []
        self.create_subscription(TwistStamped, "wanted_twist", self._keeper(self.wanted), 10)

    def ask(self, service):
        """Call a Trigger service of the decoder and return the answer."""
        client = self.create_client(Trigger, f"decoder_node/{service}")
        assert client.wait_for_service(10.0)
        answer = client.call_async(Trigger.Request())
        assert wait_until(answer.done)
        return answer.result()

    def button(self, topic, profile):
        """Return a publisher that the decoder hears."""
        publisher = self.create_publisher(Bool, topic, profile)
        assert wait_until(lambda: publisher.get_subscription_count() > 0)
        return publisher

    def move(self):
        """Show pictures until the arm moves; return since when."""
        since = time.monotonic()

        def moves():
            self.publish_picture()
            return bool(self.moving(since))

        assert wait_until(moves)
        return since

    def assert_stays(self, since, pictures=5):
        """Pictures move nothing any more."""
        seen = len(self.reports)
        for n in range(pictures):
            self.publish_picture()
            assert wait_until(lambda n=n: len(self.reports) > seen + n)
        assert not self.moving(since)


@pytest.fixture
def make(context, spin):
    def build(**overrides):
        config = replace(CONFIG, **overrides)
        policy = ScriptedPolicy(constant(MOVE))
        decoder, operator = DecoderNode(config=config, policy=policy, context=context), None
        spin(decoder)
        operator = spin(Operator(context))
        operator.find_peers()
        operator.instruct()
        return decoder, operator

    return build


def test_a_dry_run_decides_and_shows_it_and_says_nothing_to_the_arm_until_armed(make):
    _, operator = make()
    operator.publish_picture()
    assert wait_until(lambda: operator.reports)
    report = operator.reports[0][2]
    assert (report.decided, report.reason) == (False, "dry_run")
    assert wait_until(lambda: operator.wanted)
    assert speed_of(operator.wanted[0][2]) == pytest.approx(0.05)
    assert wait_until(lambda: any("dry_run" in text for text in operator.diagnosis("decisions")))
    said = len(operator.twists)
    assert not wait_until(lambda: len(operator.twists) > said, 0.3)  # silent, 15 periods long
    assert operator.ask("arm").success
    operator.move()
    disarmed = operator.ask("disarm")
    assert disarmed.success
    since = time.monotonic()
    operator.assert_stays(since)


@pytest.mark.parametrize("kind", PUBLISHERS)
def test_an_emergency_stop_is_heard_from_every_kind_of_publisher_and_latches(make, kind, jitter):
    _, operator = make(arming__start="armed")
    button = operator.button("estop", PUBLISHERS[kind])
    operator.move()
    pressed = time.monotonic()
    button.publish(Bool(data=True))
    assert wait_until(lambda: operator.zeros(pressed))
    zero = operator.zeros(pressed)[0]
    assert zero - pressed < 0.05 + 4 * jitter.worst_s
    operator.assert_stays(zero)
    assert not operator.ask("arm").success  # still pressed
    button.publish(Bool(data=False))
    assert wait_until(lambda: operator.ask("arm").success)
    operator.move()


def test_a_button_that_was_pressed_before_the_decoder_came_is_heard_if_it_latches(context, spin):
    operator = spin(Operator(context))
    operator.create_publisher(Bool, "estop", qos.LATCHED).publish(Bool(data=True))
    decoder = DecoderNode(config=CONFIG, policy=ScriptedPolicy(constant(MOVE)), context=context)
    spin(decoder)
    operator.find_peers()
    assert wait_until(lambda: operator.ask("arm").message == "estop")


def test_the_arm_moves_only_while_the_dead_mans_switch_is_held(make, jitter):
    _, operator = make(arming__start="armed", arming__deadman=True, arming__deadman_timeout_s=1.0)
    switch = operator.button("deadman", QoSProfile(depth=1))
    operator.assert_stays(0.0)
    switch.publish(Bool(data=True))
    operator.move()
    switch.publish(Bool(data=False))
    released = time.monotonic()
    assert wait_until(lambda: operator.zeros(released))
    assert operator.zeros(released)[0] - released < 0.05 + 4 * jitter.worst_s
    operator.assert_stays(operator.zeros(released)[0])
    switch.publish(Bool(data=True))
    operator.move()
    silent = time.monotonic()  # a switch that says nothing any more is a released one
    assert wait_until(lambda: operator.zeros(silent + 0.5))
    assert operator.zeros(silent)[-1] - silent < 1.0 + 1.0 + 4 * jitter.worst_s


def test_an_arm_at_rest_says_four_zeros_and_then_nothing_if_configured(make):
    _, operator = make(arming__start="armed", command__rest="silence")
    operator.move()
    assert operator.ask("stop").success
    assert wait_until(operator.zeros)
    seen = -1
    while seen != len(operator.twists):
        seen = len(operator.twists)
        wait_until(lambda seen=seen: len(operator.twists) > seen, 0.3)
    speeds = [speed_of(message) for _, _, message in operator.twists]
    assert speeds[-4:] == [0.0] * 4
    assert speeds.count(0.0) in (4, 5)  # the stop says one more if a tick was on its way
    assert operator.ask("start").success
    operator.move()


def test_decisions_that_move_reach_the_gripper_controller_and_a_dry_run_does_not(make):
    _, operator = make(gripper__output="float64_multi_array")
    positions = []
    operator.create_subscription(
        Float64MultiArray,
        "gripper_controller/commands",
        lambda message: positions.append(list(message.data)),
        10,
    )
    operator.assert_stays(0.0)
    assert not wait_until(lambda: positions, 0.3)
    operator.ask("arm")
    operator.move()
    assert wait_until(lambda: positions == [[0.04]])
