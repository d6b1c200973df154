"""What a consumer with MoveIt Servo's rules, in another process, accepts from the adapter."""

import math
import sys
import threading
import time
from itertools import pairwise

import pytest
import ros_interfaces
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.node import Node
from ros.robot import Robot
from ros.scribe import Scribe
from ros_fakes import ScriptedPolicy, constant, wait_until

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.errors import ConfigError, MissingDependencyError
from heisd_ros.nodes import qos
from heisd_ros.nodes.conversions import to_stamp
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.servo_adapter_node import ServoAdapterNode

START_S = 60.0
SPEED = 0.1


class Arm(Node):
    """Publishes twists as the decoder does and keeps the diagnostics."""

    def __init__(self, context):
        super().__init__("arm", context=context)
        self.twist = self.create_publisher(TwistStamped, "twist_cmd", qos.EVENTS)
        self.statuses = []
        self.create_subscription(DiagnosticArray, "/diagnostics", self._keep, qos.EVENTS)

    def _keep(self, message):
        self.statuses += [status for status in message.status if "servo" in status.name]

    def say(self, x=SPEED, *, frame_id="base", age_s=0.0):
        message = TwistStamped()
        message.header.stamp = to_stamp(time.time_ns() - round(age_s * 1e9))
        message.header.frame_id = frame_id
        message.twist.linear.x = x
        self.twist.publish(message)

    def stream(self):
        """Say the same at 50 Hz until the returned function is called."""
        stop = threading.Event()

        def run():
            while not stop.wait(0.02):
                self.say()

        thread = threading.Thread(target=run)
        thread.start()

        def end():
            stop.set()
            thread.join()

        return end

    def diagnosed(self, text, level):
        return any(s.message == text and s.level == level for s in self.statuses)


@pytest.fixture
def servo(domain_id):
    """Start a Servo in a process of its own; killed at the end."""
    ros_interfaces.need("moveit_msgs")
    started = []

    def start(*arguments):
        started.append(Scribe("fake_servo.py", domain_id, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def make(context, spin):
    def build(**overrides):
        config = replace(HeisdConfig(), **overrides)
        adapter, arm = ServoAdapterNode(config=config, context=context), Arm(context)
        spin(adapter)
        spin(arm)
        assert wait_until(lambda: arm.twist.get_subscription_count() == 1)
        return adapter, arm

    return build


def accepted(process):
    return [line for line in process.of("twist") if not line["why"]]


def refused(process, jitter):
    """Twists that broke a rule; a machine that sleeps longer than Servo waits makes late ones."""
    slow = jitter.worst_s > 0.03
    return {line["why"] for line in process.of("twist")} - {"", "stale" if slow else ""}


def test_servo_is_switched_to_twists_first_and_then_accepts_every_one(servo, make, jitter):
    _, arm = make()
    end = arm.stream()  # before there is a Servo
    process = servo()
    assert wait_until(lambda: len(accepted(process)) > 25, START_S)
    end()
    assert process.of("switch") == [{"event": "switch", "to": 1, "success": True}]
    assert not refused(process, jitter)
    assert accepted(process)[0]["values"] == [SPEED, 0, 0, 0, 0, 0]
    assert wait_until(lambda: arm.diagnosed("no_warning", DiagnosticStatus.OK))


def test_unitless_servo_gets_shares_of_its_scale(servo, make, jitter):
    _, arm = make(servo__units="unitless")
    process = servo("--units", "unitless")
    end = arm.stream()
    assert wait_until(lambda: accepted(process), START_S)
    end()
    assert accepted(process)[0]["values"][0] == pytest.approx(0.25)  # 0.1 of 0.4 m/s
    assert not refused(process, jitter)


def test_twists_that_stop_end_in_four_zeros_and_silence(servo, make):
    adapter, arm = make()
    process = servo()
    end = arm.stream()
    assert wait_until(lambda: len(accepted(process)) > 5, START_S)
    end()
    assert wait_until(lambda: adapter.stream.counts["input_silent"] == 1)

    def zeros():
        return [line for line in accepted(process) if not any(line["values"])]

    assert wait_until(lambda: len(zeros()) == 4)
    assert not wait_until(lambda: len(zeros()) > 4, 0.5)
    assert not any(accepted(process)[-1]["values"])


def test_twists_that_servo_would_refuse_never_reach_it_and_end_the_motion(servo, make, jitter):
    adapter, arm = make()
    process = servo()
    end = arm.stream()
    assert wait_until(lambda: accepted(process), START_S)
    end()
    for bad in ({"x": math.nan}, {"frame_id": ""}, {"frame_id": "tool0"}, {"age_s": 0.2}):
        arm.say(**bad)
    reasons = ("non_finite", "empty_frame", "wrong_frame", "stale_command")
    assert wait_until(lambda: all(adapter.stream.counts[reason] for reason in reasons))
    assert wait_until(lambda: not any(accepted(process)[-1]["values"]))
    assert not refused(process, jitter)


def test_a_servo_that_was_restarted_is_switched_again(servo, make):
    _, arm = make()
    first = servo()
    end = arm.stream()
    assert wait_until(lambda: accepted(first), START_S)
    first.kill()
    second = servo()
    assert wait_until(lambda: len(accepted(second)) > 5, START_S)
    end()
    assert second.of("switch")[0]["success"]


def test_a_servo_that_refuses_to_be_switched_gets_nothing_and_is_reported(servo, make):
    adapter, arm = make()
    process = servo("--refuse")
    end = arm.stream()
    assert wait_until(lambda: adapter.stream.counts["servo_refused"], START_S)
    assert wait_until(lambda: arm.diagnosed("servo_not_ready", DiagnosticStatus.WARN))
    end()
    assert not process.of("twist")


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (
            {},
            ("--units", "unitless"),
            "is unitless, servo.units is speed_units",
        ),
        ({"servo__units": "unitless"}, (), "its command_in_type is speed_units"),
        (
            {"servo__units": "unitless"},
            ("--units", "unitless", "--scale", "0.2"),
            "its scale is 0.2 and 0.8",
        ),
    ],
)
def test_a_servo_with_other_units_gets_nothing_and_is_reported(servo, make, ours, theirs, text):
    _, arm = make(**ours)
    process = servo(*theirs)
    end = arm.stream()
    assert wait_until(
        lambda: arm.diagnosed("servo_settings_differ", DiagnosticStatus.ERROR), START_S
    )
    end()
    (told,) = {
        v.value
        for s in arm.statuses
        for v in s.values
        if s.message == "servo_settings_differ"
        if v.key == "servo_settings"
    }
    assert text in told
    assert process.of("switch")
    assert not process.of("twist")


def test_a_lower_scale_of_a_servo_in_speed_units_is_its_own_limit(servo, make):
    _, arm = make()
    process = servo("--scale", "0.2")
    end = arm.stream()
    assert wait_until(lambda: accepted(process), START_S)
    end()


def test_twists_go_on_while_servo_calls_one_invalid_and_it_recovers(servo, make, jitter):
    adapter, arm = make()
    process = servo("--unsolvable", "5")
    end = arm.stream()
    assert wait_until(lambda: process.of("twist"), START_S)
    unready = adapter.stream.counts["servo_not_ready"]
    assert wait_until(lambda: len(accepted(process)) > 25)
    end()
    assert refused(process, jitter) == {"unsolvable"}
    assert adapter.stream.counts["servo_not_ready"] == unready
    assert adapter.stream.counts["servo_halted"] == 1
    # Asked once at the start and once more, for it may have been switched to something else.
    assert wait_until(lambda: len(process.of("switch")) == 2)


def test_a_servo_that_hangs_or_is_paused_is_not_taken_for_a_moving_one(servo, make):
    _, arm = make()
    process = servo()
    end = arm.stream()
    assert wait_until(lambda: arm.diagnosed("no_warning", DiagnosticStatus.OK), START_S)
    process.hang()
    arm.statuses.clear()
    assert wait_until(lambda: arm.diagnosed("no_status", DiagnosticStatus.WARN))
    end()


def test_an_adapter_that_would_hear_itself_does_not_start(context):
    ros_interfaces.need("moveit_msgs")
    arguments = ["--ros-args", "-r", "twist_cmd:=servo_node/delta_twist_cmds"]
    with pytest.raises(ConfigError, match="where the adapter itself sends"):
        ServoAdapterNode(context=context, cli_args=arguments)


@pytest.mark.parametrize(
    ("code", "text", "level"),
    [
        (5, "halt_collision", DiagnosticStatus.ERROR),
        (1, "decelerate_approaching_singularity", DiagnosticStatus.WARN),
    ],
)
def test_the_status_of_servo_is_in_the_diagnostics(servo, make, code, text, level):
    _, arm = make()
    servo("--status", code)
    assert wait_until(lambda: arm.diagnosed(text, level), START_S)
    (values,) = [{v.key: v.value for v in s.values} for s in arm.statuses if s.message == text][:1]
    assert (values["code"], values["servo_says"]) == (str(code), f"code {code}")


def test_decisions_at_5_hz_move_servo_without_a_gap_and_end_in_four_zeros(
    servo, context, spin, jitter
):
    config = replace(HeisdConfig(), arming__start="armed", command__rest="silence")
    policy = ScriptedPolicy(constant([0.01, 0, 0, 0, 0, 0, 1.0]))  # 0.05 m/s at 5 Hz
    process = servo()
    spin(ServoAdapterNode(config=config, context=context))
    spin(DecoderNode(config=config, policy=policy, context=context))
    robot = spin(Robot(context))
    robot.find_peers()
    robot.instruct()
    end = robot.stream(5.0)
    assert wait_until(lambda: accepted(process), START_S)
    decided = len(policy.observations)
    assert wait_until(lambda: len(policy.observations) >= decided + 10, 30.0)
    end()
    silent_ns = time.time_ns()

    def moving():
        return [line["at"] for line in accepted(process) if any(line["values"])]

    def zeros():
        # After the last motion: a machine that stalls makes zeros in between.
        last = moving()[-1]
        return [line for line in accepted(process) if line["at"] > last]

    assert wait_until(lambda: len(zeros()) == 4)
    assert not wait_until(lambda: len(zeros()) > 4, 0.5)
    late_s = 4 * jitter.worst_s
    moved = moving()
    assert max(b - a for a, b in pairwise(moved)) < (0.1 + late_s) * 1e9
    assert (moved[-1] - silent_ns) * 1e-9 < 0.3 + late_s  # command.lifetime_s
    assert accepted(process)[0]["values"] == pytest.approx([0.05, 0, 0, 0, 0, 0])
    assert not refused(process, jitter)


def test_without_moveit_msgs_the_error_says_what_to_install(context, monkeypatch):
    monkeypatch.setitem(sys.modules, "moveit_msgs.msg", None)
    with pytest.raises(MissingDependencyError, match="ros-<distribution>-moveit-msgs"):
        ServoAdapterNode(context=context)
